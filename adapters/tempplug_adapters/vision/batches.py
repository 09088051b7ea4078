"""The batches of an epoch: which images, in which order, on which process. It must not know models or augmentations.

Everything random is a function of (seed, epoch, process), so that a resumed training needs no record of what was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from tempplug.errors import ConfigError, TempplugError
from tempplug_adapters.images.image_set import ImageSet


def seed_of(*parts: object) -> int:
    """Returns a seed that depends on every part and is the same on every machine.

    Args:
        *parts: numbers or words.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    return random.Random(":".join(map(str, parts))).getrandbits(63)


class Batches:
    """Goes through a set in random order, whole batches only; a process gets its equal share of each.

    The shares of a batch, in the order of ranks, are the batch of one process: the number of processes changes nothing but
    who computes. Images that the batch size leaves over differ from epoch to epoch.

    Args:
        images: at least one batch.
        batch_size: images a step of all processes together, a multiple of ``world``.
        seed: of the orders.
        rank: of this process.
        world: number of processes.
        workers: processes that read images beside the training; 0 reads in between. It changes nothing but the speed.

    Raises:
        ConfigError: the batch is larger than the set or no multiple of ``world``, or ``workers`` is negative.
    """

    def __init__(
        self, images: ImageSet, batch_size: int, seed: int, *, rank: int = 0, world: int = 1, workers: int = 0
    ) -> None:
        if batch_size > len(images):
            raise ConfigError(
                f"batch_size={batch_size} must be at most {len(images)}, the images of '{images.name}': only whole batches "
                "are trained on."
            )
        if batch_size % world:
            raise ConfigError(f"batch_size={batch_size} must be a multiple of the {world} processes that share it.")
        if workers < 0:
            raise ConfigError(f"workers={workers} must be at least 0.")
        self.images = images
        self.batch_size = batch_size
        self.seed = seed
        self._share = slice(rank * (batch_size // world), (rank + 1) * (batch_size // world))
        self._order = _Order([])
        self._loader: DataLoader[tuple[Tensor, Tensor | TempplugError]] | None = None
        if workers:
            # A generator of its own, because the loader draws a seed for its workers; positions are batches already.
            self._loader = DataLoader(
                _Pixels(images),
                batch_size=None,
                sampler=self._order,
                num_workers=workers,
                persistent_workers=True,
                pin_memory=torch.cuda.is_available(),
                generator=torch.Generator(),
            )

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def positions(self, epoch: int) -> list[Tensor]:
        """Returns the positions of this process's images, [batch_size / world] for each step.

        Args:
            epoch: from 0.
        """
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, "order"))
        order = torch.randperm(len(self.images), generator=generator)
        whole = order[: len(self) * self.batch_size].view(len(self), self.batch_size)
        return list(whole[:, self._share])

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields positions [b] and pixels [b, 3, H, W] uint8 of each step.

        Args:
            epoch: from 0.

        Raises:
            DataError: an image cannot be read.
        """
        self._order.batches = self.positions(epoch)
        if self._loader is not None:
            for index, pixels in self._loader:
                if isinstance(pixels, TempplugError):
                    raise pixels
                yield index, pixels
            return
        for index in self._order:
            yield index, self.images.batch(index)


class _Order(Sampler[Tensor]):
    def __init__(self, batches: list[Tensor]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Pixels(Dataset[tuple[Tensor, Tensor | TempplugError]]):
    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitem__(self, index: Tensor) -> tuple[Tensor, Tensor | TempplugError]:
        try:
            return index, self.images.batch(index)
        except TempplugError as error:
            return index, error  # raised here, it would reach the training wrapped in the worker's call stack
