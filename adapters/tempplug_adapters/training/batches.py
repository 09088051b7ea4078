"""The batches of an epoch: which items, in which order, on which process, and the random state for collating each batch.

Order and random state depend only on (seed, epoch, batch, process), so that a resumed training repeats the draws of the
interrupted one. Batches without repeated keys (`keep_apart`) have the same number and sizes: items are swapped between them.
This module must not depend on methods.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from tempplug.errors import ConfigError, TempplugError

logger = logging.getLogger(__name__)


FAULT = "fault"
"""Key of the error that occurred in collating a batch."""
_TOGETHER: Final = 1 << 12
"""Batches whose keys are sorted together, which limits memory."""


def seed_of(*parts: object) -> int:
    """Returns a seed that depends on every part (numbers or strings) and is the same on every machine."""
    return random.Random(":".join(map(str, parts))).getrandbits(63)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds PyTorch's global generators that code for a device may use."""
    # seed the other devices only if one is used, because seeding takes a tenth of a small step
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)


def batches_of_epoch(items: int, size: int, world: int, *, drop_last: bool) -> int:
    """Returns the number of batches of an epoch; arguments as of `BatchOrder`, which says when the last one is merged."""
    return max(1, items // size + (not drop_last and items % size >= 2 * world))


@dataclass(frozen=True)
class Draw:
    """One batch to collate.

    Attributes:
        index: [B] positions of this process's items.
        seed: seed for collating the batch.
    """

    index: Tensor
    seed: int


class BatchOrder(Sampler[Draw]):
    """Assigns items to batches. Each process gets a share of every batch; the shares by rank equal the batch of a single
    process.

    An incomplete last batch is kept. If it would leave a process with fewer than two items, which are each other's negatives,
    it is merged into the previous batch.

    Args:
        items: number of items.
        batch_size: items per step of all processes together, at least 2; None for all items.
        seed: seed of the orders.
        rank: rank of this process.
        world: number of processes.
        drop_last: omit an incomplete last batch; the omitted items differ from epoch to epoch.
        reshuffled: draw a new order for every epoch; otherwise the first order is reused.
        keys: [items, K] numbers that must be unique within a batch, see `keep_apart`; None for no restriction.

    Raises:
        ConfigError: there are fewer than two items per process, or less than one full batch with ``drop_last``.
    """

    def __init__(
        self,
        items: int,
        batch_size: int | None,
        seed: int,
        *,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        reshuffled: bool = True,
        keys: np.ndarray | None = None,
    ) -> None:
        size = items if batch_size is None else batch_size
        if items < 2 * world:
            raise ConfigError(f"{items} items are too few for {world} process(es): each needs two, to contrast them.")
        if drop_last and size > items:
            raise ConfigError(
                f"the batch size of {size} must be at most {items}, the number of items: only whole batches are trained on "
                "(--no-dataloader-drop-last keeps others)."
            )
        if size < 2 * world:
            raise ConfigError(f"the batch size of {size} must be at least 2 for each of the {world} process(es) that share it.")
        self.items, self.size, self.seed, self.reshuffled, self.drop_last = items, size, seed, reshuffled, drop_last
        self.rank, self.world, self.epoch, self.keys = rank, world, 0, keys
        self._batches = batches_of_epoch(items, size, world, drop_last=drop_last)

    def __len__(self) -> int:
        return self._batches

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0."""
        self.epoch = epoch

    def indices(self, epoch: int) -> list[Tensor]:
        """Returns the positions of this process's items in each batch of an epoch, which is counted from 0."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch if self.reshuffled else 0, "order"))
        order = torch.randperm(self.items, generator=generator)
        starts = [number * self.size for number in range(1, self._batches)]
        end = self._batches * self.size if self.drop_last else self.items
        if self.keys is not None:
            distinct, left = keep_apart(order.numpy(), [0, *starts], end, self.keys)
            order = torch.from_numpy(distinct)
            if left:
                logger.warning(
                    "%d of %d items are in a batch with another one that has a sentence of theirs, in epoch %d: they occur too "
                    "often for batches of %d to keep them apart.",
                    *(left, self.items, epoch, self.size),
                )
        order = order[:end]
        return [whole.tensor_split(self.world)[self.rank] for whole in order.tensor_split(starts)]

    def __iter__(self) -> Iterator[Draw]:
        for number, index in enumerate(self.indices(self.epoch)):
            yield Draw(index, seed_of(self.seed, self.epoch, number, self.rank))


class _Collated(Dataset[Any]):
    """Collates a draw; errors are returned as values, because a worker would wrap them in its traceback."""

    def __init__(self, items: int, collate: Callable[[Tensor], dict[str, Any]]) -> None:
        self.items, self.collate = items, collate

    def __len__(self) -> int:
        return self.items

    def __getitems__(self, draw: Draw) -> dict[str, Any]:
        seed_generators(draw.seed, torch.device("cpu"))
        try:
            return self.collate(draw.index)
        except TempplugError as error:
            return {FAULT: error}


class BatchLoader(DataLoader[Any]):
    """A data loader with ``set_epoch``, which the Trainer calls.

    Args:
        order: order of the batches.
        collate: maps positions [B] to the arguments of the module.
        workers: number of worker processes that collate batches; 0 collates in this process.
        pin_memory: use page-locked memory for faster copies to a GPU.
    """

    def __init__(
        self, order: BatchOrder, collate: Callable[[Tensor], dict[str, Any]], *, workers: int = 0, pin_memory: bool = False
    ) -> None:
        super().__init__(
            _Collated(order.items, collate),
            batch_sampler=order,  # type: ignore[arg-type]
            collate_fn=_as_it_is,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=pin_memory,
            # the loader draws the seed of its workers from this generator, not from that of the training
            generator=torch.Generator(),
        )
        self.order = order

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0."""
        self.order.set_epoch(epoch)


def _as_it_is(batch: Any) -> Any:
    return batch


def keep_apart(order: np.ndarray, starts: Sequence[int], end: int, keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns an order in which no batch contains a key twice, and the number of items that could not be placed.

    An item that shares a key with an earlier item of its batch is swapped with an item of the first following batch in which
    both fit. The running time depends on the number of such items, which are found by sorting.

    Args:
        order: [n] items in batch order.
        starts: position of the first item of each batch, beginning with 0.
        end: end of the last batch; items after it are in no batch and may share keys.
        keys: [n, K] keys of each item.
    """
    order = order.copy()
    limits = [*starts, end, len(order)]
    batch_of = np.repeat(np.arange(len(starts) + 1), np.diff(limits))
    counters: dict[int, Counter[int]] = {}

    def held(batch: int) -> Counter[int]:
        """Returns the number of items with each key in a batch; empty after the last batch."""
        if batch not in counters:
            rows = range(limits[batch], limits[batch + 1]) if batch < len(starts) else ()
            counters[batch] = Counter(key for position in rows for key in set(keys[order[position]].tolist()))
        return counters[batch]

    left = 0
    everywhere: set[int] = set()  # keys present in all batches; an item with such a key cannot be moved
    for position in _repeats(keys, order[:end], batch_of[:end]):
        home = int(batch_of[position])
        own = set(keys[order[position]].tolist())
        if all(held(home)[key] < 2 for key in own):
            continue  # the earlier item with this key has been moved
        if own & everywhere:
            left += 1
            continue
        met: Counter[int] = Counter()
        for step in range(1, len(starts) + 1):
            away = (home + step) % (len(starts) + 1)
            shared = [key for key in own if held(away)[key]]
            met.update(shared)
            if shared:
                continue
            size = limits[away + 1] - limits[away]
            others = (limits[away] + (position + offset) % size for offset in range(size))
            fitting = next((other for other in others if _fits(keys[order[other]].tolist(), own, held(home))), None)
            if fitting is None:
                continue
            theirs = set(keys[order[fitting]].tolist())
            held(home).subtract(own)
            held(home).update(theirs)
            if away < len(starts):
                held(away).subtract(theirs)
                held(away).update(own)
            order[[position, fitting]] = order[[fitting, position]]
            break
        else:
            left += 1
            everywhere |= {key for key in own if met[key] == len(starts) - 1}
    return order, left


def _fits(theirs: list[int], own: set[int], home: Counter[int]) -> bool:
    """Returns whether an item can replace one with the keys ``own`` in a batch with the key counts ``home``."""
    return all(home[key] - (key in own) == 0 for key in theirs)


def _repeats(keys: np.ndarray, order: np.ndarray, batch_of: np.ndarray) -> list[int]:
    """Returns the ascending positions in an order whose item shares a key with that of an earlier position of its batch."""
    columns = keys.shape[1]
    repeats: list[int] = []
    firsts = np.arange(0, batch_of.max(initial=-1) + 1 + _TOGETHER, _TOGETHER)
    for start, end in pairwise(np.searchsorted(batch_of, firsts).tolist()):
        flat, batch = keys[order[start:end]].reshape(-1), np.repeat(batch_of[start:end], columns)
        position = np.repeat(np.arange(start, end), columns)
        by_key = np.lexsort((position, flat, batch))
        same = (batch[by_key][1:] == batch[by_key][:-1]) & (flat[by_key][1:] == flat[by_key][:-1])
        same &= position[by_key][1:] != position[by_key][:-1]
        repeats += np.unique(position[by_key][1:][same]).tolist()
    return repeats
