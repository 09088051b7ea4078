"""Readers of CIFAR-10's and CIFAR-100's own archives, the binary ones and those of Python pickles.

A pickle can run any code: here it may build arrays, lists and words, and nothing else. This module must not know where the
archives lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_whole
from tempplug_adapters.data_files.pickled_arrays import load_pickled
from tempplug_adapters.images.image_archives import read_lines
from tempplug_adapters.images.image_set import ImageArray

_PIXELS: Final = 3 * 32 * 32
_TEN: Final = {"train": tuple(f"data_batch_{part}" for part in range(1, 6)), "test": ("test_batch",)}
_HUNDRED: Final = {"train": ("train",), "test": ("test",)}


def read_cifar(folder: Path, split: str, name: str) -> ImageArray:
    """Returns the images of an archive of CIFAR-10, or of CIFAR-100 with the 100 fine classes.

    Args:
        folder: as the archive is unpacked: ``cifar-10-batches-bin``, ``cifar-10-batches-py``, ``cifar-100-binary`` or
            ``cifar-100-python``.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        DataError: a file is missing, has the wrong length or a label without a class, or is a pickle of something else.
    """
    match folder.name:
        case "cifar-10-batches-bin":
            return _read_binary(folder, _TEN[split], "batches.meta.txt", 1, name)
        case "cifar-10-batches-py":
            return _read_python(folder, _TEN[split], "batches.meta", ("label_names", "labels"), name)
        case "cifar-100-binary":
            return _read_binary(folder, _HUNDRED[split], "fine_label_names.txt", 2, name)
        case _:
            return _read_python(folder, _HUNDRED[split], "meta", ("fine_label_names", "fine_labels"), name)


def _read_binary(folder: Path, files: tuple[str, ...], names: str, head: int, name: str) -> ImageArray:
    """Reads rows of ``head`` labels, of which the last counts, and the pixels."""
    classes = tuple(read_lines(folder / names))
    images: list[Tensor] = []
    labels: list[Tensor] = []
    for file in files:
        path = folder / f"{file}.bin"
        block = bytearray(read_whole(path))
        if not block or len(block) % (head + _PIXELS):
            raise DataError(f"{path} is {len(block)} bytes long, which is no multiple of the {head + _PIXELS} of an image.")
        rows = torch.frombuffer(block, dtype=torch.uint8).reshape(-1, head + _PIXELS)
        images.append(rows[:, head:])
        labels.append(_checked_labels(rows[:, head - 1].long(), classes, path))
    return ImageArray(torch.cat(images).reshape(-1, 3, 32, 32), torch.cat(labels), classes, name)


def _read_python(folder: Path, files: tuple[str, ...], names: str, keys: tuple[str, str], name: str) -> ImageArray:
    words = _unpickled(folder / names).get(keys[0])
    if not isinstance(words, list):
        raise DataError(f"{folder / names} must hold the list '{keys[0]}'.")
    classes = tuple(map(str, words))
    images: list[Tensor] = []
    labels: list[Tensor] = []
    for file in files:
        path = folder / file
        batch = _unpickled(path)
        data, numbers = batch.get("data"), batch.get(keys[1])
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
            raise DataError(f"{path} must hold the array 'data' of 8-bit integers, {_PIXELS} an image.")
        if not isinstance(numbers, list) or len(numbers) != len(data) or not all(isinstance(each, int) for each in numbers):
            raise DataError(f"{path} must hold the list '{keys[1]}' of {len(data)} whole numbers, one an image.")
        images.append(torch.from_numpy(data.copy()))
        labels.append(_checked_labels(torch.tensor(numbers, dtype=torch.int64), classes, path))
    return ImageArray(torch.cat(images).reshape(-1, 3, 32, 32), torch.cat(labels), classes, name)


def _checked_labels(labels: Tensor, classes: tuple[str, ...], path: Path) -> Tensor:
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        raise DataError(
            f"{path} has labels from {int(labels.min())} to {int(labels.max())}, but there are {len(classes)} classes."
        )
    return labels


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        content = load_pickled(read_whole(path))
    except DataError as error:
        raise DataError(f"{path} is not a readable pickle of arrays, lists and words: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must be the pickle of a dictionary; it is one of {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}
