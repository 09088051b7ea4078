"""Images that a trained encoder is given: files, pixels, a folder of any form, or a data set by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.class_folders import SUFFIXES, FileList, image_files, split_folders
from tempplug_adapters.images.image_set import EncodedSet, ImageArray, ImageFiles, ImageSet


def as_images(given: Any, size: int) -> ImageSet:
    """Returns images given from Python as a set.

    Args:
        given: a set; bytes [n, 3, H, W]; or a list of files.
        size: pixels of each side to which files are resized and cropped; an unreadable one is an error.

    Raises:
        TempplugError: it is of another kind.
    """
    if isinstance(given, ImageArray | ImageFiles):
        return given
    if isinstance(given, Tensor):
        return ImageArray(given, None, (), "given")
    if not isinstance(given, list | tuple) or not given or not all(isinstance(each, str | Path) for each in given):
        raise DataError(f"images must be a list of files, bytes [n, 3, H, W] or an image set, not {type(given).__name__}.")
    return ImageFiles(EncodedSet(FileList(tuple(map(str, given))), None, (), "given"), size, replaced=False)


def find_images(word: str, size: int, load: Callable[[], ImageSet]) -> tuple[ImageSet, list[str] | None]:
    """Returns the images of a word on a command line, and their files where they have any.

    Args:
        word: an image file; a folder of image files, at any depth; or what ``load`` reads: a folder with ``train`` and
            ``test``, a parquet file, or the name of a data set.
        size: see `as_images`.
        load: reads a data set.

    Raises:
        TempplugError: there are no such images.
    """
    place = Path(word)
    files = [word] if place.is_file() and place.suffix.lower() in SUFFIXES else []
    if place.is_dir() and not split_folders(place):
        files = image_files(place)
        if not files and not any(place.rglob("*.parquet")):
            raise ConfigError(f"{word} has no image files, which end in {', '.join(sorted(SUFFIXES))}.")
    if files:
        return as_images(files, size), files
    found = load()
    if isinstance(found, ImageFiles):
        return found, [found.encoded.file_name(position) for position in range(len(found))]
    return found, None
