"""Images in tables: data sets of the Hugging Face hub at pinned revisions, and parquet files as the hub writes them.

Both are read with `datasets`, which runs no code of a data set. Its cache holds a copy of a table, from which rows are read at
each access. Images stay encoded here.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tempplug.errors import DataError, MissingDependencyError
from tempplug_adapters.images.image_set import EncodedSet
from tempplug_adapters.storage.files import one_line

Captions = list[tuple[str, ...]]
"""One or several captions of each image."""
CAPTIONS: Final = ("text", "caption", "captions", "sentences")
"""Possible names of the column of captions; the first that exists is used."""


HUB: Final = {
    "cifar10": ("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2", "test"),
    "cifar100": ("uoft-cs/cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", "test"),
    "tiny-imagenet": ("zh-plus/tiny-imagenet", "5a77092c28e51558c5586e9c5eb71a7e17a5e43f", "valid"),
    "imagenet": ("ILSVRC/imagenet-1k", "49e2ee26f3810fb5a7536bbf732a7b07389a47b5", "validation"),
}
"""Repository, commit and test split, by the names of `image_data.DATASETS`."""

SPLITS: Final = {"train": ("train",), "test": ("test", "validation", "valid", "val", "dev")}
"""Possible names of a split; the first that exists is used, for tests the first with labels."""


def load_from_hub(dataset: str, split: str, name: str) -> EncodedSet:
    """Returns a split (``train`` or ``test``) of a data set in `HUB`, downloading it if necessary.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, or has other columns.
    """
    repository, revision, test = HUB[dataset]
    remedy = " Pass the folder that holds it as data_dir (--data-dir or TEMPPLUG_DATA)."
    library = _library(f"{dataset} of the Hugging Face hub", remedy)
    what = f"{repository} at {revision} cannot be loaded from the Hugging Face hub"
    rows = _loaded(library, what, remedy, repository, revision=revision, split=test if split == "test" else split)
    return _encoded(rows, library, repository, name)


def load_parquet(path: Path, split: str, name: str) -> EncodedSet:
    """Returns one split of parquet files that `datasets` wrote: a column of encoded images, and one of classes with names.

    Args:
        path: folder with a file or more for each split, whose path names it (``data/train-00000-of-00001.parquet``); or one
            file, which is a training set.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: a file is damaged, the split is missing, or there are no such columns.
    """
    library = _library(str(path))
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        try:
            parquet.read_schema(file)  # the library's own error names no file
        except (OSError, ArrowException) as error:
            raise DataError(f"{file} cannot be read as parquet: {one_line(error)}") from error
    place = glob.escape(str(path))
    given = {"data_dir": place} if path.is_dir() else {"data_files": {"train": place}}
    tables = _loaded(library, f"{path} cannot be read as parquet", "", "parquet", **given)
    for word in SPLITS[split]:
        found = _encoded(tables[word], library, path, name) if word in tables else None
        if found and (split == "train" or found.labels is not None):
            return found
    raise DataError(
        f"{path} has no {split} set with labels, only {', '.join(tables)}: a parquet file, or its folder, must be named "
        f"{' or '.join(SPLITS[split])}."
    )


def load_captioned(dataset: str, split: str, name: str, column: str | None = None) -> tuple[EncodedSet, Captions] | None:
    """Returns the images of one split with their captions, or None if there is no test set.

    Args:
        dataset: a folder as `datasets` reads it, images with ``metadata.jsonl`` or ``metadata.csv`` (``file_name``, ``text``)
            or parquet files, for each split; or a name on the Hugging Face hub, downloaded if necessary.
        split: ``train`` or ``test``.
        name: of the set.
        column: of the captions, texts or lists of them; None: one of `CAPTIONS`, else the only column of texts.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, has no such columns, or an image without a caption.
    """
    library = _library(dataset)
    place = glob.escape(dataset) if Path(dataset).is_dir() else dataset
    tables = _loaded(library, f"{dataset} cannot be loaded as images with captions", "", place)
    found = next((word for word in SPLITS[split] if word in tables), None)
    if found is None:
        if split == "test":
            return None
        raise DataError(f"{dataset} has no split train, only {', '.join(tables)}.")
    rows = tables[found]
    source = _source(rows, library, dataset)
    texts = [each for each, value in rows[0].items() if isinstance(value, str)]
    wanted = [column] if column else [each for each in CAPTIONS if each in rows.features] or (texts if len(texts) == 1 else [])
    if source is None or not wanted or wanted[0] not in rows.features:
        raise DataError(
            f"{dataset} must have a column of images and one of captions{f' named {column}' if column else ''}; it has "
            f"{', '.join(rows.features)}."
        )
    captions = [(text,) if isinstance(text, str) else tuple(text or ()) for text in rows[wanted[0]]]
    if (bare := next((row for row, texts in enumerate(captions) if not all(texts) or not texts), None)) is not None:
        raise DataError(f"row {bare} of {dataset} {found} has no caption in column {wanted[0]}.")
    return EncodedSet(source, None, (), name), captions


def _source(rows: Any, library: Any, where: object) -> _Rows | None:
    """Returns the images of a table, not decoded; None unless one column has images."""
    images = [column for column, kind in rows.features.items() if isinstance(kind, library.Image)]
    if len(images) != 1:
        return None
    return _Rows(rows.select_columns(images).cast_column(images[0], library.Image(decode=False)), images[0], str(where))


def _encoded(rows: Any, library: Any, where: object, name: str) -> EncodedSet:
    source = _source(rows, library, where)
    classes = {column: kind.names for column, kind in rows.features.items() if isinstance(kind, library.ClassLabel)}
    if source is None or not classes:
        there = ", ".join(f"{column} ({type(kind).__name__})" for column, kind in rows.features.items())
        raise DataError(f"{where} must have a column of datasets.Image and one of datasets.ClassLabel; it has {there}.")
    label = max(classes, key=lambda column: len(classes[column]))  # the fine one of CIFAR-100's two
    numbers = [-1 if number is None else number for number in rows[label]]
    return EncodedSet(
        source,
        torch.tensor(numbers, dtype=torch.int64) if set(numbers) != {-1} else None,  # a test set without published labels
        tuple(map(str, classes[label])),
        name,
    )


def _loaded(library: Any, what: str, remedy: str, source: str, **given: Any) -> Any:
    """Returns the loaded data; errors begin with ``what``."""
    try:
        return library.load_dataset(source, **given)
    except (OSError, ValueError, library.exceptions.DatasetsError) as error:
        # the library's own error often has no details
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        local = source == "parquet" or Path(source).exists()
        offline = " HF_HUB_OFFLINE is set, which allows no download." if os.environ.get("HF_HUB_OFFLINE") and not local else ""
        raise DataError(f"{what}: {one_line(cause)}{offline}{remedy}") from error


def _library(what: str, remedy: str = "") -> Any:
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(f"{what} needs datasets, which is missing: pip install datasets.{remedy}") from error
    return datasets


@dataclass(frozen=True)
class _Rows:
    rows: Any
    column: str
    where: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, position: int) -> bytes:
        stored = self.rows[position][self.column] or {}
        content: bytes | None = stored.get("bytes")
        if content is None and (path := Path(stored.get("path") or "")).is_file():
            return path.read_bytes()
        if content is None:
            raise DataError(f"{self.file_name(position)} holds no bytes.")
        return content

    def file_name(self, position: int) -> str:
        return f"row {position} of {self.where}"
