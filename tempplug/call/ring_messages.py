"""Messages of a ring: rows of several kinds as one message, passed to the next process while the caller computes.

It must not know losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from tempplug.distributed import Rows, bytes_of


@dataclass(frozen=True, slots=True)
class Load:
    """Rows that go round.

    Attributes:
        place: where they belong: a field of `Views`, an argument of the call and a part of it, or the number of a block and
            that of a product of its logit map.
        local: [B, ...] those of this process.
        sizes: how many each process has.
    """

    place: str | tuple[str, str] | tuple[int, int]
    local: Tensor
    sizes: Sequence[int]

    def length(self, owner: int) -> int:
        """Returns the bytes of a process's rows."""
        return self.sizes[owner] * self.local.shape[1:].numel() * self.local.itemsize


def pack(parts: Iterable[Tensor]) -> Tensor:
    """Returns the bytes of some parts as one message."""
    return torch.cat([bytes_of(tensor.detach()) for tensor in parts])


def unpack(packed: Tensor, loads: Sequence[Load], owner: int) -> list[Tensor]:
    """Returns the parts that `pack` put together, as views."""
    parts = packed.split_with_sizes([load.length(owner) for load in loads])
    return [
        piece.view(load.local.dtype).view(load.sizes[owner], *load.local.shape[1:])
        for piece, load in zip(parts, loads, strict=True)
    ]


def in_order(loads: Sequence[Load]) -> list[Load]:
    """Returns them by the size of a number, so that each part of a message begins at a multiple of its own."""
    return sorted(loads, key=lambda load: -load.local.itemsize)


def going_round(rows: Rows, loads: Sequence[Load]) -> Iterator[tuple[int, list[Tensor]]]:
    """Yields every process and its rows, this one first, while those of the next are on their way."""
    held = pack(load.local for load in loads)
    for step in range(rows.world):
        owner = (rows.rank - step) % rows.world
        arrived = passed(rows, held, loads, owner) if step + 1 < rows.world else None
        yield owner, unpack(held, loads, owner)
        if arrived is not None:
            held, arrived = arrived(), None


def passed(rows: Rows, packed: Tensor, loads: Sequence[Load], owner: int) -> Callable[[], Tensor]:
    """Sends what belongs to ``owner`` to the next process; returns what waits for that of the process before the owner."""
    received = packed.new_empty(sum(load.length((owner - 1) % rows.world) for load in loads))
    following, before = ((rows.rank + step) % rows.world for step in (1, -1))
    if rows.group is not None:
        following, before = (dist.get_global_rank(rows.group, rank) for rank in (following, before))
    send = dist.P2POp(dist.isend, packed, following, rows.group)
    works = dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, received, before, rows.group)])

    def arrived() -> Tensor:
        for work in works:
            work.wait()
        return received

    return arrived
