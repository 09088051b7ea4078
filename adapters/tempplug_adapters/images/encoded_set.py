"""Images as files hold them, not decoded yet: whatever gives the bytes of a file by position.

That may be files on disk, one archive or rows of a table. This module must not know where they come from.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.images.image_decoding import UndecodableImageError, decode_image
from tempplug_adapters.images.image_set import ImageArray, check_labels, positions

_NAMED = 10


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
        source: of n files.
        labels: [n] int64 position in ``classes``, or None.
        classes: names of the classes.
        name: of the set.

    Raises:
        ShapeError, DataError: the labels do not fit.
    """

    source: ImageSource
    labels: Tensor | None
    classes: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.source), self.classes, self.name)

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, index: Tensor) -> EncodedSet:
        """Returns a set of some of the files.

        Args:
            index: [b] positions in the set, in the order wanted, or [n] booleans.
        """
        chosen = positions(index, len(self))
        labels = None if self.labels is None else self.labels[chosen]
        return EncodedSet(_Part(self.source, tuple(chosen.tolist())), labels, self.classes, self.name)

    def decode(self, position: int, size: int | None) -> Tensor:
        """Returns one image, [3, H, W] uint8; as `image_decoding.decode_image`."""
        return decode_image(self.source.read(position), self.source.file_name(position), size)


def decode_all(encoded: EncodedSet, size: int | None = None) -> ImageArray:
    """Returns images decoded into memory. Those that cannot be read or decoded are left out and named in one warning.

    Args:
        encoded: n image files.
        size: pixels of each side, as in `image_decoding.resize_and_crop`; None leaves the images as they are, which must then
            be of one size.

    Raises:
        DataError: no image can be decoded, the disk fails, or they differ in size and none was given.
    """
    images: Tensor | None = None
    kept: list[int] = []
    faults: list[str] = []
    for position in range(len(encoded)):
        try:
            pixels = encoded.decode(position, size)
        except UndecodableImageError as error:
            faults.append(str(error))
            continue
        if images is None:
            images = torch.empty((len(encoded), *pixels.shape), dtype=torch.uint8)
        elif pixels.shape != images.shape[1:]:
            raise DataError(
                f"{encoded.source.file_name(position)} is {pixels.shape[2]}x{pixels.shape[1]} pixels large, but images before "
                f"it are {images.shape[3]}x{images.shape[2]}: pass a size to which all images of '{encoded.name}' are resized."
            )
        images[len(kept)] = pixels
        kept.append(position)
    if images is None:
        raise nothing_readable(f"'{encoded.name}'", faults)
    if faults:
        more = f" And {len(faults) - _NAMED} more." if len(faults) > _NAMED else ""
        told = " ".join(f"{fault}." for fault in faults[:_NAMED])
        warnings.warn(f"{len(faults)} of {len(encoded)} images of '{encoded.name}' are left out. {told}{more}", stacklevel=3)
    labels = None if encoded.labels is None else encoded.labels[torch.tensor(kept)]
    return ImageArray(images[: len(kept)], labels, encoded.classes, encoded.name)


def nothing_readable(what: str, faults: list[str]) -> DataError:
    """Returns the error of a set, or of a class of it, in which no image can be decoded."""
    reason = f" {faults[0]}." if faults else " It is empty."
    return DataError(f"no image of {what} can be decoded.{reason}")


@dataclass(frozen=True)
class _Part:
    source: ImageSource
    index: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.index)

    def read(self, position: int) -> bytes:
        return self.source.read(self.index[position])

    def file_name(self, position: int) -> str:
        return self.source.file_name(self.index[position])
