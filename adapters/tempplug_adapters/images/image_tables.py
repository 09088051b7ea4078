"""Tables of images: parquet or Arrow with the images themselves, tables of their paths, tars, and data sets of the hub.

A table has the roles of `ROLES`. Its images stay encoded. The classes of a data set have one numbering, made from all of its
files: the names that they declare, then the other labels in their order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch

from tempplug.errors import ConfigError, DataError, MissingDependencyError, install_command, quoted
from tempplug_adapters.data_files.roles import ANY, CATEGORY, IMAGE, MISSING, NUMBER, TEXT, Assigned, Role, assign
from tempplug_adapters.data_files.table_blocks import ARROW, JSON_LINES
from tempplug_adapters.data_files.tables import Table, numbered, open_table
from tempplug_adapters.data_files.text_roles import GROUP, ID
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.images.class_folders import SPLITS, FileList, split_word, warn_of_classes
from tempplug_adapters.images.image_set import EncodedSet, ImageSource
from tempplug_adapters.images.image_shards import KEY, SHARDS, read_shards
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.fingerprint import files_below

_LABELS: Final = ("label", "labels", "class", "cls", "class_name", "label_name", "fine_label", "target", "category", "y")
_LABEL: Final = Role("label", (*ANY, IMAGE), _LABELS, required=False)  # texts as bytes look like images
ROLES: Final = (
    Role("image", (IMAGE, TEXT), ("image", "img", "filepath", "file_name", "image_path", "path", "file", "photo", "picture")),
    _LABEL,
    Role("split", (TEXT, CATEGORY), ("split", "subset", "partition"), required=False),
    replace(ID, names=(*ID.names, KEY)),
    replace(GROUP, names=(*GROUP.names, "caption", "text", "title")),
)
"""Of a table of images."""
Named = tuple[Table, Mapping[str, Sequence[str]]]
"""A table, and the names of the classes that it declares, by column."""
_TEXT_TABLES: Final = (".csv", ".tsv", *JSON_LINES)
_TRIED: Final = 100
"""Images of a table of paths that are looked for."""


HUB: Final = {
    "cifar10": ("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2", "test"),
    "cifar100": ("uoft-cs/cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", "test"),
    "tiny-imagenet": ("zh-plus/tiny-imagenet", "5a77092c28e51558c5586e9c5eb71a7e17a5e43f", "valid"),
    "imagenet": ("ILSVRC/imagenet-1k", "49e2ee26f3810fb5a7536bbf732a7b07389a47b5", "validation"),
}
"""Repository, commit and test split, by the names of `image_data.DATASETS`."""


def load_from_hub(dataset: str, split: str, name: str) -> EncodedSet:
    """Returns a split (``train`` or ``test``) of a data set in `HUB`, downloading it if necessary.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, or has other columns.
    """
    repository, revision, test = HUB[dataset]
    remedy = " Pass the folder that holds it as data_dir (--data-dir or TEMPPLUG_DATA)."
    what = f"{repository} at {revision} cannot be loaded from the Hugging Face hub"
    rows = _loaded(repository, what, remedy, revision=revision, split=test if split == "test" else split)
    return _numbered(_splits_of([_of_hub(rows, repository)], "train", ROLES, ()), "train", name)


def read_split(
    dataset: str, split: str, name: str, columns: Sequence[str] = (), roles: Sequence[Role] = ROLES
) -> EncodedSet | None:
    """Returns the images of one split; None if captions are read and there is no test set.

    Args:
        dataset: a table of images or of their paths, a tar, or a folder with some of them, see `table_files`; or a name on the
            Hugging Face hub, downloaded if necessary. A table is a training set, unless its name, a column, or the first folder
            of all paths says otherwise.
        split: ``train`` or ``test``.
        name: of the set.
        columns: ``role=column``; others are found by their names.
        roles: to read. With ``caption`` among them, images need no labels.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: a file is damaged, the split is missing, or labels are incomplete or differ in kind.
        ConfigError: it is not clear which column is what.
    """
    path, captioned = Path(dataset), roles[0].name == "caption"
    if path.exists():
        files = tuple((word, tuple(group)) for word, group in table_files(path).items())
        changed = tuple((each.stat().st_size, each.stat().st_mtime_ns) for _, group in files for each in group)
        sets = _read_files(files, changed, tuple(columns), tuple(roles))
    else:
        sets = {}
        for word, rows in _loaded(dataset, f"{dataset} cannot be loaded as images with captions").items():
            sets |= _splits_of([_of_hub(rows, f"{dataset} {word}")], word, roles, columns)
    for word in SPLITS[split]:
        if word in sets and (captioned or split == "train" or sets[word].labels is not None):
            return _numbered(sets, word, name)
    if captioned and split == "test":
        return None
    labelled, there = " with labels" if split == "test" else "", sorted(sets, key=lambda each: each in SPLITS["test"])
    wanted = f"named {' or '.join(SPLITS[split])}, or a column split must say so (tempplug embed: --split train)"
    raise DataError(f"{path} has no {split} set{labelled}, only {', '.join(there)}: a file, or its folder, must be {wanted}.")


def table_files(path: Path) -> dict[str, list[Path]]:
    """Returns the files with the images of each split, by the split's name, which is empty where no file says it.

    Args:
        path: a file; a folder that `datasets` saved; or a folder with, in this order, tars, tables of paths
            (``train.csv``, or ``metadata.csv``, also in the folders of the splits), or parquet and Arrow files.

    Raises:
        DataError: some files belong to no split, while others do.
    """
    if path.is_file():
        return {"": [path]} if file_kind(path) in (*SHARDS, *_TEXT_TABLES, ".json", ".parquet", *ARROW) else {}
    if (path / "dataset_dict.json").is_file():
        return {word: [path] for word in json.loads((path / "dataset_dict.json").read_text())["splits"]}
    if (path / "state.json").is_file():
        return {"": [path]}
    groups: dict[str, list[Path]] = {}
    files = files_below(path, {*SHARDS, *_TEXT_TABLES, ".parquet", *ARROW, ".gz"}) if path.is_dir() else {}
    for kinds in (SHARDS, _TEXT_TABLES, (".parquet", *ARROW)):
        for name, file in files.items() if not groups else ():
            named = file.name.lower().startswith("metadata.") or (split_word(name) and "/" not in name)
            if file_kind(file) in kinds and (named or kinds != _TEXT_TABLES):
                groups.setdefault(split_word(name), []).append(file)
    if "" in groups and "train" in groups:
        raise DataError(f"{groups[''][0]} belongs to no split: name it {' or '.join(SPLITS)}, or move it away.")
    return {"train" if len(groups) > 1 and not word else word: files for word, files in groups.items()}


@lru_cache(maxsize=2)  # training and test set are read one after the other, each with the classes of both
def _read_files(
    files: tuple[tuple[str, tuple[Path, ...]], ...], changed: object, columns: tuple[str, ...], roles: tuple[Role, ...]
) -> dict[str, EncodedSet]:
    """Returns the images of each split by its name; ``changed`` differs if the files have."""
    sets: dict[str, EncodedSet] = {}
    for word, group in files:
        if file_kind(group[0]) in SHARDS:
            source, table = read_shards(group, {name for role in roles for name in role.names} | {"txt"})
            own = _splits_of([(table, {})], word, roles, columns, source)
        else:
            own = _splits_of([_with_names(open_table(file, split=word or "train")) for file in group], word, roles, columns)
        if twice := sets.keys() & own:
            raise DataError(f"{group[0]} has rows of the split '{twice.pop()}', as another file has: leave one.")
        sets |= own
    return sets


def _with_names(table: Table) -> Named:
    """Returns a table with the names of classes that `datasets` numbers, where -1 is missing, and all names by column."""
    features = json.loads(table.metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    columns = {name: table.column(name) for name in table.names}
    declared = {}
    for column, feature in features.items():
        if column in columns and isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            declared[column] = tuple(map(str, feature["names"]))
            numbers = columns[column]
            positions = pc.if_else(pc.equal(numbers, -1), pa.scalar(None, numbers.type), numbers)
            try:
                columns[column] = pc.take(pa.array(declared[column], pa.string()), positions)
            except (pa.ArrowException, IndexError) as error:
                raise DataError(f"{table.path}: column {quoted(column)} has numbers beyond its classes.") from error
    return (Table(table.path, numbered(pa.table(columns, metadata=table.metadata))) if declared else table), declared


def _splits_of(
    opened: Sequence[Named], word: str, roles: Sequence[Role], columns: Sequence[str], source: ImageSource | None = None
) -> dict[str, EncodedSet]:
    """Returns the images of tables by split, which is ``word`` where their rows say nothing else.

    Args:
        opened: tables, which are joined, with names of classes by column.
        word: name of the split.
        roles: to read.
        columns: as given.
        source: the images of tars, one a row; otherwise they are in the table, or it has their paths.
    """
    table = opened[0][0] if len(opened) == 1 else _joined([table for table, _ in opened])
    declared = {name: [label for _, names in opened for label in names.get(name, ())] for name in opened[0][1]}
    assigned = _assigned(table, declared, [role for role in roles if role.name != "image" or source is None], columns)
    kept = np.ones(len(table), bool)
    if source is None:
        column = assigned.column("image")
        kept = ~table.is_missing(column)
        source = Rows(table, column) if table.kind(column) == IMAGE else _paths(table, column)
    left = f"left out: {(~kept).sum():,} of {len(table):,} rows have no image, {table.place(int(kept.argmin()))} first"
    splits = np.array(_row_splits(assigned, source, word))
    names = declared.get(assigned.column("label"), []) if "label" in assigned else []
    sets = {}
    for each in np.unique(splits).tolist():
        rows = np.flatnonzero(kept & (splits == each)).tolist()
        labels = _labels(assigned, rows) if "label" in assigned else None
        others = {*(labels or ())} - {*names}
        classes = dict.fromkeys((*names, *sorted(others, key=int if all(map(str.isdecimal, others)) else None)))
        numbers = {label: number for number, label in enumerate(classes)}
        tensor = None if labels is None else torch.tensor([numbers[label] for label in labels], dtype=torch.int64)
        sets[each] = EncodedSet(source, tensor, tuple(classes), each, tuple(rows), (assigned,), () if kept.all() else (left,))
    return sets


def _joined(tables: Sequence[Table]) -> Table:
    columns = [pa.table({name: table.column(name) for name in table.names}) for table in tables]
    place = os.path.commonpath([table.path for table in tables])
    try:
        return Table(place, numbered(pa.concat_tables(columns, promote_options="permissive")))
    except pa.ArrowException as error:
        raise DataError(f"{place}: {tables[0].path} and others differ in their columns: {one_line(error)}") from error


def _assigned(table: Table, declared: Mapping[str, Sequence[str]], roles: Sequence[Role], columns: Sequence[str]) -> Assigned:
    """Returns the columns by role: as given, the only one of images or of named classes, or by their names."""
    labels = [name for name in declared if table.kind(name) != MISSING]
    pictures = [name for name in table.names if table.kind(name) == IMAGE and not _LABEL.is_usual(name)]
    clear = {"image": pictures, "label": labels}
    if KEY in table.names:  # of a webdataset: texts of their own come before keys of its json
        clear = {role: [name] * (name in table.names) for role, name in (("caption", "txt"), ("label", "cls"))}
    if all("=" in word for word in columns):
        open_roles = {role.name for role in roles} - {word.partition("=")[0] for word in columns}
        columns = [*columns, *(f"{role}={own[0]}" for role, own in clear.items() if role in open_roles and len(own) == 1)]
    assigned = assign(table, roles, columns)
    several = labels or [name for name in table.names if _LABEL.is_usual(name)]
    if "label" not in assigned and "caption" not in assigned and len(several) > 1:
        remedy = f"Choose one: {_LABEL.option(several[0])}. It has: {table.described()}"
        raise ConfigError(f"{table.path}: {' and '.join(map(quoted, several))} could each be the label. {remedy}.")
    return assigned.of({"image", "caption" if "caption" in assigned else "label", "split", "id"})


def _path(value: Any) -> str:
    return (value or "").replace("\\", "/")


def _paths(table: Table, column: str) -> FileList:
    """Returns the files that a table names; relative paths begin at its folder or at the working directory."""
    paths = list(map(_path, table.values(column)))
    tried = [path for path in paths if path][:_TRIED]
    for folder in (Path(table.path).parent, Path()):
        if any((folder / path).is_file() for path in tried):
            return FileList(tuple(str(folder / path) for path in paths))
    row = next((row for row, path in enumerate(paths) if path), 0)
    places = f"neither in {Path(table.path).parent} nor in the working directory"
    remedy = "paths must be absolute, or begin at one of these; addresses on the web are not downloaded"
    raise DataError(f"{table.place(row)}: the image {quoted(paths[row])} does not exist, {places}: {remedy}.")


def _row_splits(assigned: Assigned, source: ImageSource, word: str) -> list[str]:
    """Returns the name of the split of each row, by the column of splits, the file, or the first folder of all paths."""
    table = assigned.table
    if "split" in assigned:
        column = assigned.column("split")
        splits = [split_word(str(value)) for value in table.values(column)]
        if "" in splits:
            place, value = table.place(splits.index("")), table.column(column)[splits.index("")].as_py()
            raise DataError(f"{place}: column {quoted(column)} is {quoted(str(value))}; wanted train, test or validation.")
        return splits
    if not word and isinstance(source, FileList):
        folders = [split_word(_path(value).partition("/")[0]) for value in table.values(assigned.column("image"))]
        if all(folders):
            return folders
    return [word or "train"] * len(table)


def _labels(assigned: Assigned, rows: Sequence[int]) -> list[str] | None:
    """Returns the classes of some rows as texts, None if they have none; raises `DataError` if only some have."""
    table, column = assigned.table, assigned.column("label")
    values, number = list(table.values(column)), table.kind(column) == NUMBER
    labels = [_label(values[row], number) for row in rows]
    if {*labels} <= {"", "-1"}:
        return None
    if lacking := [row for row, label in zip(rows, labels, strict=True) if not label]:
        remedy = "fill them in, or leave these rows out; to train without classes, leave out the column"
        raise DataError(f"{len(lacking):,} of {len(rows):,} rows have no {column}, {table.place(lacking[0])} first: {remedy}.")
    return labels


def _label(value: Any, number: bool) -> str:
    """Returns a label as text: of a number 1.0 its 1, of bytes what they say."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if number and value is not None and float(value).is_integer():
        return str(int(float(value)))
    return "" if value is None else str(value).strip()


def _numbered(sets: Mapping[str, EncodedSet], word: str, name: str) -> EncodedSet:
    """Returns a split whose labels are numbered as those of all.

    Raises:
        DataError: they are numbers in one split, and none of them is in another.
    """
    chosen, named = sets[word], {each: other for each, other in sets.items() if other.classes}
    digits = {each for each, other in named.items() if all(map(str.isdecimal, other.classes))}
    for pair in ((first, second) for first in digits for second in named.keys() - digits):
        first, second = (named[each] for each in pair)
        if not {*first.classes} & {*second.classes}:
            files = [f"{each.tables[0].table.path} (such as '{each.classes[0]}')" for each in (first, second)]
            raise DataError(f"labels are numbers in {files[0]} and words in {files[1]}: write classes alike in both.")
    key = int if len(digits) == len(named) else str
    union = dict.fromkeys(
        label for each in sorted(named, key=lambda each: each in SPLITS["test"]) for label in named[each].classes
    )
    ordered = all([*each.classes] == sorted(each.classes, key=key) for each in named.values())
    classes = tuple(sorted(union, key=key) if ordered else union)
    numbers = torch.tensor([classes.index(label) for label in chosen.classes], dtype=torch.int64)
    training = [label for each in SPLITS["train"] if each in named for label in named[each].classes]
    if word in SPLITS["test"] and training:
        warn_of_classes(chosen, name, training, "the training set")
    return replace(chosen, name=name, classes=classes, labels=None if chosen.labels is None else numbers[chosen.labels])


def _of_hub(rows: Any, where: str) -> Named:
    """Returns the table of a data set that `datasets` has loaded, see `_with_names`."""
    features = json.dumps({"info": {"features": rows.features.to_dict()}}).encode()
    metadata = {b"huggingface": features, b"fingerprint": rows._fingerprint.encode()}
    return _with_names(Table(where, numbered(rows.with_format("arrow")[:].replace_schema_metadata(metadata))))


def _loaded(source: str, what: str, remedy: str = "", **given: Any) -> Any:
    """Returns the loaded data; errors begin with ``what``."""
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            f"{source} needs datasets, which is missing: {install_command('vision')}.{remedy}"
        ) from error
    try:
        return datasets.load_dataset(source, **given)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        # the library's own error often has no details
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        offline = " HF_HUB_OFFLINE is set, which allows no download." if os.environ.get("HF_HUB_OFFLINE") else ""
        raise DataError(f"{what}: {one_line(cause)}{offline}{remedy}") from error


@dataclass(frozen=True, eq=False)
class Rows:
    """Images in a table, as bytes or as `datasets` keeps them."""

    table: Table
    column: str

    def __len__(self) -> int:
        return len(self.table)

    def read(self, position: int) -> bytes:
        """Returns the bytes of an image; `UndecodableImageError` if there are none, nor a file."""
        stored = self.table.column(self.column)[position].as_py()
        if isinstance(stored, dict) and stored["bytes"] is None:
            return FileList((stored["path"] or self.file_name(position),)).read(0)
        content: bytes = stored["bytes"] if isinstance(stored, dict) else stored
        return content

    def file_name(self, position: int) -> str:
        """Returns the place of an image, for messages."""
        return self.table.place(position)
