"""The batches of an epoch: which items, in which order, on which process, and the random state that each is made with.

Order and random state are functions of (seed, epoch, batch, process) alone, so that a resumed training draws what the killed
one would have drawn. This module must not know methods.
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
"""In place of a batch's values: the error of making it."""


def seed_of(*parts: object) -> int:
    """Returns a seed that depends on every part, a number or a word, and is the same on every machine.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    return random.Random(":".join(map(str, parts))).getrandbits(63)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds PyTorch's global generators that work on a device may draw from."""
    # all of them for another device than the CPU: that takes a tenth of a small step
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)


@dataclass(frozen=True)
class Draw:
    """One batch to be made.

    Attributes:
        index: [B] positions of the items, those of this process.
        seed: of everything random in making it.
    """

    index: Tensor
    seed: int


class BatchOrder(Sampler[Draw]):
    """Deals items into batches; a process gets its share of each, and the shares of a batch, by rank, are that of one process.

    An incomplete last batch is kept, unless it would leave a process less than two items, which have each other as negatives:
    then it joins the one before it.

    Args:
        items: how many there are.
        batch_size: items a step of all processes together, at least 2; None: all.
        seed: of the orders.
        rank: of this process.
        world: number of processes.
        drop_last: leave out an incomplete last batch; which items that are differs from epoch to epoch.
        reshuffled: draw an order for every epoch; else the first serves all.
        keys: [items, K] numbers that no two items of a batch may share, see `keep_apart`; None: any items go together.

    Raises:
        ConfigError: there are fewer items than two a process, or than a whole batch where only those are kept.
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
            raise ConfigError(
                f"{items} items are too few for {world} process(es), each of which needs two: the others are negatives."
            )
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
        """Tells which epoch comes next, from 0."""
        self.epoch = epoch

    def indices(self, epoch: int) -> list[Tensor]:
        """Returns the positions of this process's items in each batch of an epoch.

        Args:
            epoch: from 0.
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
                    left,
                    self.items,
                    epoch,
                    self.size,
                )
        order = order[:end]
        return [whole.tensor_split(self.world)[self.rank] for whole in order.tensor_split(starts)]

    def __iter__(self) -> Iterator[Draw]:
        for number, index in enumerate(self.indices(self.epoch)):
            yield Draw(index, seed_of(self.seed, self.epoch, number, self.rank))


class _Collated(Dataset[Any]):
    """Makes the batch of a draw; what is at fault travels as a value, since a worker would wrap it in its call stack."""

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
    """A loader whose epoch can be set, in the way that the Trainer looks for.

    Args:
        order: of the batches.
        collate: positions [B] to the arguments of the module.
        workers: processes that make batches beside the training; 0 makes them in between.
        pin_memory: put tensors where a GPU reads them faster.
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
            # the loader draws a seed for its workers, from here and not from the training's generator
            generator=torch.Generator(),
        )
        self.order = order

    def set_epoch(self, epoch: int) -> None:
        """Tells which epoch comes next, from 0."""
        self.order.set_epoch(epoch)


def _as_it_is(batch: Any) -> Any:
    return batch
