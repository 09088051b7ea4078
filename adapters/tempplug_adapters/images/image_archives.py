"""Readers of the archives of image data sets: each returns a whole set; errors name the file.

By hand, because `datasets` reads none of these formats, and torchvision unpickles CIFAR, which can run any code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import torch
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_arrays, read_text, read_whole
from tempplug_adapters.data_files.pickled_arrays import load_pickled
from tempplug_adapters.data_files.tables import Table, numbered
from tempplug_adapters.images.class_folders import FileList, list_folder
from tempplug_adapters.images.image_set import EncodedSet, ImageArray
from tempplug_adapters.images.image_tables import Rows

_CIFAR_PIXELS = 3 * 32 * 32
_STL10_SIDE = 96


def read_cifar(folder: Path, split: str, name: str) -> ImageArray:
    """Returns the images of an archive of CIFAR-10, or of CIFAR-100 with the 100 fine classes.

    Args:
        folder: the unpacked archive: ``cifar-10-batches-bin``, ``cifar-10-batches-py``, ``cifar-100-binary`` or
            ``cifar-100-python``, whose pickles may contain arrays, lists and strings only.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        DataError: a file is missing, has the wrong length or a label without a class, or is a pickle of something else.
    """
    hundred, pickled = "100" in folder.name, folder.name.endswith(("py", "python"))
    files = [split] if hundred else ["test_batch"] if split == "test" else [f"data_batch_{part}" for part in range(1, 6)]
    kind = "fine_label" if hundred else "label"
    if pickled:
        names = folder / ("meta" if hundred else "batches.meta")
        words = _unpickled(names).get(f"{kind}_names")
        if not isinstance(words, list):
            raise DataError(f"{names} must hold the list '{kind}_names'.")
    else:
        words = read_lines(folder / ("fine_label_names.txt" if hundred else "batches.meta.txt"))
    parts = []
    for path in (folder / (file if pickled else f"{file}.bin") for file in files):
        parts.append(_pickled_part(path, f"{kind}s") if pickled else _binary_part(path, 2 if hundred else 1))
        _check_classes(parts[-1][1], len(words), path)
    images, labels = map(torch.cat, zip(*parts, strict=True))
    return ImageArray(images.reshape(-1, 3, 32, 32), labels, tuple(map(str, words)), name)


def _binary_part(path: Path, head: int) -> tuple[Tensor, Tensor]:
    """Returns pixels and labels of rows of ``head`` labels, of which the last is returned, and the pixels."""
    block = bytearray(read_whole(path))
    _check_length(len(block), width := head + _CIFAR_PIXELS, path)
    rows = torch.frombuffer(block, dtype=torch.uint8).reshape(-1, width)
    return rows[:, head:], rows[:, head - 1].long()


def _check_length(size: int, of_image: int, path: Path) -> None:
    if size % of_image or not size:
        raise DataError(f"{path} is {size} bytes long, which is not a multiple of the {of_image} of an image.")


def _pickled_part(path: Path, key: str) -> tuple[Tensor, Tensor]:
    batch = _unpickled(path)
    data, numbers = batch.get("data"), batch.get(key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _CIFAR_PIXELS:
        raise DataError(f"{path} must hold the array 'data' of 8-bit integers, {_CIFAR_PIXELS} an image.")
    if not isinstance(numbers, list) or len(numbers) != len(data) or not all(isinstance(each, int) for each in numbers):
        raise DataError(f"{path} must hold the list '{key}' of {len(data)} whole numbers, one an image.")
    return torch.from_numpy(data.copy()), torch.tensor(numbers, dtype=torch.int64)


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        content = load_pickled(read_whole(path))
    except DataError as error:
        raise DataError(f"{path} is not a readable pickle of arrays, lists and strings: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must be the pickle of a dictionary; it is one of {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _check_classes(labels: Tensor, classes: int, path: Path) -> None:
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise DataError(f"{path} has labels from {int(labels.min())} to {int(labels.max())}, but there are {classes} classes.")


def read_npz(path: Path, split: str, name: str) -> EncodedSet | ImageArray:
    """Returns the images of a NumPy archive: reduced copies of data sets, on which the benchmark's small profiles train.

    Args:
        path: holds ``labels`` [n] and ``classes``, and either encoded images (``jpeg``, their bytes one after the other, and
            ``offsets`` [n + 1], where each begins and the last ends) or pixels (``images`` [n, H, W, 3] uint8).
        split: unused.
        name: of the set.

    Raises:
        DataError: the file is unreadable or has other contents.
    """
    arrays = read_arrays(path, ("jpeg", "offsets", "images", "labels", "classes"))
    missing = {"labels", "classes", *(("offsets",) if "jpeg" in arrays else ("images",))} - arrays.keys()
    if missing:
        raise DataError(f"{path} must hold {', '.join(sorted(missing))}, too.")
    if arrays["labels"].ndim != 1 or arrays["labels"].dtype.kind not in "iu":
        raise DataError(f"{path} has labels {arrays['labels'].shape} {arrays['labels'].dtype}: they must be (n,) integers.")
    labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    if arrays["classes"].ndim != 1:
        raise DataError(f"{path} has classes {arrays['classes'].shape}: they must be (classes,).")
    classes = tuple(str(word) for word in arrays["classes"])
    _check_classes(labels, len(classes), path)
    if "jpeg" not in arrays:
        images = arrays["images"]
        if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8 or len(images) != len(labels):
            raise DataError(f"{path} has images {images.shape} {images.dtype}: they must be ({len(labels)}, H, W, 3) uint8.")
        return ImageArray(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels, classes, name)
    for part, kind in (("jpeg", np.uint8), ("offsets", np.integer)):
        if arrays[part].ndim != 1 or not np.issubdtype(arrays[part].dtype, kind):
            raise DataError(f"{path} has {part} {arrays[part].shape} {arrays[part].dtype}: it must be (n,) {kind.__name__}.")
    parts = [None, pa.py_buffer(arrays["offsets"].astype(np.int64)), pa.py_buffer(arrays["jpeg"])]
    try:
        if len(arrays["offsets"]) != len(labels) + 1:
            raise ValueError
        images = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(labels), parts)
        images.validate(full=True)
    except (ValueError, pa.ArrowException) as error:
        wanted = f"{len(labels) + 1} ascending offsets, one more than labels"
        raise DataError(f"{path} must have {wanted}, into its {len(arrays['jpeg'])} bytes of images.") from error
    return EncodedSet(Rows(Table(str(path), numbered(pa.table({"jpeg": images}))), "jpeg"), labels, classes, name)


def read_stl10(folder: Path, split: str, name: str) -> ImageArray:
    """Returns the images of STL-10's binary archive, read from the disk at each access.

    Args:
        folder: ``stl10_binary``.
        split: ``train``, ``test`` or ``unlabeled``, which has no labels.
        name: of the set.

    Raises:
        DataError: a file is missing or has the wrong length.
    """
    where = folder / f"{split}_X.bin"
    pixels = 3 * _STL10_SIDE * _STL10_SIDE
    if not where.is_file():
        raise DataError(f"{where} does not exist: the folder must hold STL-10's binary archive, unpacked.")
    _check_length(size := where.stat().st_size, pixels, where)
    # a private memory map: nothing is read before its use
    block = torch.from_file(str(where), shared=False, size=size, dtype=torch.uint8)
    images = block.reshape(-1, 3, _STL10_SIDE, _STL10_SIDE).transpose(2, 3)  # the file has columns, not rows
    classes = tuple(read_lines(folder / "class_names.txt"))
    if split == "unlabeled":
        return ImageArray(images, None, classes, name)
    labels = torch.tensor(list(read_whole(folder / f"{split}_y.bin")), dtype=torch.int64) - 1
    if len(labels) != len(images) or int(labels.min()) < 0 or int(labels.max()) >= len(classes):
        raise DataError(f"{folder / f'{split}_y.bin'} must hold {len(images)} labels from 1 to {len(classes)}.")
    return ImageArray(images, labels, classes, name)


def read_tiny_imagenet(folder: Path, split: str, name: str) -> EncodedSet:
    """Returns the images of Tiny-ImageNet's archive; its classes are WordNet ids, and its validation images are the test set.

    Args:
        folder: ``tiny-imagenet-200``, as unpacked, or with the validation images sorted into class folders.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        DataError: a file is missing or names a class that has no training images.
    """
    training = list_folder(folder / "train", name)
    classes = training.classes
    annotations = folder / "val" / "val_annotations.txt"
    if split == "train":
        return training
    if not annotations.is_file():
        return list_folder(folder / "val", name, classes)
    rows = [(*line.split("\t"), "")[:2] for line in read_lines(annotations)]
    for number, (_, word) in enumerate(rows, start=1):
        if word not in classes:
            raise DataError(f"{annotations}, line {number}: the class '{word}' has no folder of training images.")
    labels = torch.tensor([classes.index(word) for _, word in rows], dtype=torch.int64)
    return EncodedSet(FileList(tuple(f"{folder}/val/images/{image}" for image, _ in rows)), labels, classes, name)


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a text that are not empty; `DataError` if the file cannot be read."""
    return [line for line in read_text(path).splitlines() if line.strip()]
