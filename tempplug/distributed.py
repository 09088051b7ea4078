"""Gathering over torch.distributed with the exact gradient; without a process group every function is the identity.

The processes are those of the default group, or of the group that `within` sets. Each has the loss of its local rows against
global columns, and returns the mean over its own rows. A gathered tensor therefore receives gradient from every rank's loss,
and the backward pass sums it over ranks. After DDP has averaged the gradients over ranks, loss and gradients equal those of one
process (a raw ``x.grad`` is world times its slice).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tempplug.errors import ConfigError, ProcessError, ShapeError
from tempplug.transforms import shared

# What a process announces in place of its number of rows when it cannot go on.
REFUSED = -1
# So many numbers of a batch tell it from another.
MARKING = 1 << 14


class Processes:
    """The processes that contrast their rows: a ``ProcessGroup``, or a one-dimensional ``DeviceMesh``; else `ConfigError`."""

    def __init__(self, group: Any, gather: bool) -> None:
        if not gather:
            raise ConfigError("group= names the processes of gather=True, and gather is False.")
        if dist.is_available() and isinstance(group, dist.ProcessGroup):
            self.group = group
        elif getattr(group, "ndim", None) == 1 and hasattr(group, "get_group"):
            self.group = group.get_group()
        else:
            raise ConfigError(
                f"group={group!r} must be a torch.distributed.ProcessGroup or one dimension of a DeviceMesh, e.g. mesh['dp']."
            )

    def __deepcopy__(self, memo: Any) -> Processes:
        """Returns itself: copies of a loss have the same processes."""
        return self

    def __reduce__(self) -> Any:
        """Raises, as a group exists in this run alone."""
        raise ConfigError("a loss with group= cannot be pickled: its processes exist in this run alone. Save its state_dict().")


_processes: ContextVar[Processes | None] = ContextVar("processes", default=None)


@contextmanager
def within(processes: Processes | None) -> Iterator[None]:
    """Makes all functions of this module use these processes during the block; None means the default group."""
    token = _processes.set(processes)
    try:
        yield
    finally:
        _processes.reset(token)


def chosen_processes() -> Processes | None:
    """Returns the processes that `within` has set; None means the default group."""
    return _processes.get()


def _group() -> Any:
    processes = _processes.get()
    return None if processes is None else processes.group


@dataclass(slots=True)
class Rows:
    """How the rows of a global batch are distributed over the ranks.

    Attributes:
        sizes: rows of each rank.
        rank: of this process within the group; None as ``group`` means the default one.
        offset: global position of this rank's first row.
        total: rows of all ranks together.
    """

    sizes: tuple[int, ...]
    rank: int
    group: Any = None
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
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(_group()) > 1


def mark_of(rows: Tensor) -> int:
    """Returns a number in which different rows nearly always differ; 0 for rows without a finite one."""
    numbers = rows.detach().flatten()[:MARKING].double()
    mark = (numbers * torch.arange(1, len(numbers) + 1, device=rows.device)).sum()
    return int(mark.view(torch.int64)) if mark.isfinite() else 0


def share_rows(local: int, device: torch.device, gather: bool, mark: int = 0) -> Rows:
    """Returns how many rows every rank holds; one rank without gathering.

    The device must be one that the process group can communicate from; ``mark`` is `mark_of` the rows if they must differ from
    those of other processes, else 0.

    Raises:
        ProcessError: another process refused its inputs, see `refused_together`, or holds the same rows.
    """
    if not gather or not active():
        return rows_of_one(local)
    sizes, marks = _announce(local, device, mark)
    refused = [str(rank) for rank, size in enumerate(sizes) if size == REFUSED]
    if refused:
        raise ProcessError(
            f"gather=True: process {', '.join(refused)} of {len(sizes)} refused its inputs, so no process has a loss; "
            "its own error says why. Where it had no rows left: use drop_last=True, or a sampler that gives every process "
            "equally many batches."
        )
    equal = [rank for rank, each in enumerate(marks) if each and marks.count(each) > 1]
    if equal:
        raise ProcessError(
            f"gather=True: processes {', '.join(map(str, equal))} of {len(sizes)} hold the same rows, which would count as "
            "negatives of themselves. With tensor, sequence or context parallelism pass group=, the processes that hold "
            "different data, such as mesh['dp'] of a DeviceMesh. With data parallelism give each process batches of its own, "
            "as by a DistributedSampler, or seeds of its own where data are random."
        )
    return Rows(tuple(sizes), dist.get_rank(_group()), _group())


@contextmanager
def refused_together(device: torch.device, gather: bool) -> Iterator[None]:
    """Wraps the check of inputs: an error of this process also ends the call of processes that wait in `share_rows`."""
    try:
        yield
    except Exception:
        if gather and active():
            _announce(REFUSED, device)
        raise


def _announce(rows: int, device: torch.device, mark: int = 0) -> tuple[list[int], list[int]]:
    """Returns the number of rows and the mark that every process announces."""
    mine = torch.tensor([rows, mark], device=device)
    announced = [torch.empty_like(mine) for _ in range(dist.get_world_size(_group()))]
    dist.all_gather(announced, mine, _group())
    sizes, marks = torch.stack(announced).T.tolist()
    return sizes, marks


def _all_gather(local: Tensor, rows: Rows) -> Tensor:
    # Collectives want equal shapes, so shorter ranks pad up to the longest and the padding is cut off again.
    longest = max(rows.sizes)
    padded = local.new_zeros((longest, *local.shape[1:]))
    padded[: local.shape[0]] = local
    parts = [torch.empty_like(padded) for _ in rows.sizes]
    dist.all_gather(parts, padded, rows.group)
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
        dist.all_reduce(total, group=rows.group)
        return total[rows.offset : rows.offset + rows.sizes[rows.rank]], None


def gather(local: Tensor, rows: Rows) -> Tensor:
    """Returns the rows [B, ...] of all ranks in rank order, with exact gradient; their number must be the announced one."""
    if rows.world == 1:
        return local
    if local.shape[0] != rows.sizes[rows.rank]:
        raise ShapeError(f"cannot gather {local.shape[0]} rows where {rows.sizes[rows.rank]} were announced.")
    if local.requires_grad and torch.is_grad_enabled():
        gathered: Tensor = _Gather.apply(local, rows)  # type: ignore[no-untyped-call]
        return gathered
    return _all_gather(local.contiguous(), rows)


def total(value: Tensor, rows: Rows, operation: Any = None) -> Tensor:
    """Returns the sum of a detached tensor over the ranks, elementwise, or another ``ReduceOp``."""
    if rows.world == 1:
        return value
    found = value.detach().clone()
    dist.all_reduce(found, dist.ReduceOp.SUM if operation is None else operation, rows.group)
    return found


def largest(value: Tensor, rows: Rows) -> Tensor:
    """Returns the largest of a detached tensor over the ranks, elementwise."""
    return value if rows.world == 1 else total(value, rows, dist.ReduceOp.MAX)
