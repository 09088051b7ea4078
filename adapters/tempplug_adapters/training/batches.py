"""The batches of an epoch: which items, in which order, on which process, and the random state for collating each batch.

Order and random state depend only on (seed, epoch, batch, process), so that a resumed training repeats the draws of the
interrupted one. This module must not depend on methods.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from tempplug.errors import ConfigError, TempplugError
from tempplug_adapters.training.distinct_batches import keep_apart

logger = logging.getLogger(__name__)


FAULT = "fault"
"""Key of the error that occurred in collating a batch."""


def seed_of(*parts: object) -> int:
    """Returns a seed that depends on every part (numbers or strings) and is the same on every machine."""
    return random.Random(":".join(map(str, parts))).getrandbits(63)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds PyTorch's global generators that code for a device may use."""
    # seed the other devices only if one is used, because seeding takes a tenth of a small step
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)


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
        self._batches = max(1, items // size + (not drop_last and items % size >= 2 * world))

    def __len__(self) -> int:
        return self._batches

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0."""
        self.epoch = epoch

    def indices(self, epoch: int) -> list[Tensor]:
        """Returns the positions of this process's items in each batch of an epoch.

        Args:
            epoch: counted from 0.
        """
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
