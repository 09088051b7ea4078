"""Interactions of users with items, read from files: a table with a row for each, or RecBole's benchmark files."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from tempplug.errors import ConfigError, DataError, nearest, quoted
from tempplug_adapters.data_files.archives import read_archived_texts
from tempplug_adapters.data_files.roles import ANY, INTEGER, NUMBER, TEXT, TIME as DATED, Assigned, Role, assign
from tempplug_adapters.data_files.tables import open_table
from tempplug_adapters.recommendation.recipes import COLUMNS, DATASETS

_USERS: Final = ("user", "user_id", "uid", "username", "session_id", "customer_id", "reviewer_id", "visitor_id", "member_id")
_ITEMS: Final = (
    *("item", "item_id", "iid", "movie_id", "asin", "parent_asin", "product_id", "article_id", "track_id", "song_id"),
    *("book_id", "isbn", "business_id", "video_id", "news_id", "anime_id", "game_id", "sku", "stock_code"),
)
_TIMES: Final = ("time", "timestamp", "ts", "date", "datetime", "unix_review_time", "event_time", "event_date", "invoice_date")
USER: Final = Role("user", ANY, _USERS)
ITEM: Final = Role("item", ANY, _ITEMS)
TIME: Final = Role("time", (DATED, NUMBER, INTEGER, TEXT), _TIMES, required=False)
RATING: Final = Role("rating", (NUMBER, INTEGER), ("rating", "score", "stars", "overall"), required=False)
HISTORY: Final = Role("history", ANY, ("item_id_list",), required=False)
LOG: Final = (USER, ITEM, TIME, RATING)
"""Of a table with a row for each interaction."""
BENCHMARK: Final = (USER, HISTORY, ITEM)
"""Of RecBole's benchmark files, in which a row is a history with the item that follows it."""
SPLITS: Final = ("train", "valid", "test")
"""Of RecBole's benchmark files; the number of a split, from 1, is that of `interactions`."""
_FIELDS: Final = ("token", "token_seq", "float", "float_seq")
_TYPES: Final = {"user": "token", "item": "token", "history": "token_seq", "time": "float"}
"""RecBole's types of columns, after a colon in the header."""
_NO_NAMES: Final = ("nan", "NaN", "None", "<NA>", "NaT", "null")
"""Missing values of pandas and others that were turned into texts."""


class Sequences(NamedTuple):
    """What users did.

    Attributes:
        histories: the items of each user, or of a session, in order of time, numbered from 1.
        users: the name of each.
        names: the name of each item.
        splits: which split each item is a target of, see `interactions`; empty: the last item of each history tests.
        tables: the files with their columns by role.
        notes: how they were read, in words.
    """

    histories: list[NDArray[np.int64]]
    users: list[str]
    names: list[str]
    splits: Sequence[NDArray[np.int8]] = ()
    tables: tuple[Assigned, ...] = ()
    notes: tuple[str, ...] = ()


def load_sequences(dataset: str, data_dir: Path | None, columns: Sequence[str] = ()) -> Sequences:
    """Returns the sequences of a data set.

    Args:
        dataset: one of `DATASETS`; a table; or a folder ``NAME`` with ``NAME.inter``, or with ``NAME.train.inter``,
            ``NAME.test.inter`` and, if wanted, ``NAME.valid.inter``; or one that `datasets` saved.
        data_dir: folder with ``recsys/NAME.tar.xz``; None without one.
        columns: see `assign`; the number of a column, from 1, is its name in a table without a header.

    Raises:
        DataError: it is missing or cannot be read; the message names the line.
        ConfigError: a column of a table is not clear.
    """
    files = files_of(dataset, data_dir)
    columns = () if tuple(columns) == COLUMNS else columns
    if "train" in files:
        return _benchmark(files, columns)
    if dataset not in DATASETS or Path(dataset).is_dir():
        return _log(files[""], columns)
    names = {split: f"{dataset}.{split}.inter" for split in ("train", "test")}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in read_archived_texts(files[""], names.values()).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        return _benchmark({split: Path(folder, name) for split, name in names.items()}, ())


def files_of(dataset: str, data_dir: Path | None) -> dict[str, Path]:
    """Returns what `load_sequences` reads: files of `SPLITS`, or a file or folder with an empty name; raises like it."""
    path = Path(dataset)
    if path.is_dir():
        files = {split: path / f"{path.resolve().name}{split and f'.{split}'}.inter" for split in ("", *SPLITS)}
        if not files[""].is_file() and any(file.is_file() for file in files.values()):
            return {split: file for split, file in files.items() if split in ("train", "test") or file.is_file()}
        return {"": files[""] if files[""].is_file() else path}
    if path.suffix or path.is_file():
        return {"": path}
    if dataset not in DATASETS:
        wanted = "a table (.csv, .jsonl, .parquet …), or a folder NAME with NAME.inter, or NAME.train.inter and NAME.test.inter"
        raise DataError(f"no data set {quoted(dataset)}.{nearest(dataset, DATASETS)} wanted {', '.join(DATASETS)}, {wanted}.")
    if data_dir is None:
        raise DataError(f"data set '{dataset}' is read from a folder: name it with --data-dir or TEMPPLUG_DATA.")
    archive = data_dir / "recsys" / f"{dataset}.tar.xz"
    if not archive.is_file():
        raise DataError(f"{archive} does not exist: the data folder must hold '{dataset}' there.")
    return {"": archive}


def _assigned(path: Path, roles: Sequence[Role], columns: Sequence[str]) -> Assigned:
    """Returns a table with its columns by role, without RecBole's types in their names."""
    numbered = bool(columns) and all(column.rpartition("=")[2].isdigit() for column in columns)
    table = open_table(path, header=_has_numbers if numbered else True)
    if not len(table):
        raise DataError(f"{path} holds no rows, only a header.")
    types = dict(name.rpartition(":")[::2] for name in table.names)
    typed = all(types) and len(types) == len(table.names) and (path.suffix == ".inter" or set(types.values()) <= set(_FIELDS))
    table, types = (table.renamed(list(types)), types) if typed else (table, {})
    some = not columns or any("=" in column for column in columns)
    dated = replace(TIME, required=some and any(map(TIME.is_usual, table.names)))
    try:
        assigned = assign(table, [dated if role is TIME else role for role in roles], columns).of(_TYPES)
    except ConfigError as error:
        if not any(name.lstrip("-").isdigit() for name in table.names) or not table.delimited or numbered:
            raise
        remedy = "if that is a row, name the columns by their numbers, such as --columns user=1 item=2 time=4"
        raise ConfigError(f"{path}: its first line is {', '.join(map(quoted, table.names[:6]))}; {remedy}.") from error
    for role, (name, *_) in assigned.columns.items():
        if types.get(name, _TYPES[role]) != _TYPES[role]:
            wanted = f"{_TYPES[role]} (RecBole's types: {', '.join(_FIELDS)})"
            fault = f"the type of {quoted(name)}, the {role}, is {quoted(types[name])}, but must be {wanted}"
            raise DataError(f"{path}, line 1: {fault}: write {name}:{_TYPES[role]}, or choose another one with --columns.")
    return assigned


def _has_numbers(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row is what pandas writes for columns without names, 0, 1, 2 and so on."""
    names = [name for name in rows[0] if name]
    return names == [str(place) for place in range(len(names))]


def _log(path: Path, columns: Sequence[str]) -> Sequences:
    """Returns the sequences of a table with a row for each interaction; rows with equal times keep their order."""
    assigned = _assigned(path, LOG, columns)
    if any(map(HISTORY.is_usual, assigned.unused)):
        raise DataError(f"{path} has histories, not a row for each interaction: name the folder NAME with NAME.train.inter.")
    user_of, users = _ids(assigned, "user")
    item_of, items = _ids(assigned, "item")
    times = [assigned.table.times(assigned.column("time"))] if "time" in assigned else []
    order = np.lexsort((*times, user_of))  # stable for equal times
    histories = np.split(item_of[order] + 1, np.cumsum(np.bincount(user_of))[:-1])
    notes = () if times else ("no column of times: the items of each user are in the order of the file",)
    return Sequences(histories, users, items, (), (assigned,), notes)


def _ids(assigned: Assigned, role: str) -> tuple[NDArray[np.int64], list[str]]:
    """Returns the number of the user or item of each row, [N] from 0 in the order of first rows, and the names as written."""
    table, column = assigned.table, assigned.column(role)
    values, missing = table.column(column), table.is_missing(column)
    if pa.types.is_floating(values.type) and not missing.any():
        missing = ~np.asarray(pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**53)))
        values = values if missing.any() else values.cast(pa.int64())
    coded = values.cast(pa.large_string()).combine_chunks().dictionary_encode()
    missing |= np.asarray(pc.is_in(coded, pa.array(_NO_NAMES, pa.large_string())))
    if missing.any():
        wanted = f"each row must name its {role} by a text or an integer: remove the others, table.dropna(subset=['{column}'])"
        raise DataError(f"{table.cell(int(missing.argmax()), column)}; {wanted}.")
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def _benchmark(files: Mapping[str, Path], columns: Sequence[str]) -> Sequences:
    """Returns the sequences of RecBole's benchmark files.

    A row is a history and its target. Rows of a user whose sequences begin with each other are one sequence. In files of DCRec,
    where each user has a row that trains and the same row with one more item that tests, all prefixes are trained on, too.
    """
    sequences: list[tuple[str, list[str], bytearray]] = []
    newest: dict[str, tuple[str, list[str], bytearray]] = {}
    tables = {split: _assigned(file, BENCHMARK, columns) for split, file in files.items()}
    counts: Counter[str] = Counter()
    for name, assigned in tables.items():
        split, table = 1 + SPLITS.index(name), assigned.table
        if "history" not in assigned:
            raise DataError(f"{table.path} has no column item_id_list; rows of one interaction belong in one file NAME.inter.")
        for role in ("user", "item"):
            _ids(assigned, role)
        fields = (table.values(assigned.column(role.name)) for role in BENCHMARK)
        for user, history, target in zip(*fields, strict=True):
            items = [*(history or "").split(), target]
            last = len(items) - 1
            _, known, splits = newest.get(user, (user, [""], bytearray()))
            differs = any(one != other for one, other in zip(known, items, strict=False))
            trained = not differs and any(0 < earlier < split for earlier in splits[last:])
            if differs or trained:
                known, splits = [], bytearray()
                sequences.append((user, known, splits))
                newest[user] = sequences[-1]
            known += items[len(known) :]
            splits.extend(bytes(len(known) - len(splits)))
            counts["rows repeat another one and were left out"] += splits[last] == split
            counts["sessions have a target that an earlier file has in them, too"] += trained
            splits[last] = split
    how, targets = "as in RecBole's benchmark files", {bytes(splits).lstrip(b"\0") for _, _, splits in sequences}
    if b"\1\3" in targets <= {b"\1", b"\3", b"\1\3"} and len(newest) == len(sequences) and not counts.total():
        how = "of which those of the training stand for all of their prefixes, too, as in DCRec's files"
        for _, _, splits in sequences:
            splits[: splits.find(1) + 1] = b"\1" * (splits.find(1) + 1)
    notes = [f"rows of a history and its target, {how}: {', '.join(f'{name} {len(tables[name].table)}' for name in tables)}"]
    notes += [f"{count} {what}" for what, count in counts.items() if count]
    names = sorted({item for _, items, _ in sequences for item in items}, key=lambda item: (len(item), item))
    numbers = {name: number for number, name in enumerate(names, 1)}
    histories = [np.array([numbers[item] for item in items]) for _, items, _ in sequences]
    targets_of = [np.frombuffer(splits, np.int8) for _, _, splits in sequences]
    return Sequences(histories, [user for user, _, _ in sequences], names, targets_of, tuple(tables.values()), tuple(notes))
