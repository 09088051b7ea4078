"""Images that are decoded each time that they are asked for, for sets that do not fit into memory.

This module must not know data sets.
"""

from __future__ import annotations

import warnings
from functools import cached_property

import torch
from torch import Tensor

from tempplug_adapters.images.encoded_set import EncodedSet, nothing_readable
from tempplug_adapters.images.image_decoding import UndecodableImageError, check_size
from tempplug_adapters.images.image_set import positions


class ImageFiles:
    """Images that are decoded, resized and cropped each time that they are asked for.

    One that cannot be read or decoded is named in a warning once and replaced by the next readable one of its class, so that
    positions, labels and batch sizes hold; without labels, by the next of the set. A set can be sent to the workers of a data
    loader.

    Args:
        encoded: N image files.
        size: pixels of each side: the shorter side is resized to it, the middle of the longer one is kept.

    Raises:
        ConfigError: the size is not at least 1.
    """

    def __init__(self, encoded: EncodedSet, size: int) -> None:
        check_size(size)
        self.encoded = encoded
        self.size = size
        self._replacement: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def name(self) -> str:
        """Of the set."""
        return self.encoded.name

    @property
    def labels(self) -> Tensor | None:
        """[N] int64 position in `classes`, or None."""
        return self.encoded.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.encoded.classes

    def batch(self, index: Tensor) -> Tensor:
        """Returns some of the images, [b, 3, size, size] uint8.

        Args:
            index: [b] positions in the set, in the order wanted, or [N] booleans.

        Raises:
            ConfigError: a position is not in the set.
            DataError: no image of a class, or of a set without labels, can be decoded, or the disk fails.
        """
        chosen = positions(index, len(self)).tolist()
        images = torch.empty((len(chosen), 3, self.size, self.size), dtype=torch.uint8)
        for row, position in enumerate(chosen):
            images[row] = self._pixels(position)
        return images

    def subset(self, index: Tensor) -> ImageFiles:
        """Returns a set of some of the images, with their labels and all classes.

        Args:
            index: as in `batch`.
        """
        return ImageFiles(self.encoded.subset(index), self.size)

    def _pixels(self, position: int) -> Tensor:
        faults: dict[int, str] = {}
        candidate = self._in_place_of(position)
        while candidate not in faults:
            try:
                pixels = self.encoded.decode(candidate, self.size)
            except UndecodableImageError as error:
                faults[candidate] = str(error)
                candidate = self._in_place_of(int(self._next[candidate]))
                continue
            for unreadable, fault in faults.items():
                self._replacement[unreadable] = candidate
                other = self.encoded.source.file_name(candidate)
                warnings.warn(f"{fault}. {other} is used in its place.", stacklevel=3)
            return pixels
        what = f"'{self.name}'"
        if self.labels is not None:
            what = f"class '{self.classes[int(self.labels[position])]}' of {what}"
        raise nothing_readable(what, list(faults.values()))

    def _in_place_of(self, position: int) -> int:
        """Returns the position whose image is used: what replaces another may have to be replaced later."""
        while position in self._replacement:
            position = self._replacement[position]
        return position

    @cached_property
    def _next(self) -> Tensor:
        """[N] the position after each of the same class, or of the set without labels; after the last comes the first."""
        labels = torch.zeros(len(self)) if self.labels is None else self.labels
        order = torch.argsort(labels, stable=True)
        last = torch.ones(len(self), dtype=torch.bool)
        last[:-1] = labels[order][1:] != labels[order][:-1]
        following = torch.empty_like(order)
        following[order] = order.roll(-1)
        following[order[last]] = order[last.roll(1)]
        return following
