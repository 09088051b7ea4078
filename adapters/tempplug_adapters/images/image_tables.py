"""Images in tables: data sets of the Hugging Face hub at pinned revisions, and parquet files as the hub writes them.

Both are read with `datasets`, which runs no code of a data set. Its cache holds a copy of a table, from which rows are read at
each access. Images stay encoded here. A table of paths and captions, as open_clip trains on, names files on disk.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tempplug.errors import DataError, MissingDependencyError, quoted
from tempplug_adapters.data_files.roles import TEXT, TEXTS, Assigned, Role, assign
from tempplug_adapters.data_files.tables import Table, numbered, open_table
from tempplug_adapters.data_files.text_roles import GROUP, ID, LABEL, texts_of
from tempplug_adapters.images.class_folders import FileList, caption_of, read_shards, shards_of
from tempplug_adapters.images.image_set import EncodedSet
from tempplug_adapters.storage.files import one_line

Captions = list[tuple[str, ...]]
"""One or several captions of each image."""
CAPTIONS: Final = ("text", "caption", "captions", "sentences", "txt", "title")
"""Possible names of the column of captions, or of their ending in a webdataset; the first that exists is used."""
_PATH: Final = Role("image", (TEXT,), ("filepath", "file_name", "image_path", "path", "image"))
_CAPTIONED: Final = (Role("caption", (TEXT, TEXTS), CAPTIONS, flag="--caption-column"), ID, LABEL, GROUP)
"""Roles of a table of paths and captions, and of other tables of images."""
TABLES: Final = (".csv", ".tsv", ".jsonl")
"""Suffixes of these tables."""


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


def load_captioned(
    dataset: str, split: str, name: str, column: str | None = None
) -> tuple[EncodedSet, Captions, Assigned | None] | None:
    """Returns the images of one split with their captions and the columns of their table, or None if there is no test set.

    Args:
        dataset: a folder as `datasets` reads it, images with ``metadata.jsonl`` or ``metadata.csv`` (``file_name``, ``text``),
            parquet files, or the tars of a webdataset, for each split; one tar, which is a training set; a table of paths and
            captions, ``.csv`` or ``.tsv``, with commas or tabs (``filepath``, ``title``), which is one, too, or a folder with
            ``train.csv`` and ``test.csv``; or a name on the Hugging Face hub, downloaded if necessary.
        split: ``train`` or ``test``.
        name: of the set.
        column: of the captions, texts or lists of them; None: that with a name of `CAPTIONS`, else the only one of texts.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, has no such columns, or an image without a caption.
    """
    path = Path(dataset)
    if (table := table_of_paths(path, split)) is not None:
        return _read_paths(table, name, column)
    if path.suffix in TABLES and path.is_file():
        return None
    if tars := [*shards_of(path, "train"), *shards_of(path, "test")]:
        tars = shards_of(path, split)
        return (*_captioned_shards(tars, name, column), None) if tars or split == "train" else None
    library = _library(dataset)
    place = glob.escape(dataset) if path.is_dir() else dataset
    tables = _loaded(library, f"{dataset} cannot be loaded as images with captions", "", place)
    found = next((word for word in SPLITS[split] if word in tables), None)
    if found is None:
        if split == "test":
            return None
        raise DataError(f"{dataset} has no split train, only {', '.join(tables)}.")
    rows = tables[found]
    source = _source(rows, library, dataset)
    if source is None:
        raise DataError(f"{dataset} must have a column of images; it has {', '.join(rows.features)}.")
    texts = Table(f"{dataset} {found}", numbered(rows.remove_columns(source.column).with_format("arrow")[:]))
    assigned = assign(texts, _CAPTIONED, [f"caption={column}"] if column else [])
    captions = [tuple(texts_of(value)) for value in texts.values(assigned.column("caption"))]
    if (bare := next((row for row, each in enumerate(captions) if not each), None)) is not None:
        raise DataError(f"row {bare} of {dataset} {found} has no caption in column {assigned.column('caption')}.")
    return EncodedSet(source, None, (), name), captions, assigned


def _captioned_shards(tars: list[Path], name: str, column: str | None) -> tuple[EncodedSet, Captions]:
    known = (column,) if column else CAPTIONS
    encoded, samples = read_shards(tars, name, (*known, "json"))
    source: Any = encoded.source
    return encoded, [(caption_of(source, place, texts, known),) for place, texts in enumerate(samples)]


def table_of_paths(path: Path, split: str) -> Path | None:
    """Returns the table of paths and captions of a split, if there is one."""
    if path.suffix in TABLES and path.is_file():
        return path if split == "train" else None
    named = (path / f"{word}{ending}" for word in SPLITS[split] for ending in TABLES)
    return next((each for each in named if each.is_file()), None)


def _read_paths(file: Path, name: str, column: str | None) -> tuple[EncodedSet, Captions, Assigned]:
    """Returns the images that a table names, each with all captions of its rows."""
    table = open_table(file)
    assigned = assign(table, (_PATH, *_CAPTIONED), [f"caption={column}"] if column else [])
    rows = zip(*(table.values(assigned.column(role)) for role in ("image", "caption")), strict=True)
    captions: dict[str, list[str]] = {}
    for row, texts in enumerate(rows):
        for role, value in zip(("image", "caption"), texts, strict=True):
            if value is None:
                raise DataError(f"{table.place(row)}: column {quoted(assigned.column(role))} is empty.")
        captions.setdefault(texts[0], []).extend(texts_of(texts[1]))
    if not captions:
        raise DataError(f"{file} holds no rows, only a header.")
    first = next(iter(captions))
    folder = next((each for each in (file.parent, Path()) if (each / first).is_file()), None)
    if folder is None:
        raise DataError(
            f"{table.place(0)}: the image {quoted(first)} does not exist, neither in {file.parent} nor in the working "
            "directory: paths must be absolute, or begin at one of these."
        )
    files = FileList(tuple(str(folder / each) for each in captions))
    return EncodedSet(files, None, (), name), [tuple(each) for each in captions.values()], assigned


def _source(rows: Any, library: Any, where: object) -> Rows | None:
    """Returns the images of a table, not decoded; None unless one column has images."""
    images = [column for column, kind in rows.features.items() if isinstance(kind, library.Image)]
    if len(images) != 1:
        return None
    encoded = rows.select_columns(images).cast_column(images[0], library.Image(decode=False))
    return Rows(encoded, images[0], str(where), rows._fingerprint)


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
class Rows:
    """Images in a table of `datasets`.

    Attributes:
        rows: the table.
        column: its column of images.
        where: its name in messages.
        fingerprint: of the table, by `datasets`; that of a data set on the hub depends on its commit.
    """

    rows: Any
    column: str
    where: str
    fingerprint: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, position: int) -> bytes:
        """Returns the bytes of an image."""
        stored = self.rows[position][self.column] or {}
        content: bytes | None = stored.get("bytes")
        if content is None and (path := Path(stored.get("path") or "")).is_file():
            return path.read_bytes()
        if content is None:
            raise DataError(f"{self.file_name(position)} holds no bytes.")
        return content

    def file_name(self, position: int) -> str:
        """Returns the place of an image, for messages."""
        return f"row {position} of {self.where}"
