"""Image files on disk: folders of classes, with the splits train and test beside each other, or without.

`datasets` reads such folders too ("imagefolder"), but lists 20,000 files in 14 s instead of 0.1 s, takes the innermost folder
as the class, and stops at a missing or damaged file. This module must not depend on data sets.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import torch
from PIL import Image

from tempplug.errors import DataError
from tempplug_adapters.images.decoding import FORMATS, SUFFIXES, UndecodableImageError
from tempplug_adapters.images.image_set import EncodedSet

SPLITS: Final = {"train": ("train", "training"), "test": ("test", "testing", "validation", "valid", "val", "dev", "eval")}
"""Words in the names of folders or files of a split, in upper or lower case; the first that has classes is used."""
_SPLIT: Final = re.compile(rf"(?<![a-z])({'|'.join(SPLITS['train'] + SPLITS['test'])})(?![a-z])")


def split_word(path: str) -> str:
    """Returns the last word of `SPLITS` in a path, or an empty text.

    >>> split_word("Train/part-2.tar"), split_word("train/test-00.tar"), split_word("trains.tar")
    ('train', 'test', '')
    """
    words: list[str] = _SPLIT.findall(path.lower())
    return words[-1] if words else ""


def list_split(folder: Path, split: str, name: str) -> EncodedSet:
    """Returns the image files of one split of a folder that has a folder for each.

    Training images may have no classes: those in ``train`` alone, or, in a folder without splits, all at any depth. The classes
    are those of all splits, so that a label means the same in each. A warning names classes of the test set that have images
    but no training folder, for example because of a differently written name.

    Args:
        folder: holds ``train`` and ``test`` or ``val``, see `SPLITS`, each with a folder for each class.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        DataError: the split's folder does not exist or has no images or, for tests, no class folder; or it is not clear whether
            a folder is a split or a class; or one cannot be read.
    """
    places = split_folders(folder)
    if not places[split]:
        bare = _without_classes(folder, places) if split == "train" else None
        if bare is not None and (listing := image_files(bare)).images:
            return EncodedSet(FileList(tuple(listing.images)), None, (), name, notes=listing.notes())
        alone = ", or images alone, to train without classes" if split == "train" else ""
        words = "train" if split == "train" else "test or val"
        raise DataError(f"{folder} must hold a folder {words} that has a folder of images for each class{alone}.")
    classes = {word for place in (*places["train"], *places["test"]) for word in subfolders(place)}
    listed = list_folder(places[split][0], name, tuple(sorted(classes)))
    if split == "test" and places["train"]:
        warn_of_classes(listed, name, subfolders(places["train"][0]), str(places["train"][0]))
    return listed


def warn_of_classes(test: EncodedSet, name: str, known: Iterable[str], training: str) -> None:
    """Warns of classes of a test set that ``training`` has no images of."""
    labels = () if test.labels is None else {*test.labels.tolist()}
    if unknown := {test.classes[label] for label in labels} - {*known}:
        listed = ", ".join(f"'{word}'" for word in sorted(unknown))
        warnings.warn(f"'{name}' has images of {listed}, of which {training} has none.", stacklevel=6)


def split_folders(folder: Path) -> dict[str, list[Path]]:
    """Returns the folders of each split that have class folders, in the order of `SPLITS`.

    Raises:
        DataError: a folder is unreadable, two are the same split, or one split lies beside other folders of images, so that it
            may be a class.
    """
    children = subfolders(folder) if _is_folder(folder) else []
    with_classes = [child for child in children if split_word(child) and subfolders(folder / child)]
    places = {
        split: [folder / child for word in words for child in with_classes if split_word(child) == word]
        for split, words in SPLITS.items()
    }
    names = [split_word(place.name) for place in places["test"]]
    if len(places["train"]) > 1 or len(set(names)) < len(names):
        same = places["train"] if len(places["train"]) > 1 else places["test"]
        raise DataError(f"{folder} has {' and '.join(place.name for place in same)}, which are one split: join them.")
    if bool(places["train"]) != bool(places["test"]):
        others = [child for child in children if not split_word(child) and image_files(folder / child).images]
        if others:
            raise _unclear(folder, (places["train"] or places["test"])[0].name, others)
    return places


def _without_classes(folder: Path, places: dict[str, list[Path]]) -> Path | None:
    """Returns the folder of training images without classes: ``train``; or all, where it is a class or there is none."""
    children = subfolders(folder)
    named = [child for child in children if split_word(child)]
    training = [folder / child for child in named if split_word(child) in SPLITS["train"]]
    others = [child for child in children if child not in named and named and image_files(folder / child).images]
    if others and training and len(named) > 1:
        raise _unclear(folder, training[0].name, others)
    if not named or (others and not places["test"]):
        return folder
    return training[0] if training else None


def _unclear(folder: Path, word: str, others: Sequence[str]) -> DataError:
    remedy = f"if '{word}' is a split, move the others out of the folder; if all are classes, put them into {folder / 'train'}"
    return DataError(f"{folder} has images in '{word}' and in {', '.join(map(repr, others[:5]))}: {remedy}.")


def list_folder(folder: Path, name: str, classes: tuple[str, ...] | None = None) -> EncodedSet:
    """Returns the image files of a folder that has a folder for each class.

    Files are found at any depth below their class, also behind links to folders, in the order of their paths. Hidden files are
    skipped, and files that are no images are counted.

    Args:
        folder: of the class folders.
        name: of the set.
        classes: names of the class folders; None: those that exist, sorted.

    Raises:
        DataError: the folder does not exist or has no class folder with images, or a folder cannot be read.
    """
    if not _is_folder(folder):
        raise DataError(f"{folder} does not exist or is not a folder: it must hold a folder of image files for each class.")
    classes = classes or tuple(subfolders(folder))
    by_class = [image_files(folder / word) if _is_folder(folder / word) else Listing([], []) for word in classes]
    if not any(listing.images for listing in by_class):
        raise DataError(f"{folder} must hold a folder for each class with images in it, such as .jpg or .png.")
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(listing.images) for listing in by_class]))
    outside = [entry.path for entry in os.scandir(folder) if entry.is_file() and not entry.name.startswith(".")]
    every = Listing([path for each in by_class for path in each.images], [path for each in by_class for path in each.others])
    return EncodedSet(FileList(tuple(every.images)), labels, classes, name, notes=every.notes(outside))


def subfolders(folder: Path) -> list[str]:
    """Returns the names of the folders in a folder, sorted, without the hidden ones; `DataError` if it is unreadable."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise _unreadable(error) from error


class Listing(NamedTuple):
    """The paths of the files of a folder: images, and others."""

    images: list[str]
    others: list[str]

    def notes(self, outside: Sequence[str] = ()) -> tuple[str, ...]:
        """Returns what is left out; ``outside`` are files beside the class folders."""
        listed = ((self.others, "that are no images"), (outside, "outside of the class folders"))
        return tuple(f"left out: {len(files)} file(s) {what}, such as {min(files)}" for files, what in listed if files)


def image_files(folder: Path) -> Listing:
    """Returns the files in a folder and below it, sorted, but for hidden ones and hidden folders.

    An image has a suffix of `SUFFIXES`, or none and the content of an image. Links to folders are followed, to each folder once
    and never to a folder above this one. `DataError` if one is unreadable.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    listing = Listing([], [])
    seen = {str(above) for above in Path(os.path.realpath(folder)).parents}
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(word for word in folders if not word.startswith("."))
        for word in names:
            if not word.startswith("."):
                listing[not is_image(path := f"{place}/{word}")].append(path)
    return Listing(sorted(listing.images), sorted(listing.others))


def is_image(path: str) -> bool:
    """Returns whether a file is an image by its suffix or, without one, by its content."""
    name, _, ending = path.rpartition("/")[2].rpartition(".")
    if name:
        return f".{ending.lower()}" in SUFFIXES
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS):
            return True
    except Exception:  # Pillow does not document which errors its readers raise
        return False


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

    def files(self, positions: Iterable[int]) -> dict[str, Path]:
        """Returns the files at some positions by their path below the folder that contains all of them."""
        places = [os.path.split(self.paths[position]) for position in positions]
        folders = {folder: str(Path(folder).resolve()) for folder in {folder for folder, _ in places}}
        root = os.path.commonpath(folders.values())
        prefixes = {folder: "" if path == root else f"{os.path.relpath(path, root)}/" for folder, path in folders.items()}
        return {f"{prefixes[folder]}{name}": Path(folder, name) for folder, name in places}
