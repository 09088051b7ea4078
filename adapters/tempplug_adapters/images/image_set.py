"""Sets of images: in memory, as encoded files, or decoded at each access.

A set returns pixels as 8-bit integers, so that a set of a million images is small; the device divides them by 255. This module
must not depend on data sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.decoding import UndecodableImageError, check_size, decode_image

if TYPE_CHECKING:
    from tempplug_adapters.data_files.roles import Assigned

_NAMED = 10


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
    stand_ins: ClassVar[Mapping[int, int]] = {}

    def __post_init__(self) -> None:
        shape, kind = tuple(self.images.shape), self.images.dtype
        if len(shape) != 4 or shape[1] != 3 or kind != torch.uint8:
            raise ShapeError(f"images {list(shape)} {kind} of the set '{self.name}' must be [N, 3, H, W] torch.uint8.")
        check_labels(self.labels, len(self.images), self.classes, self.name)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> Tensor:
        """Returns the images at some positions [b] or booleans [N], [b, 3, H, W] uint8, on the device of ``images``."""
        return self.images[positions(index, len(self)).to(self.images.device)]

    def subset(self, index: Tensor) -> ImageArray:
        """Returns the set of some positions [b] or booleans [N], with their labels and all classes."""
        chosen = positions(index, len(self))
        labels = None if self.labels is None else self.labels[chosen.to(self.labels.device)]
        return ImageArray(self.images[chosen.to(self.images.device)], labels, self.classes, self.name)


class ImageSource(Protocol):
    """The bytes and the names of n image files."""

    def __len__(self) -> int: ...

    def read(self, position: int) -> bytes:
        """Returns the whole file."""

    def file_name(self, position: int) -> str:
        """Returns its name, for messages."""


@dataclass(frozen=True, eq=False)
class EncodedSet:
    """Image files that are not decoded yet.

    Attributes:
        source: of the files.
        labels: [n], and ``classes`` and ``name``, as in `ImageArray`.
        rows: [n] positions of the images in ``source``; None: all of them.
        tables: those that name the images or their classes.
        notes: what was left out, and why.

    Raises:
        ShapeError, DataError: the labels do not fit.
    """

    source: ImageSource
    labels: Tensor | None
    classes: tuple[str, ...]
    name: str
    rows: tuple[int, ...] | None = None
    tables: tuple[Assigned, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self), self.classes, self.name)

    def __len__(self) -> int:
        return len(self.source if self.rows is None else self.rows)

    def subset(self, index: Tensor) -> EncodedSet:
        """Returns the set of some positions [b], in this order, or booleans [n]."""
        chosen = positions(index, len(self))
        labels = None if self.labels is None else self.labels[chosen]
        return replace(self, labels=labels, rows=tuple(map(self.row, chosen.tolist())))

    def decode(self, position: int, size: int | None) -> Tensor:
        """Returns one image, [3, H, W] uint8; as `decode_image`."""
        return decode_image(self.source.read(self.row(position)), self.file_name(position), size)

    def file_name(self, position: int) -> str:
        """Returns the name of an image's file, for messages."""
        return self.source.file_name(self.row(position))

    def row(self, position: int) -> int:
        """Returns the position of an image in ``source``."""
        return position if self.rows is None else self.rows[position]


def decode_all(encoded: EncodedSet, size: int | None = None) -> ImageArray:
    """Returns images decoded into memory. Those that cannot be read or decoded are left out and named in one warning.

    Args:
        encoded: n image files.
        size: pixels of each side, as in `resize_and_crop`; None keeps the images' size, which must be the same
            for all.

    Raises:
        DataError: no image can be decoded, the disk fails, or they differ in size and none was given.
    """
    images: Tensor | None = None
    kept: list[int] = []
    faults: list[str] = []
    for position, pixels in _decoded(encoded, size, faults):
        if images is None:
            images = torch.empty((len(encoded), *pixels.shape), dtype=torch.uint8)
        elif pixels.shape != images.shape[1:]:
            extent, first = (f"{width}x{height}" for height, width in (pixels.shape[1:], images.shape[2:]))
            remedy = f"but images before it are {first}: pass a size to which all images of '{encoded.name}' are resized"
            raise DataError(f"{encoded.file_name(position)} is {extent} pixels large, {remedy}.")
        images[len(kept)] = pixels
        kept.append(position)
    if faults:
        warnings.warn(left_out(encoded, faults), stacklevel=3)
    assert images is not None  # that none is readable is an error
    labels = None if encoded.labels is None else encoded.labels[torch.tensor(kept)]
    return ImageArray(images[: len(kept)], labels, encoded.classes, encoded.name)


def _decoded(encoded: EncodedSet, size: int | None, faults: list[str]) -> Iterator[tuple[int, Tensor]]:
    """Yields position and pixels of readable images, and appends what is wrong with the others; `DataError` if none is."""
    for position in range(len(encoded)):
        try:
            yield position, encoded.decode(position, size)
        except UndecodableImageError as error:
            faults.append(str(error))
    if len(faults) == len(encoded):
        raise _nothing_readable(f"'{encoded.name}'", faults)


def left_out(encoded: EncodedSet, faults: list[str]) -> str:
    """Returns a text on the images of a set that are left out, the first of them by name."""
    more = f" And {len(faults) - _NAMED} more." if len(faults) > _NAMED else ""
    listed = " ".join(f"{fault}." for fault in faults[:_NAMED])
    return f"{len(faults)} of {len(encoded)} images of '{encoded.name}' are left out. {listed}{more}"


def _nothing_readable(what: str, faults: list[str]) -> DataError:
    """Returns the error for a set, or a class, without a decodable image."""
    reason = f" {faults[0]}." if faults else " It is empty."
    return DataError(f"no image of {what} can be decoded.{reason}")


class ImageFiles:
    """Images that are decoded, resized and cropped at each access.

    An image that cannot be read or decoded is named in one warning and replaced by the next readable one of its class, so that
    positions, labels and batch sizes stay valid; without labels, by the next of the set. Workers of a data loader can receive
    the set.

    Args:
        encoded: N image files.
        size: pixels of each side: the shorter side is resized to it, the middle of the longer one is kept.
        replaced: False: an image that cannot be read is an error.

    Attributes:
        stand_ins: by position, the images that `batch` has used in the places of others.

    Raises:
        ConfigError: the size is not at least 1.
    """

    def __init__(self, encoded: EncodedSet, size: int, *, replaced: bool = True) -> None:
        check_size(size)
        self.encoded, self.size, self.replaced = encoded, size, replaced
        self.name, self.labels, self.classes = encoded.name, encoded.labels, encoded.classes
        self._faults: dict[int, str] = {}
        self.stand_ins: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.encoded)

    def batch(self, index: Tensor) -> Tensor:
        """Returns the images at some positions [b] or booleans [N], [b, 3, size, size] uint8; `DataError` if none decodes."""
        chosen = positions(index, len(self)).tolist()
        images = torch.empty((len(chosen), 3, self.size, self.size), dtype=torch.uint8)
        for row, position in enumerate(chosen):
            images[row] = self._pixels(position)
        return images

    def subset(self, index: Tensor) -> ImageFiles:
        """Returns the set of some positions [b] or booleans [N], with their labels and all classes."""
        return ImageFiles(self.encoded.subset(index), self.size, replaced=self.replaced)

    def readable(self) -> tuple[ImageFiles, list[str]]:
        """Returns the set without the images that cannot be read or decoded, and what is wrong with each of those."""
        faults: list[str] = []
        kept = [position for position, _ in _decoded(self.encoded, self.size, faults)]
        return (self.subset(torch.tensor(kept)) if faults else self), faults

    def _pixels(self, position: int) -> Tensor:
        found: list[str] = []
        for candidate in self._candidates(position):
            if candidate in self._faults:
                continue
            try:
                pixels = self.encoded.decode(candidate, self.size)
            except UndecodableImageError as error:
                self._faults[candidate] = str(error)
                found.append(str(error))
                continue
            if candidate != position:
                self.stand_ins[position] = candidate
            for fault in found:
                other = self.encoded.file_name(candidate)
                warnings.warn(f"{fault}. {other} is used in its place.", stacklevel=3)
            return pixels
        what = f"'{self.name}'"
        if self.labels is not None:
            what = f"class '{self.classes[int(self.labels[position])]}' of {what}"
        raise _nothing_readable(what, [self._faults[position]])

    def _candidates(self, position: int) -> Iterator[int]:
        """Yields a position, then later ones of the same class (any, without labels), then earlier ones."""
        yield position
        if not self.replaced:
            return
        same = torch.arange(len(self)) if self.labels is None else (self.labels == self.labels[position]).nonzero()[:, 0]
        yield from same[same > position].tolist()
        yield from same[same < position].tolist()


ImageSet = ImageArray | ImageFiles
"""N images of one size, read by position."""


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
        raise ShapeError(f"index {list(index.shape)} {index.dtype} must hold positions [b] of integers, or [{size}] booleans.")
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < size):
        wanted = f"0 to {size - 1}: the set has {size} images"
        raise ConfigError(f"index from {int(index.min())} to {int(index.max())} must lie in {wanted}.")
    return index.long()


def check_labels(labels: Tensor | None, size: int, classes: tuple[str, ...], name: str) -> None:
    """Raises `ShapeError` unless labels are None or [size] int64, and `DataError` for a label without a class."""
    if labels is None:
        return
    if labels.shape != (size,) or labels.dtype != torch.int64:
        raise ShapeError(f"labels {list(labels.shape)} {labels.dtype} of the set '{name}' must be [{size}] torch.int64.")
    if size and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        raise DataError(f"labels {int(labels.min())} to {int(labels.max())} of '{name}' must lie in 0 to {len(classes) - 1}.")
