"""Folders of image files: one folder for each class, and the splits train and test beside each other; or without classes.

`datasets` reads such folders too ("imagefolder"), but lists 20,000 files in 14 s instead of 0.1 s, takes the innermost folder
as the class, and stops at a missing or damaged file. This module must not depend on data sets or pixels.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from tempplug.errors import DataError
from tempplug_adapters.images.image_decoding import UndecodableImageError
from tempplug_adapters.images.image_set import EncodedSet

SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Suffixes of image files, in lower case; files may have upper case."""

SPLITS: Final = {"train": ("train",), "test": ("test", "val")}
"""Possible names of a split's folder; the first that exists and has class folders is used."""


def list_split(folder: Path, split: str, name: str) -> EncodedSet:
    """Returns the image files of one split of a folder that has a folder for each.

    Training images may have no classes: those in ``train`` alone, or, in a folder without splits, all at any depth. The classes
    are those of all splits, so that a label means the same in each. A warning names classes of the test set that have images
    but no training folder, for example because of a differently written name.

    Args:
        folder: holds ``train`` and ``test`` or ``val``, each with a folder for each class.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        DataError: the split's folder does not exist or has no images or, for tests, no class folder; or one cannot be read.
    """
    there = split_folders(folder)
    wanted = next((place for place in there if place.name in SPLITS[split]), None)
    if wanted is None:
        places = [folder / word for words in SPLITS.values() for word in words]
        bare = folder / "train" if _is_folder(folder / "train") else folder if not any(map(_is_folder, places)) else None
        if split == "train" and bare is not None and (files := image_files(bare)):
            return EncodedSet(FileList(tuple(files)), None, (), name)
        alone = ", or images alone, to train without classes" if split == "train" else ""
        raise DataError(
            f"{folder} must hold a folder {' or '.join(SPLITS[split])} that has a folder of images for each class{alone}."
        )
    found = list_folder(wanted, name, tuple(sorted({word for place in there for word in class_folders(place)})))
    training = next((place for place in there if place.name in SPLITS["train"]), None)
    if training is not None and training != wanted and found.labels is not None:
        unknown = {found.classes[label] for label in set(found.labels.tolist())} - set(class_folders(training))
        if unknown:
            listed = ", ".join(f"'{word}'" for word in sorted(unknown))
            warnings.warn(f"'{name}' has images of {listed}, for which {training} has no folder.", stacklevel=5)
    return found


def split_folders(folder: Path) -> list[Path]:
    """Returns the split folders that have class folders; `DataError` if a folder is unreadable."""
    places = [folder / word for words in SPLITS.values() for word in words]
    return [place for place in places if _is_folder(place) and class_folders(place)]


def list_folder(folder: Path, name: str, classes: tuple[str, ...] | None = None) -> EncodedSet:
    """Returns the image files of a folder that has a folder for each class.

    Files are found at any depth below their class, also behind links to folders, in the order of their paths. Hidden files and
    files with other suffixes are skipped.

    Args:
        folder: of the class folders.
        name: of the set.
        classes: names of the class folders; None: those that exist, sorted.

    Raises:
        DataError: the folder does not exist or has no class folder with images, or a folder cannot be read.
    """
    if not _is_folder(folder):
        raise DataError(f"{folder} does not exist or is not a folder: it must hold a folder of image files for each class.")
    classes = classes or tuple(class_folders(folder))
    found = {word: image_files(folder / word) if _is_folder(folder / word) else [] for word in classes}
    if not any(found.values()):
        raise DataError(
            f"{folder} must hold a folder for each class with images in it, files that end in {', '.join(sorted(SUFFIXES))}."
        )
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(files) for files in found.values()]))
    return EncodedSet(FileList(tuple(path for files in found.values() for path in files)), labels, classes, name)


def class_folders(folder: Path) -> list[str]:
    """Returns the names of the folders in a folder, sorted, without the hidden ones; `DataError` if it is unreadable."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise _unreadable(error) from error


def image_files(folder: Path) -> list[str]:
    """Returns the paths of the image files in a folder and below it, sorted, but for hidden ones and hidden folders.

    Links to folders are followed, to each folder once and never to a folder above this one.

    Raises:
        DataError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    found: list[str] = []
    seen = {str(above) for above in Path(os.path.realpath(folder)).parents}
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(word for word in folders if not word.startswith("."))
        found += [f"{place}/{word}" for word in names if Path(word).suffix.lower() in SUFFIXES and not word.startswith(".")]
    return sorted(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> DataError:
    return DataError(f"{error.filename} cannot be read: {error.strerror}.")


@dataclass(frozen=True)
class FileList:
    """Image files on disk, by path."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, position: int) -> bytes:
        """Returns the whole file; `UndecodableImageError` if it is missing or locked, `DataError` if the disk fails."""
        try:
            return Path(self.paths[position]).read_bytes()
        except (FileNotFoundError, PermissionError) as error:
            raise UndecodableImageError(f"{self.paths[position]} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise DataError(f"{self.paths[position]} cannot be read: {error}") from error

    def file_name(self, position: int) -> str:
        """Returns its path."""
        return self.paths[position]
