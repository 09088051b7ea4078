"""Interactions of users with items, read from files: DCRec's own data sets, and any log as a table of user, item and time.

CSV is read by Python's csv module, because faster readers do not report the line of an error.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import gzip
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tempplug.errors import ConfigError, DataError, MissingDependencyError, nearest, quoted
from tempplug_adapters.data_files.archives import read_archived_texts, read_text
from tempplug_adapters.recommendation.recipes import DATASETS


class Sequences(NamedTuple):
    """What users did.

    Attributes:
        histories: the items of each user in order of time, numbered from 1.
        items: their number.
        users: the name of each user.
        names: the name of each item; empty if items are named by their numbers.
    """

    histories: list[NDArray[np.int64]]
    items: int
    users: list[str]
    names: list[str]


_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".inter", ".parquet")
_RECBOLE = {"user": "user_id", "item": "item_id", "time": "timestamp"}
"""RecBole's names of the default columns, which many other tables have, too."""
_HEADER = "session_id:token\titem_id_list:token_seq\titem_id:token"


def load_sequences(dataset: str, data_dir: Path | None, columns: Sequence[str]) -> Sequences:
    """Returns the sequences of a data set.

    Args:
        dataset: one of `DATASETS`; a folder ``NAME`` with ``NAME.inter``, as RecBole has it, or with ``NAME.train.inter`` and
            ``NAME.test.inter``, as DCRec has it; or a table.
        data_dir: folder with ``recsys/NAME.tar.xz``; None without one.
        columns: of a table: user, item, time.

    Raises:
        DataError: it is missing or cannot be read; the message names the line.
        ConfigError: a table lacks a column.
        MissingDependencyError: pyarrow is needed for a Parquet file and not installed.
    """
    files = files_of(dataset, data_dir)
    first = next(iter(files.values()))
    if len(files) == 2:
        return _dcrec_sequences({str(file): read_text(file) for file in files.values()})
    if first.name.endswith(_TABLES):
        return read_log(first, columns)
    names = [f"{dataset}.{split}.inter" for split in ("train", "test")]
    texts = read_archived_texts(first, names)
    return _dcrec_sequences({f"{first}: {name}": texts[name] for name in names})


def files_of(dataset: str, data_dir: Path | None) -> dict[str, Path]:
    """Returns the files that `load_sequences` reads: ``train`` and ``test`` of DCRec, or one; raises like it."""
    path = Path(dataset)
    if path.name.endswith(_TABLES):
        return {"": path}
    if (whole := path / f"{path.resolve().name}.inter").is_file():
        return {"": whole}
    if path.is_dir():
        return {split: path / f"{path.resolve().name}.{split}.inter" for split in ("train", "test")}
    if dataset not in DATASETS:
        wanted = (
            f"wanted {', '.join(DATASETS)}, a folder NAME with NAME.inter or NAME.train.inter and NAME.test.inter, or a table"
        )
        raise DataError(f"no data set {quoted(dataset)}.{nearest(dataset, DATASETS)} {wanted} ({', '.join(_TABLES)}).")
    if data_dir is None:
        raise DataError(f"data set '{dataset}' is read from a folder: name it with --data-dir or TEMPPLUG_DATA.")
    archive = data_dir / "recsys" / f"{dataset}.tar.xz"
    if not archive.is_file():
        raise DataError(f"{archive} does not exist: the data folder must hold '{dataset}' there.")
    return {"": archive}


def _dcrec_sequences(texts: dict[str, str]) -> Sequences:
    """Returns the sequences of DCRec's two files: a user's test row is the whole sequence, the train row omits its end."""
    (train_name, train), (test_name, test) = texts.items()
    shorter = {user: [*history, target] for _, user, history, target in _rows(train_name, train)}
    found, users, highest = [], [], 0
    for place, user, history, target in _rows(test_name, test):
        if user in shorter and shorter[user] != history:
            raise DataError(f"{place}: the history of user {quoted(user)} is not the row of {train_name} with its target.")
        sequence = np.array([*history, target], np.int64)
        found.append(sequence)
        users.append(user)
        highest = max(highest, int(sequence.max()))
    if not found:
        raise DataError(f"{test_name} holds no rows, only a header.")
    return Sequences(found, highest, users, [])


def _rows(name: str, text: str) -> Iterator[tuple[str, str, list[int], int]]:
    lines = text.removesuffix("\n").split("\n")
    if lines[0].rstrip("\r") != _HEADER:
        raise DataError(
            f"{name}, line 1: the header must be {quoted(_HEADER)}; it is {quoted(lines[0])}. Rows of RecBole, one an "
            "interaction, belong in one file NAME.inter, which is split here."
        )
    for number, line in enumerate(lines[1:], start=2):
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 3:
            raise DataError(f"{name}, line {number}: {len(fields)} tab-separated fields, but the header has 3.")
        words = [*fields[1].split(), fields[2]]
        if wrong := [word for word in words if not (word.isascii() and word.isdigit() and 0 < int(word) < 2**31)]:
            raise DataError(f"{name}, line {number}: {quoted(wrong[0])} must be the number of an item, at least 1.")
        *history, target = map(int, words)
        yield f"{name}, line {number}", fields[0], history, target


def read_log(path: Path, columns: Sequence[str]) -> Sequences:
    """Returns the sequences of a table with a row for each interaction.

    Users and items may be any words, times numbers (such as seconds since 1970) or ISO dates, without a zone in UTC. Rows with
    equal times keep their order. Items are numbered by their first row.

    Args:
        path: ``.csv`` or, with tabs, ``.tsv`` (quoted as usual, with a header), also with ``.gz``; ``.inter`` of RecBole (tabs,
            no quotes, names as ``user_id:token``); or ``.parquet``.
        columns: user, item, time; where these words are not in the header, RecBole's ``user_id``, ``item_id``, ``timestamp``.

    Raises:
        DataError: the file is missing, damaged or empty, or a row cannot be read; the message names its line.
        ConfigError: it lacks a column.
        MissingDependencyError: pyarrow is not installed.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    parts = _parquet(path, columns) if path.suffix == ".parquet" else _csv(path, columns)
    users: dict[Any, int] = {}
    items: dict[Any, int] = {}
    of_user, of_item, times = array("q"), array("q"), array("d")
    dated: bool | None = None
    for place, user, item, time in parts:
        for what, value in zip(columns, (user, item), strict=False):
            if value is None or value == "":
                raise DataError(f"{place}: column {quoted(what)} is empty.")
        of_user.append(users.setdefault(user, len(users)))
        of_item.append(items.setdefault(item, len(items) + 1))
        seconds, is_date = _time(place, columns[2], time)
        if dated not in (None, is_date):
            raise DataError(
                f"{place}: column {quoted(columns[2])} is {quoted(str(time))}, but has numbers and dates: use one kind."
            )
        dated = is_date
        times.append(seconds)
    if not of_user:
        raise DataError(f"{path} holds no rows, only a header.")
    owner = np.frombuffer(of_user, np.int64)
    order = np.lexsort((np.frombuffer(times, np.float64), owner))  # stable for equal times
    ends = np.cumsum(np.bincount(owner))
    histories = np.split(np.frombuffer(of_item, np.int64)[order], ends[:-1])
    return Sequences(histories, len(items), list(map(str, users)), list(map(str, items)))


def _time(place: str, column: str, value: Any) -> tuple[float, bool]:
    """Returns a number that orders times, and whether the value is a date; one without a zone is in UTC."""
    try:
        if not hasattr(value, "isoformat"):
            with suppress(ValueError):
                if math.isfinite(number := float(value)):
                    return number, False
        date = datetime.datetime.fromisoformat(value.isoformat() if hasattr(value, "isoformat") else value)
        return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp(), True
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{place}: column {quoted(column)} is {quoted(str(value))}; it must be a number, such as seconds, or an ISO date, "
            "such as 2026-01-31 or 2026-01-31T12:30:00: pandas.to_datetime makes such dates."
        ) from error


def _csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Any, Any, Any]]:
    read = 0

    def lines(stream: Iterable[bytes]) -> Iterator[str]:
        nonlocal read
        for read, line in enumerate(stream, start=1):
            yield (line.removeprefix(codecs.BOM_UTF8) if read == 1 else line).decode("utf-8")

    opened: Any = gzip.open if path.suffix == ".gz" else Path.open
    try:
        with opened(path, "rb") as stream:
            tabs, recbole = path.name.endswith((".tsv", ".tsv.gz", ".inter")), path.suffix == ".inter"
            form: Any = {"delimiter": "\t" if tabs else ",", "quoting": csv.QUOTE_NONE if recbole else csv.QUOTE_MINIMAL}
            reader = csv.reader(lines(stream), strict=True, **form)
            header = next(reader, [])
            header = [name.partition(":")[0] for name in header] if recbole else header
            places = [_place(path, header, column) for column in columns]
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise DataError(f"{path}, line {read}: {len(fields)} fields, but the header has {len(header)}.")
                user, item, time = (fields[each] for each in places)
                yield f"{path}, line {read}", user, item, time
    except csv.Error as error:
        raise DataError(f"{path}, line {read}: {error}; is a quote left open?") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {read}: not UTF-8 ({error.reason}).") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}, after line {read}: cannot be read: {error}.") from error


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Any, Any, Any]]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(f"{path} needs the package 'pyarrow': pip install pyarrow") from error
    try:
        with parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            names = [header[_place(path, header, column)] for column in columns]
            row = 0
            for batch in file.iter_batches(columns=names):
                for user, item, time in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                    row += 1
                    yield f"{path}, row {row}", user, item, time
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _place(path: Path, header: Sequence[str], column: str) -> int:
    if column not in header and _RECBOLE.get(column) in header:
        column = _RECBOLE[column]
    if column not in header:
        has = ", ".join(header) or "nothing"
        raise ConfigError(
            f"{path} has no column {quoted(column)}.{nearest(column, header)} It has: {has}. Name those of user, item and "
            "time, in this order, with --columns."
        )
    return header.index(column)
