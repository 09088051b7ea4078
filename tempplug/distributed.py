"""Gathering over torch.distributed with the exact gradient; without a process group every function is the identity.

Convention of the loss: local rows × global columns, and each rank returns the mean over its own rows. A gathered tensor
therefore receives gradient from every rank's loss; the backward pass sums it over ranks. After DDP has averaged the
gradients over ranks, loss and gradients equal those of one process (a raw ``x.grad`` is world times its slice).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tempplug.errors import ProcessError, ShapeError
from tempplug.transforms import shared

# What a process announces in place of its number of rows when it cannot go on.
REFUSED = -1


@dataclass(slots=True)
class Rows:
    """How the rows of a global batch lie on the ranks.

    Attributes:
        sizes: rows of each rank.
        rank: this process.
        offset: global position of this rank's first row.
        total: rows of all ranks together.
        world: number of ranks.
    """

    sizes: tuple[int, ...]
    rank: int
    offset: int = field(init=False)
    total: int = field(init=False)
    world: int = field(init=False)

    def __post_init__(self) -> None:
        self.offset, self.total, self.world = sum(self.sizes[: self.rank]), sum(self.sizes), len(self.sizes)


@shared
def rows_of_one(size: int) -> Rows:
    """Returns the rows of a process alone."""
    return Rows((size,), 0)


def active() -> bool:
    """Returns whether there is a process group of more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def share_rows(local: int, device: torch.device, gather: bool) -> Rows:
    """Returns how many rows every rank holds; one rank without gathering.

    Args:
        local: rows of this process.
        device: a device that the process group can communicate from.
        gather: whether the caller wants global columns.

    Raises:
        ProcessError: another process refused its inputs, see `refused_together`.
    """
    if not gather or not active():
        return rows_of_one(local)
    sizes = _announce(local, device)
    refused = [str(rank) for rank, size in enumerate(sizes) if size == REFUSED]
    if refused:
        raise ProcessError(
            f"gather=True: process {', '.join(refused)} of {len(sizes)} refused its inputs, so no process has a loss; "
            "its own error says why. Where it had no rows left: use drop_last=True, or a sampler that gives every process "
            "equally many batches."
        )
    return Rows(tuple(sizes), dist.get_rank())


@contextmanager
def refused_together(device: torch.device, gather: bool) -> Iterator[None]:
    """Where inputs are checked: an error of this process also ends the call of those that wait for its rows in `share_rows`.

    Args:
        device: a device that the process group can communicate from.
        gather: whether the caller wants global columns.
    """
    try:
        yield
    except Exception:
        if gather and active():
            _announce(REFUSED, device)
        raise


def _announce(rows: int, device: torch.device) -> list[int]:
    """Returns what every process announces."""
    mine = torch.tensor([rows], device=device)
    announced = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(announced, mine)
    return [int(each) for each in announced]


def _all_gather(local: Tensor, rows: Rows) -> Tensor:
    # Collectives want equal shapes, so shorter ranks pad up to the longest and the padding is cut off again.
    longest = max(rows.sizes)
    padded = local.new_zeros((longest, *local.shape[1:]))
    padded[: local.shape[0]] = local
    parts = [torch.empty_like(padded) for _ in rows.sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, rows.sizes, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return _all_gather(local.contiguous(), rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        rows: Rows = ctx.rows
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        return total[rows.offset : rows.offset + rows.sizes[rows.rank]], None


def gather(local: Tensor, rows: Rows) -> Tensor:
    """Returns the rows of all ranks in rank order, with exact gradient.

    Args:
        local: [B, ...] rows of this rank.
        rows: from `share_rows`.

    Raises:
        ShapeError: this rank's number of rows is not what it announced.
    """
    if rows.world == 1:
        return local
    if local.shape[0] != rows.sizes[rows.rank]:
        raise ShapeError(f"cannot gather {local.shape[0]} rows where {rows.sizes[rows.rank]} were announced.")
    if local.requires_grad and torch.is_grad_enabled():
        gathered: Tensor = _Gather.apply(local, rows)  # type: ignore[no-untyped-call]
        return gathered
    return _all_gather(local.contiguous(), rows)


def total(value: Tensor, rows: Rows) -> Tensor:
    """Returns the sum of a detached tensor over the ranks."""
    if rows.world == 1:
        return value
    summed = value.detach().clone()
    dist.all_reduce(summed)
    return summed


def largest(value: Tensor, rows: Rows) -> Tensor:
    """Returns the largest of a detached tensor over the ranks, elementwise."""
    if rows.world == 1:
        return value
    found = value.detach().clone()
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found
