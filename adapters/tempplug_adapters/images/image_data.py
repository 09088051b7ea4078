"""Image data sets by name: their paths in a folder of data, and how they are read; and the images given to a trained encoder.

This module must not depend on models, augmentations or training.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.images.class_folders import FileList, image_files, is_image, list_split, split_folders
from tempplug_adapters.images.decoding import check_size, resize_all
from tempplug_adapters.images.image_archives import read_cifar, read_npz, read_stl10, read_tiny_imagenet
from tempplug_adapters.images.image_set import EncodedSet, ImageArray, ImageFiles, ImageSet, decode_all, left_out
from tempplug_adapters.images.image_shards import Members
from tempplug_adapters.images.image_tables import HUB, load_from_hub, read_split, table_files
from tempplug_adapters.storage.fingerprint import files_below

Split = Literal["train", "test"]
Found = EncodedSet | ImageArray
"""A data set as it is read: encoded files or pixels."""

DEFAULT_SIZE: Final = 224
"""Pixels of each side of images of different sizes, if no size is given."""

_TRAIN_SHARE = 0.8


def load_images(
    dataset: str,
    split: Split,
    data_dir: Path | None,
    *,
    size: int | None = None,
    count: int | None = None,
    seed: int = 0,
    columns: Sequence[str] = (),
) -> ImageSet:
    """Returns a data set of images.

    Most are decoded into memory; ImageNet and a user's own folders stay on disk and are decoded at each access. A warning names
    images that cannot be read or decoded: in memory they are left out, on disk the next one of the class replaces each.

    Args:
        dataset: one of `DATASETS`; or the path of a folder that holds ``train`` and ``test`` or ``val``, each with a folder of
            image files for each class, or tables of images or tars of a webdataset (see `read_split`); of one such file, to
            train on; or of a folder of images at any depth, to train on without classes.
        split: ``train`` or ``test``; the validation set is the test set if that has no labels.
        data_dir: folder of real data that contains the unpacked data set, directly or below ``vision``. None loads
            ``cifar10``, ``cifar100``, ``tiny-imagenet`` and ``imagenet`` from the Hugging Face hub. ``digits`` and a path
            need none.
        size: pixels of each side: the shorter side is resized to it, bicubically, and the middle of the longer one is kept.
            None keeps the size of images in memory; those on disk get `DEFAULT_SIZE`.
        count: number of images, drawn at random before any is decoded and in the order of the draw: a smaller count is the
            beginning of a larger one. None: all, in the order of the data set, which may be sorted by class.
        seed: of that draw, which does not use the global generator.
        columns: of a table, ``role=column``, see `image_tables.ROLES`; others are found by their names.

    Raises:
        ConfigError: the split, the size or the count is invalid.
        UnknownNameError: no data set of that name.
        DataError: the data set is missing or malformed; the message names the file.
        MissingDependencyError: a library that reads it is not installed.

    Example:
        >>> digits = load_images("digits", "train", None, count=100)
        >>> len(digits), digits.batch(torch.tensor([3, 5])).shape
        (100, torch.Size([2, 3, 8, 8]))
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split='{split}' must be 'train' or 'test'.")
    if size is not None:
        check_size(size)
    found, on_disk = _find(dataset, split, None if data_dir is None else Path(data_dir), columns)
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(found):
            raise ConfigError(f"count={count} must be a whole number from 1 to {len(found)}, the images of '{found.name}'.")
        found = found.subset(torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))[:count])
    if isinstance(found, ImageArray):
        return ImageArray(resize_all(found.images, size), found.labels, found.classes, found.name)
    return ImageFiles(found, size or DEFAULT_SIZE) if on_disk else decode_all(found, size)


def _read_own(path: Path, split: Split, name: str, columns: Sequence[str] = ()) -> EncodedSet:
    tables = not any(split_folders(path).values()) and table_files(path)
    images = read_split(str(path), split, name, columns) if tables else None
    return list_split(path, split, name) if images is None else images


def _read_lossless(path: Path, split: Split, name: str) -> Found:
    found = read_npz(path, split, name)
    return found.subset(_part(len(found), split))


def _read_unlabeled(folder: Path, split: Split, name: str) -> Found:
    return read_stl10(folder, "unlabeled" if split == "train" else "test", name)


def _part(count: int, split: Split) -> torch.Tensor:
    """Returns fixed random four fifths of the positions, or the others, ascending."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    first = int(count * _TRAIN_SHARE)
    return (order[:first] if split == "train" else order[first:]).sort().values


_Read = Callable[[Path, Split, str], Found]
# The path of each form of a data set, {test} and {val} for the name of its split, and its reader. An original comes before a
# reduced copy of it.
_LAYOUTS: Final[dict[str, dict[str, _Read]]] = {
    "cifar10": {
        **{"cifar-10-batches-bin": read_cifar, "cifar-10-batches-py": read_cifar, "cifar10": _read_own},
        "cifar10_{test}_jpeg.npz": read_npz,
    },
    "cifar10-lossless4k": {"cifar10_lossless4k.npz": _read_lossless},
    "cifar100": {"cifar-100-binary": read_cifar, "cifar-100-python": read_cifar, "cifar100": _read_own},
    "imagenette": {
        **dict.fromkeys(("imagenette2", "imagenette2-320", "imagenette2-160"), _read_own),
        "imagenette224_{val}_jpeg.npz": read_npz,
    },
    "tiny-imagenet": {"tiny-imagenet-200": read_tiny_imagenet, "tiny_imagenet_c100_{val}_jpeg.npz": read_npz},
    "stl10": {"stl10_binary": read_stl10},
    "stl10-unlabeled": {"stl10_binary": _read_unlabeled},
    "imagenet": {"imagenet": _read_own},
    "imagenet-100": {"imagenet-100": _read_own},
}
_ON_DISK: Final = ("imagenette", "imagenet", "imagenet-100")
"""Data sets whose image files, if they have some, are decoded at each access."""
DATASETS: Final = (*_LAYOUTS, "digits")
"""Names of data sets. ``digits`` are scikit-learn's 1,797 grey images of 8x8 pixels, ``cifar10-lossless4k`` the
first 4,000 training images of CIFAR-10; a fixed random fifth of each is its test set. ``stl10-unlabeled`` has the 100,000
images without labels as its training set."""


def _find(dataset: str, split: Split, data_dir: Path | None, columns: Sequence[str]) -> tuple[Found, bool]:
    """Returns an undecoded data set, and whether it should stay on disk."""
    name = f"{dataset} {split}"
    if dataset == "digits":
        return _digits(split, name), False
    if dataset not in _LAYOUTS:
        folder = Path(dataset)
        with contextlib.suppress(RuntimeError):  # where the user has no home folder
            folder = folder.expanduser()
        if folder.is_dir() or table_files(folder):
            return _read_own(folder, split, name, columns), True
        if folder.exists():
            raise DataError(f"{dataset} is no folder and no table of images: {_OWN}.")
        if dataset.startswith((".", "~")) or {"/", os.sep} & set(dataset):
            raise DataError(f"the folder {dataset} does not exist: {_OWN}.")
        known = f"Known: {', '.join(DATASETS)}, and the path of a folder"
        raise UnknownNameError(f"no data set '{dataset}'.{nearest(dataset, DATASETS)} {known}.")
    if data_dir is None and dataset in HUB:
        return load_from_hub(dataset, split, name), dataset in _ON_DISK
    paths = " or ".join(_paths(dataset, split))
    if data_dir is None:
        remedy = f"pass the folder that holds {paths} (--data-dir or TEMPPLUG_DATA)"
        raise DataError(f"data_dir is not given, and {dataset} is not loaded from the Hugging Face hub: {remedy}.")
    if (place := _place(dataset, split, data_dir)) is not None:
        path, read = place
        return read(path, split, name), dataset in _ON_DISK and read is _read_own
    remedy = ", or give no data folder to load it from the Hugging Face hub" if dataset in HUB else ""
    places = f"{data_dir} and {data_dir / 'vision'} as {paths}"
    raise DataError(f"{dataset} ({split}) was looked for in {places}: put it there, unpacked{remedy}.")


_OWN: Final = (
    "a data set of your own is a folder that holds train and test or val, each with a folder for each class, or tables "
    "(parquet, CSV) or tars of a webdataset; one such file; or a folder of images without classes"
)


def files_of(images: ImageSet, dataset: str, split: Split, data_dir: Path | None) -> dict[str, Path | str]:
    """Returns the files of a set of images that `load_images` has returned, by relative name.

    Those of images on disk are the images of the set. A folder of both splits is listed for ``train``. For a data set of the
    hub it is a text that depends on the commit.

    Args:
        images: the set, or a part of it.
        dataset: with ``split`` and ``data_dir`` as in `load_images`.
    """
    tables = [each.table for each in tables_of(images)]
    if isinstance(images, ImageFiles) and isinstance(source := images.encoded.source, FileList | Members):
        named = {Path(table.path).name: Path(table.path) for table in tables if isinstance(source, FileList)}
        return {**named, **source.files(map(images.encoded.row, range(len(images))))}
    if dataset == "digits":
        return {}
    if dataset in _LAYOUTS and data_dir is None:
        return {"": " ".join(HUB[dataset])}
    form = _place(dataset, split, data_dir) if dataset in _LAYOUTS and data_dir is not None else None
    place = Path(dataset).expanduser() if form is None else form[0]
    if not place.exists():
        return {"": tables[0].metadata[b"fingerprint"].decode()}
    return {**files_below(place)} if split == "train" or place.is_file() else {}


def _paths(dataset: str, split: Split) -> dict[str, _Read]:
    """Returns the readers of the forms of a named data set by path, in order of precedence."""
    names = {"test": split, "val": "train" if split == "train" else "val"}
    return {path.format(**names): read for path, read in _LAYOUTS[dataset].items()}


def _place(dataset: str, split: Split, data_dir: Path) -> tuple[Path, _Read] | None:
    """Returns the first path of a named data set that exists, with its reader."""
    forms = [
        (folder / path, read) for folder in (data_dir, data_dir / "vision") for path, read in _paths(dataset, split).items()
    ]
    return next((form for form in forms if form[0].exists()), None)


def _digits(split: Split, name: str) -> ImageArray:
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = _part(len(digits.target), split)
    grey = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8))[chosen]
    labels = torch.from_numpy(digits.target.astype(np.int64))[chosen]
    images = grey[:, None].expand(-1, 3, -1, -1).contiguous()
    return ImageArray(images, labels, tuple(str(word) for word in digits.target_names), name)


def as_images(given: Any, size: int) -> ImageSet:
    """Returns a set of images from a set, bytes [n, 3, H, W], or a list of files, which are resized and cropped to ``size``.

    An unreadable file, or anything else, raises a `TempplugError`.
    """
    if isinstance(given, ImageArray | ImageFiles):
        return given
    if isinstance(given, Tensor):
        return ImageArray(given, None, (), "given")
    if not isinstance(given, list | tuple) or not given or not all(isinstance(each, str | Path) for each in given):
        raise DataError(f"images must be a list of files, bytes [n, 3, H, W] or an image set, not {type(given).__name__}.")
    return ImageFiles(EncodedSet(FileList(tuple(map(str, given))), None, (), "given"), size, replaced=False)


def tables_of(images: ImageSet) -> tuple[Assigned, ...]:
    """Returns the tables that name the images of a set or their classes."""
    return images.encoded.tables if isinstance(images, ImageFiles) else ()


def notes_of(images: ImageSet) -> str:
    """Returns what is left out of a set, each with a comma before."""
    return "".join(f", {note}" for note in images.encoded.notes) if isinstance(images, ImageFiles) else ""


def find_images(
    word: str, size: int, load: Callable[[], ImageSet]
) -> tuple[ImageSet, list[str] | None, dict[str, list[Any]], tuple[str, ...]]:
    """Returns the images of a word on a command line, without those that cannot be read.

    Args:
        word: an image file; a folder of image files, at any depth; or what ``load`` reads: a folder with ``train`` and
            ``test``, a table or a tar of images, or the name of a data set.
        size: see `as_images`.
        load: reads a data set.

    Returns:
        The images; their files where they have any; further columns, ``id`` where a table has it; and what is left out.

    Raises:
        TempplugError: there are no such images.
    """
    place = Path(word)
    notes: tuple[str, ...] = ()
    if place.is_dir() and not any(split_folders(place).values()) and len(tables := table_files(place)) < 2:
        listing = image_files(place)
        if not listing.images and not tables:
            raise ConfigError(f"{word} has no image files, such as .jpg or .png.")
        files, notes = listing.images, listing.notes() if listing.images else ()
    else:
        files = [word] if place.is_file() and is_image(word) else []
    images = ImageFiles(EncodedSet(FileList(tuple(files)), None, (), word), size) if files else load()
    if not isinstance(images, ImageFiles):
        return images, None, {}, ()
    readable, faults = images.readable()
    if faults:
        notes = (*notes, left_out(images.encoded, faults))
    encoded, ids = readable.encoded, {}
    for assigned in (each for each in encoded.tables if "id" in each):
        values = list(assigned.table.values(assigned.column("id")))
        ids["id"] = [values[encoded.row(position)] for position in range(len(encoded))]
    return readable, [encoded.file_name(position) for position in range(len(encoded))], ids, (*encoded.notes, *notes)
