"""Interactions of users with items, read from files: a table with a row for each, or RecBole's benchmark files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from tempplug.errors import ConfigError, DataError, nearest, quoted
from tempplug_adapters.data_files.archives import read_archived_texts
from tempplug_adapters.data_files.column_kinds import is_text, without_missing
from tempplug_adapters.data_files.roles import ANY, INTEGER, MISSING, NUMBER, TEXT, TIME as TIMES, Assigned, Role, assign
from tempplug_adapters.data_files.tables import Table, open_table
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.recommendation.recipes import COLUMNS, DATASETS

USER: Final = Role(
    "user",
    ANY,
    (
        *(
            "user",
            "user_id",
            "uid",
            "session_id",
            "session",
            "customer_id",
            "customer",
            "reviewer_id",
            "visitor_id",
            "member_id",
        ),
        *("username", "account_id", "client_id", "buyer_id", "profile_id", "person_id", "listener_id", "reader_id"),
    ),
)
ITEM: Final = Role(
    "item",
    ANY,
    (
        *(
            "item",
            "item_id",
            "iid",
            "movie_id",
            "asin",
            "product_id",
            "product",
            "article_id",
            "track_id",
            "song_id",
            "book_id",
        ),
        *("isbn", "business_id", "video_id", "news_id", "anime_id", "game_id", "venue_id", "poi_id", "sku", "stock_code"),
        *("content_id", "listing_id", "goods_id", "parent_asin"),
    ),
)
TIME: Final = Role(
    "time",
    (TIMES, NUMBER, INTEGER, TEXT),
    (
        *("time", "timestamp", "date", "datetime", "unix_review_time", "unix_time", "ts", "event_time", "event_date"),
        *("created_at", "rating_timestamp", "invoice_date", "local_time"),
    ),
    required=False,
)
RATING: Final = Role("rating", (NUMBER, INTEGER), ("rating", "score", "stars", "overall"), required=False)
HISTORY: Final = Role("history", (*ANY, MISSING), ("item_id_list",))
LOG: Final = (USER, ITEM, TIME, RATING)
"""Of a table with a row for each interaction."""
BENCHMARK: Final = (USER, HISTORY, ITEM)
"""Of RecBole's benchmark files, in which a row is a history with the item that follows it."""
SPLITS: Final = ("train", "valid", "test")
"""Of RecBole's benchmark files; the number of a split, from 1, is that of `interactions`."""
_FIELDS: Final = ("token", "token_seq", "float", "float_seq")
_TYPES: Final = {"user": "token", "item": "token", "history": "token_seq", "time": "float"}
"""RecBole's types of columns, after a colon in the header."""
_NO_NAMES: Final = {"nan", "NaN", "None", "<NA>", "NaT", "null"}
"""What pandas and others write for a missing text that was turned into words."""
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
_ISO: Final = (
    (r" ?(Z|UTC)$", ""),
    (r"-(\d)-", r"-0\1-"),
    (r"-(\d)($|[T ])", r"-0\1\2"),
    (r"[T ](\d):", r"T0\1:"),
    (r"^(.{10})$", r"\1T00:00"),
    (r"^(.{10}.[\d:.]+)$", r"\1Z"),
    (r" ([+-])", r"\1"),
)
"""What Arrow's reader of times needs: two digits, a time of the day, and a zone."""


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
            ``NAME.test.inter`` and, if wanted, ``NAME.valid.inter``.
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
    names = [f"{dataset}.{split}.inter" for split in ("train", "test")]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in read_archived_texts(files[""], names).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return _benchmark({name.split(".")[-2]: Path(folder) / name for name in names}, ())


def files_of(dataset: str, data_dir: Path | None) -> dict[str, Path]:
    """Returns the files that `load_sequences` reads: some of `SPLITS`, or one with an empty name; raises like it."""
    path = Path(dataset)
    if path.is_dir():
        of_folder = {split: path / f"{path.resolve().name}{split and f'.{split}'}.inter" for split in ("", *SPLITS)}
        present = {split: file for split, file in of_folder.items() if file.is_file() or split in ("train", "test")}
        return {"": present[""]} if "" in present else present
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
    """Returns a table with its columns by role, which have RecBole's types if its header has types."""
    numbered = bool(columns) and all(column.rpartition("=")[2].isdigit() for column in columns)

    def has_header(rows: Sequence[Sequence[str]]) -> bool:
        named = [name for name in rows[0] if name]
        return not numbered or named == [str(place) for place in range(len(named))]  # as pandas writes them

    table = open_table(path, header=has_header)
    types = dict(name.rpartition(":")[::2] for name in table.names)
    typed = all(types) and len(types) == len(table.names)
    if typed and file_kind(path) == ".inter" and (unknown := [kind for kind in types.values() if kind not in _FIELDS]):
        raise DataError(f"{path}, line 1: {quoted(unknown[0])} is no type of RecBole's columns: {', '.join(_FIELDS)}.")
    if typed and set(types.values()) <= set(_FIELDS):
        table = table.renamed(list(types))
    all_given = bool(columns) and not any("=" in column for column in columns)
    dated = not all_given and any(map(TIME.is_usual, table.names))
    try:
        assigned = assign(table, [replace(role, required=dated) if role is TIME else role for role in roles], columns)
    except ConfigError as error:
        if columns or not table.delimited or not any(map(_NUMBER.fullmatch, table.names)):
            raise
        raise ConfigError(
            f"{path}: the first line ({', '.join(table.names[:6])}) is no header. Name the columns by their numbers, such as "
            "--columns user=1 item=2 time=4, or write a header."
        ) from error
    assigned = assigned.of(_TYPES)
    for role, wanted in _TYPES.items():
        if role in assigned and types.get(name := assigned.column(role), wanted) != wanted:
            raise DataError(
                f"{path}, line 1: column {quoted(name)} is the {role}, which is a {wanted} in RecBole's files, not a "
                f"{types[name]}: write {name}:{wanted}, or name another column with --columns."
            )
    return assigned


def _log(path: Path, columns: Sequence[str]) -> Sequences:
    """Returns the sequences of a table with a row for each interaction; rows with equal times keep their order."""
    assigned = _assigned(path, LOG, columns)
    table = assigned.table
    if any(map(HISTORY.is_usual, assigned.unused)):
        raise DataError(
            f"{path} has histories, not a row for each interaction: name the folder of NAME.train.inter and others."
        )
    user_of, users = _ids(assigned, "user")
    item_of, items = _ids(assigned, "item")
    times = [_ranks(table, assigned.column("time"))] if "time" in assigned else []
    order = np.lexsort((*times, user_of))  # stable for equal times
    histories = np.split(item_of[order] + 1, np.cumsum(np.bincount(user_of))[:-1])
    notes = () if times else ("no column of times: the items of each user are in the order of the file",)
    return Sequences(histories, users, items, tables=(assigned,), notes=notes)


def _ids(assigned: Assigned, role: str) -> tuple[NDArray[np.int64], list[str]]:
    """Returns the number of the user or item of each row, [N] from 0 in the order of first rows, and the names as written."""
    table, column = assigned.table, assigned.column(role)
    values = table.column(column)
    wanted = f"each row must have a {role} by an integer or a text: remove the others, table.dropna(subset=['{column}'])"
    _refuse(table, column, table.is_missing(column), wanted)
    if pa.types.is_floating(values.type):
        exact = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**53))
        _refuse(table, column, ~np.asarray(exact), wanted)
        values = values.cast(pa.int64())
    coded = values.cast(pa.large_string()).combine_chunks().dictionary_encode()
    numbers, names = coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()
    no_names = [number for number, name in enumerate(names) if name in _NO_NAMES]
    _refuse(table, column, np.isin(numbers, no_names), f"it stands for a missing value; {wanted}")
    return numbers, names


def _refuse(table: Table, column: str, rows: NDArray[np.bool_], wanted: str) -> None:
    """Raises `DataError` for the first of some rows, [N]."""
    if rows.any():
        row = int(rows.argmax())
        shown = "empty" if table.is_missing(column)[row] else quoted(str(table.column(column)[row].as_py()))
        raise DataError(f"{table.place(row)}: column {quoted(column)} is {shown}; {wanted}.")


def _ranks(table: Table, column: str) -> NDArray[np.int64]:
    """Returns the rank of each time, [N]; equal times have equal ranks. ISO times without a zone are in UTC."""
    _refuse(
        table,
        column,
        table.is_missing(column),
        "fill it in, remove the row, or keep the order of the file: --columns USER ITEM",
    )
    values = table.column(column)
    if is_text(values.type):
        values = pa.chunked_array([without_missing(chunk) for chunk in values.chunks])
        dated = table.kind(column) == TIMES or not (_is_sortable(values[:1], dated=False))
        try:
            values = _sortable(values, dated=dated)
        except pa.ArrowInvalid:
            sortable = [_is_sortable(values[row : row + 1], dated=dated) for row in range(len(values))]
            kinds = "a number, such as seconds, or an ISO time, such as 2026-01-31 or 2026-01-31T12:30:00"
            wanted = f"it must be {kinds}, of one kind in all rows: pandas.to_datetime makes such times"
            _refuse(table, column, ~np.array(sortable), wanted)
            raise
    return pc.rank(values, tiebreaker="min").to_numpy().astype(np.int64)


def _sortable(words: Any, *, dated: bool) -> Any:
    """Returns texts as Arrow's integers, decimals or floating-point numbers, or as times of nanoseconds."""
    if dated:
        for pattern, replacement in _ISO:
            words = pc.replace_substring_regex(words, pattern, replacement)
        return words.cast(pa.timestamp("ns", "UTC"))
    for kind in (pa.int64(), pa.decimal128(38, 9)):
        with suppress(pa.ArrowInvalid):
            return words.cast(kind)
    return words.cast(pa.float64())


def _is_sortable(words: Any, *, dated: bool) -> bool:
    try:
        _sortable(words, dated=dated)
    except pa.ArrowInvalid:
        return False
    return True


def _benchmark(files: Mapping[str, Path], columns: Sequence[str]) -> Sequences:
    """Returns the sequences of RecBole's benchmark files.

    A row is a history and its target. Rows of a user whose sequences begin with each other are one sequence. In files of DCRec,
    where each user has a row that trains and the same row with one more item that tests, all prefixes are trained on, too.
    """
    histories: list[list[str]] = []
    splits: list[bytearray] = []
    users: list[str] = []
    newest: dict[str, int] = {}
    tables = tuple(_assigned(file, BENCHMARK, columns) for file in files.values())
    rows = repeated = 0
    for assigned, name in zip(tables, files, strict=True):
        number, table = 1 + SPLITS.index(name), assigned.table
        for role in ("user", "item"):
            _ids(assigned, role)
        fields = (table.values(assigned.column(role)) for role in ("user", "history", "item"))
        for row, (user, history, target) in enumerate(zip(*fields, strict=True)):
            items = [*(history or "").split(), target]
            place = newest.get(user, len(histories))
            if place == len(histories) or any(one != other for one, other in zip(histories[place], items, strict=False)):
                newest[user] = place = len(histories)
                users.append(user)
                histories.append([])
                splits.append(bytearray())
            histories[place] += items[len(histories[place]) :]
            splits[place].extend(bytes(len(histories[place]) - len(splits[place])))
            if splits[place][len(items) - 1] not in (0, number):
                raise DataError(f"{table.place(row)}: another file has the same history and target: leave them in one of them.")
            repeated += splits[place][len(items) - 1] == number
            splits[place][len(items) - 1] = number
        rows += len(table)
    targets = {bytes(split).lstrip(b"\0") for split in splits}
    if b"\1\3" in targets <= {b"\1", b"\3", b"\1\3"} and len(newest) == len(histories) and not repeated:
        for split in splits:
            split[: split.find(1) + 1] = b"\1" * (split.find(1) + 1)
        note = "each row of a user that trains stands for all of its prefixes, as in DCRec's files"
    else:
        note = f"{rows} rows, each a history with its target, as in RecBole's benchmark files"
    notes = (note, *([f"{repeated} rows that repeat another one were left out"] if repeated else []))
    names = sorted({item for history in histories for item in history}, key=lambda item: (len(item), item))
    numbers = {name: number for number, name in enumerate(names, 1)}
    numbered = [np.array([numbers[item] for item in history]) for history in histories]
    return Sequences(numbered, users, names, [np.frombuffer(split, np.int8) for split in splits], tables, notes)
