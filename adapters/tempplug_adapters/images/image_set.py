"""What a set of images is to the rest: its length, its labels, and batches of pixels by position.

Pixels leave a set as 8-bit integers, so that a set of a million images moves and waits cheaply; who needs them in [0, 1]
divides by 255 on the device. This module must not know files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError


class ImageSet(Protocol):
    """N images of one size, read by position."""

    @property
    def name(self) -> str:
        """Of the set, for messages and tables."""

    @property
    def labels(self) -> Tensor | None:
        """[N] int64 position of each image's class in `classes`; None where they have no labels."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all classes, also of those without an image here."""

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> Tensor:
        """Returns some of the images, [b, 3, H, W] uint8.

        Args:
            index: [b] positions in the set, in the order wanted, or [N] booleans.
        """

    def subset(self, index: Tensor) -> ImageSet:
        """Returns a set of some of the images, with their labels and all classes.

        Args:
            index: as in `batch`.
        """


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in memory.

    Attributes:
        images: [N, 3, H, W] uint8.
        labels: [N] int64 position in ``classes``, or None.
        classes: names of the classes.
        name: of the set.

    Raises:
        ShapeError: images or labels have another shape or type.
        DataError: a label has no class.

    Example:
        >>> import torch
        >>> images = ImageArray(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]), ("cat", "dog"), "pets")
        >>> dogs = images.subset(images.labels == 1)
        >>> len(dogs), dogs.batch(torch.tensor([1, 0, 1])).shape
        (2, torch.Size([3, 3, 8, 8]))
    """

    images: Tensor
    labels: Tensor | None
    classes: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        shape, kind = tuple(self.images.shape), self.images.dtype
        if len(shape) != 4 or shape[1] != 3 or kind != torch.uint8:
            raise ShapeError(f"images {list(shape)} {kind} of the set '{self.name}' must be [N, 3, H, W] torch.uint8.")
        check_labels(self.labels, len(self.images), self.classes, self.name)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> Tensor:
        """Returns some of the images, [b, 3, H, W] uint8, on the device of ``images``.

        Args:
            index: [b] positions in the set, in the order wanted, or [N] booleans.

        Raises:
            ConfigError: a position is not in the set.
        """
        return self.images[positions(index, len(self)).to(self.images.device)]

    def subset(self, index: Tensor) -> ImageArray:
        """Returns a set of some of the images, with their labels and all classes.

        Args:
            index: as in `batch`.
        """
        chosen = positions(index, len(self))
        labels = None if self.labels is None else self.labels[chosen.to(self.labels.device)]
        return ImageArray(self.images[chosen.to(self.images.device)], labels, self.classes, self.name)


def positions(index: Tensor, size: int) -> Tensor:
    """Returns an index as positions, [b] int64.

    Args:
        index: [b] integers from 0 to ``size`` - 1, or [size] booleans.
        size: of the set.

    Raises:
        ShapeError: it is neither.
        ConfigError: a position is not in the set.
    """
    if index.dtype == torch.bool and index.shape == (size,):
        return index.nonzero()[:, 0]
    if index.ndim != 1 or index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        raise ShapeError(
            f"index {list(index.shape)} {index.dtype} must hold positions [b] of integers, or [{size}] booleans, one an image."
        )
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise ConfigError(
            f"index from {int(index.min())} to {int(index.max())} must lie in 0 to {size - 1}: the set has {size} images."
        )
    return index.long()


def check_labels(labels: Tensor | None, size: int, classes: tuple[str, ...], name: str) -> None:
    """Makes sure that labels fit a set.

    Raises:
        ShapeError: they are not [size] int64.
        DataError: a label has no class.
    """
    if labels is None:
        return
    if labels.shape != (size,) or labels.dtype != torch.int64:
        raise ShapeError(f"labels {list(labels.shape)} {labels.dtype} of the set '{name}' must be [{size}] torch.int64.")
    if size and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        raise DataError(
            f"labels {int(labels.min())} to {int(labels.max())} of the set '{name}' must lie in 0 to {len(classes) - 1}: "
            f"it has {len(classes)} classes."
        )
