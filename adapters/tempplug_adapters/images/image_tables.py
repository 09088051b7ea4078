"""Images in tables: data sets of the Hugging Face hub at pinned revisions, and parquet files as the hub writes them.

Both are read with `datasets`, which runs no code of a data set; it keeps a copy of a table in its cache, from which a row is
read when it is used. Images stay encoded here. This module must not know folders of image files.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tempplug.errors import DataError, MissingDependencyError
from tempplug_adapters.images.encoded_set import EncodedSet
from tempplug_adapters.storage.files import one_line


@dataclass(frozen=True)
class HubImages:
    """Where the hub has a data set.

    Attributes:
        repository: of the data set.
        revision: the commit of that repository.
        test: the split that serves as test set.
    """

    repository: str
    revision: str
    test: str


HUB: Final = {
    "cifar10": HubImages("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2", "test"),
    "cifar100": HubImages("uoft-cs/cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", "test"),
    "tiny-imagenet": HubImages("zh-plus/tiny-imagenet", "5a77092c28e51558c5586e9c5eb71a7e17a5e43f", "valid"),
    "imagenet": HubImages("ILSVRC/imagenet-1k", "49e2ee26f3810fb5a7536bbf732a7b07389a47b5", "validation"),
}
"""By the names of `image_data.DATASETS`."""

SPLITS: Final = {"train": ("train",), "test": ("test", "validation", "valid", "val", "dev")}
"""Names that the library may give a split; the first that is there is taken, and of test sets the first that has labels."""


def load_from_hub(dataset: str, split: str, name: str) -> EncodedSet:
    """Returns a data set of the hub, which is downloaded where it is not there yet.

    Args:
        dataset: of `HUB`.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, or has other columns.
    """
    source = HUB[dataset]
    remedy = "Pass the folder that holds it as data_dir (--data-dir or TEMPPLUG_DATA)."
    library = _library(f"{dataset} of the Hugging Face hub", f" {remedy}")
    wanted = source.test if split == "test" else split
    try:
        rows = library.load_dataset(source.repository, revision=source.revision, split=wanted)
    except (OSError, ValueError, library.exceptions.DatasetsError) as error:
        offline = " HF_HUB_OFFLINE is set, which allows no download." if os.environ.get("HF_HUB_OFFLINE") else ""
        raise DataError(
            f"{source.repository} at {source.revision} cannot be loaded from the Hugging Face hub: {error}.{offline} {remedy}"
        ) from error
    return _encoded(rows, library, source.repository, name)


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
            parquet.read_schema(file)  # the library would name none of them
        except (OSError, ArrowException) as error:
            raise DataError(f"{file} cannot be read as parquet: {one_line(error)}") from error
    place = glob.escape(str(path))
    given = {"data_dir": place} if path.is_dir() else {"data_files": {"train": place}}
    try:
        tables = library.load_dataset("parquet", **given)
    except (OSError, ValueError, library.exceptions.DatasetsError) as error:
        # the library's own error says no more than that it failed
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise DataError(f"{path} cannot be read as parquet: {one_line(cause)}") from error
    for word in SPLITS[split]:
        found = _encoded(tables[word], library, path, name) if word in tables else None
        if found and (split == "train" or found.labels is not None):
            return found
    raise DataError(
        f"{path} has no {split} set with labels, only {', '.join(tables)}: a parquet file, or its folder, must be named "
        f"{' or '.join(SPLITS[split])}."
    )


def _encoded(rows: Any, library: Any, where: object, name: str) -> EncodedSet:
    images = [column for column, kind in rows.features.items() if isinstance(kind, library.Image)]
    classes = {column: kind.names for column, kind in rows.features.items() if isinstance(kind, library.ClassLabel)}
    if len(images) != 1 or not classes:
        there = ", ".join(f"{column} ({type(kind).__name__})" for column, kind in rows.features.items())
        raise DataError(f"{where} must have a column of datasets.Image and one of datasets.ClassLabel; it has {there}.")
    label = max(classes, key=lambda column: len(classes[column]))  # the fine one of CIFAR-100's two
    numbers = [-1 if number is None else number for number in rows[label]]
    encoded = rows.select_columns(images).cast_column(images[0], library.Image(decode=False))
    return EncodedSet(
        _Rows(encoded, images[0], str(where)),
        torch.tensor(numbers, dtype=torch.int64) if set(numbers) != {-1} else None,  # a test set whose labels are kept back
        tuple(map(str, classes[label])),
        name,
    )


def _library(what: str, remedy: str = "") -> Any:
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            f"{what} is read with datasets, which is not installed: pip install datasets.{remedy}"
        ) from error
    return datasets


@dataclass(frozen=True)
class _Rows:
    rows: Any
    column: str
    where: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, position: int) -> bytes:
        content: bytes | None = self.rows[position][self.column]["bytes"]
        if content is None:
            raise DataError(f"{self.file_name(position)} holds no bytes.")
        return content

    def file_name(self, position: int) -> str:
        return f"row {position} of {self.where}"
