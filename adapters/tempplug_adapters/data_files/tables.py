"""Tables as pandas, polars, spreadsheets, `datasets` and others write them: columns of Arrow, mapped from disk.

`open_table` reads a file once into a temporary file of Arrow's, which has no name and lies in ``TMPDIR``, and maps that into
memory, so that ten million rows need little of it. It is built on pyarrow rather than on `datasets`, whose readers fix the
types of columns by the first rows, take the word NA for a missing text, and keep a copy in a cache that nobody empties;
`datasets` reads the folders that it saved, and the hub.

A cell is missing if nothing is written in it. The words NA, null and nan in a column of texts stay words, as pandas and others
leave a missing text empty; in a column of numbers they are missing numbers.
"""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from tempplug.errors import DataError, MissingDependencyError, install_command, quoted
from tempplug_adapters.data_files.column_kinds import (
    MISSING_NUMBERS,
    as_numbers,
    as_times,
    is_dated,
    kind_of_column,
    missing_mask,
)
from tempplug_adapters.data_files.delimited_text import LINE, ROWS, HasHeader, block_of, text_blocks
from tempplug_adapters.data_files.json_rows import as_words
from tempplug_adapters.data_files.roles import CATEGORY, INTEGER, MISSING, NUMBER
from tempplug_adapters.data_files.table_blocks import ARROW, JSON_LINES, read_blocks
from tempplug_adapters.data_files.text_streams import check_size, file_kind
from tempplug_adapters.storage.files import one_line

COMMIT: Final = b"commit"
"""Of the metadata of a data set of the hub: its commit, by which it is read."""
_ON_THE_HUB: Final = re.compile(r"[\w-]+/[\w.-]+(:[\w.-]+)?")
_FILES: Final = (".csv", ".tsv", ".tab", ".txt", ".json", *JSON_LINES, ".parquet", *ARROW)
_CHUNK: Final = 1 << 13
"""Values that become Python's together."""


def open_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    header: bool | HasHeader = True,
    blanks: bool = False,
    split: str = "train",
    hub: bool = False,
    rows: int | None = None,
) -> Table:
    """Returns the table of a file, of a folder that `datasets` saved, or of a data set of the Hugging Face hub.

    Args:
        path: ``.csv``, ``.tsv``, ``.json``, ``.jsonl``, ``.ndjson``, ``.parquet``, ``.arrow``; others have delimiters.
            Delimiter, quotes, encoding, and whether a text is packed by gzip, are found from the content.
        columns: those to keep; None: all. Names that it does not have are ignored.
        header: see `read_blocks`.
        blanks: see `read_blocks`.
        split: of a folder or a data set with several.
        hub: whether ``OWNER/NAME`` or ``OWNER/NAME:CONFIGURATION`` is a data set of the hub where there is no such file; it is
            streamed.
        rows: of a folder or a data set, the most that are read, from the first; None: all.

    Raises:
        DataError: the file is missing, empty, malformed or packed; the message names the line and what to do.
        MissingDependencyError: a folder needs `datasets`.
    """
    path = Path(path)
    named = hub and not path.exists() and _ON_THE_HUB.fullmatch(str(path)) and file_kind(path) not in _FILES
    blocks = _blocks_of_datasets(str(path), split, rows) if path.is_dir() or named else read_blocks(path, header, blanks)
    return _stored(path, blocks, columns)


def open_lines(path: Path) -> Table:
    """Returns the table of a file's lines, a column ``text`` where blank lines are missing; raises `DataError`."""
    return _stored(path, text_blocks(path))


def _stored(path: Path, blocks: Iterator[Any], columns: Sequence[str] | None = None) -> Table:
    """Returns the table of some blocks, without the columns that are not to be kept; raises `DataError` if it is too large."""
    with tempfile.TemporaryFile() as file:
        store = _Store(file)
        for block in blocks:
            kept = [name for name in block.schema.names if columns is None or name in (*columns, LINE)]
            store.add(block.select(kept))
            if path.is_file():
                check_size(path, file.tell())
        if not store.starts:
            raise DataError(f"{path} holds no rows.")
        return Table(str(path), store.table())


def numbered(data: Any) -> Any:
    """Returns a `pyarrow.Table` with the column `LINE`, as `Table` needs it."""
    return data.append_column(LINE, pa.array(range(1, data.num_rows + 1), pa.int64()))


class Table:
    """Columns of Arrow, mapped from disk or in memory.

    Args:
        path: the file, for messages.
        data: a `pyarrow.Table` with the column `LINE`.

    Attributes:
        path: as given.
        names: names of the columns, in the order of the file.
        delimited: whether it is text with delimiters, whose first line may be no header.
    """

    def __init__(self, path: str, data: Any) -> None:
        self.path, self._data = path, data
        self.names: tuple[str, ...] = tuple(name for name in data.column_names if name != LINE)
        kind = file_kind(Path(path))
        self.delimited = kind not in (*JSON_LINES, *ARROW, ".json", ".parquet", ".tar", ".npz", "")
        self._counted = "line" if self.delimited or kind in JSON_LINES else "row"
        self._kinds: dict[str, str] = {}

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._data.num_rows)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What a parquet or Arrow file says of its columns, such as the ``huggingface`` features of `datasets`."""
        return self._data.schema.metadata or {}

    def place(self, row: int) -> str:
        """Returns the file and the line of a row, for messages: ``pairs.csv, line 3``; the row, from 1, of a binary file."""
        return f"{self.path}, {self._counted} {self._data[LINE][int(row)].as_py()}"

    def renamed(self, names: Sequence[str]) -> Table:
        """Returns the table with other names of its columns."""
        return Table(self.path, self._data.select([*self.names, LINE]).rename_columns([*names, LINE]))

    def cell(self, row: int, name: str) -> str:
        """Returns a value and its place, for messages: ``pairs.csv, line 3: column 'user' is 'ann'``, or ``is empty``."""
        value = self._data[name][row].as_py()
        return f"{self.place(row)}: column {quoted(name)} is {'empty' if value is None else quoted(str(value))}"

    def column(self, name: str) -> Any:
        """Returns a column as `pyarrow.ChunkedArray`. Cells of text with delimiters are texts, as written, or null if empty."""
        return self._data[name]

    def kind(self, name: str) -> str:
        """Returns what all values of a column are, see `roles`: texts that are all numbers or ISO times are of these kinds."""
        if name not in self._kinds:
            self._kinds[name] = kind_of_column(self._data[name])
        return self._kinds[name]

    def missing(self, name: str) -> int:
        """Returns the number of missing values: nulls, blank texts, empty lists, and in numbers NaN and `MISSING_NUMBERS`."""
        return int(self.is_missing(name).sum())

    def is_missing(self, name: str) -> np.ndarray:
        """Returns which values are missing, [N] bool; see `missing`."""
        kind = self.kind(name)
        masks = [missing_mask(chunk, kind).to_numpy(zero_copy_only=False) for chunk in self._data[name].chunks]
        return np.concatenate([np.zeros(0, bool), *masks])

    def values(self, name: str) -> Iterator[Any]:
        """Yields the values of a column as Python's; a missing one is None."""
        kind = self.kind(name)
        for chunk in self._data[name].chunks:
            for start in range(0, len(chunk), _CHUNK):
                part = chunk.slice(start, _CHUNK)
                missing = missing_mask(part, kind).to_pylist()
                yield from (None if absent else value for value, absent in zip(part.to_pylist(), missing, strict=True))

    def ids(self, name: str) -> Iterator[str | None]:
        """Yields the values of a column as texts, None for a missing one: integers beside missing ones, stored as 7.0, as 7."""
        rounded = pa.types.is_floating(self._data[name].type)
        for value in self.values(name):
            yield None if value is None else str(int(value) if rounded and value.is_integer() else value)

    def numbers(self, name: str) -> np.ndarray:
        """Returns a column as numbers, [N]: int64 if all are integers and none is missing, else float64 with NaN for missing.

        Raises:
            DataError: a value is no number; the message names its line.
        """
        kind = self.kind(name)
        if kind not in (INTEGER, NUMBER, CATEGORY, MISSING):
            row, value = next((row, each) for row, each in enumerate(self.values(name)) if not _is_number(each))
            raise DataError(f"{self.cell(row, name)}; it must be a number{', without commas' * (',' in str(value))}.")
        if kind == MISSING:
            return np.full(len(self), np.nan)
        try:
            chunks = [as_numbers(chunk, kind) for chunk in self._data[name].chunks]
        except pa.ArrowException as error:
            words = [str(value or "") for value in self.values(name)]
            place = self.place(words.index(max(words, key=len)))
            raise DataError(f"{place}: column {quoted(name)} has a number beyond 64 bits.") from error
        whole = kind == INTEGER and not any(chunk.null_count for chunk in chunks)
        parts = [(chunk if whole else chunk.cast(pa.float64())).to_numpy(zero_copy_only=False) for chunk in chunks]
        return np.concatenate([np.zeros(0, np.int64 if whole else np.float64), *parts])

    def times(self, name: str) -> np.ndarray:
        """Returns the ranks of numbers or ISO times, [N] int64; equal times have equal ranks. Without a zone they are in UTC.

        Raises:
            DataError: a value is missing, or is not of the kind of the first; the message names its line.
        """
        column, missing = self._data[name], self.is_missing(name)
        if missing.any():
            remedy = f"each row must have a time: remove the others, table.dropna(subset=['{name}'])"
            raise DataError(f"{self.cell(int(missing.argmax()), name)}; {remedy}.")
        if (times := as_times(column)) is not None:
            return np.asarray(pc.rank(times, tiebreaker="min")).astype(np.int64)
        dated = is_dated(column[0].as_py())
        row = next(row for row in range(len(self)) if as_times(column[row : row + 1], dated) is None)
        kinds = "all a number, such as seconds, or all an ISO time, such as 2026-01-31 or 2026-01-31T12:30:00"
        raise DataError(f"{self.cell(row, name)}; times must be {kinds}: pandas.to_datetime makes such times.")

    def first(self, name: str) -> Any:
        """Returns the first value that is not missing, or None."""
        return next((value for value in self.values(name) if value is not None), None)

    def sample(self, name: str) -> str:
        """Returns the first value that is not missing, in quotes, on one line and shortened to 60 characters."""
        value = self.first(name)
        if value is None:
            return "nothing"
        if isinstance(value, dict) and {"bytes", "path"} == value.keys():
            value = value["bytes"] or value["path"]
        if isinstance(value, bytes):
            return f"{len(value)} bytes"
        word = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return quoted(word if len(word) <= 60 else f"{word[:57]}...")

    def described(self) -> str:
        """Returns the columns with kind and sample, for messages: ``'query' (text, such as 'what is …'), …``."""
        shown = []
        for name in self.names[:20]:
            sample = "without values" if self.first(name) is None else f"such as {self.sample(name)}"
            shown.append(f"{quoted(name)} ({self.kind(name)}, {sample})")
        return ", ".join(shown) + (f" and {len(self.names) - 20} more" if len(self.names) > 20 else "")

    def taken(self, rows: np.ndarray) -> Table:
        """Returns a table with the rows at some positions, [n] int64, or where a mask [N] bool is true."""
        chosen = pa.array(rows)
        return Table(self.path, self._data.filter(chosen) if pa.types.is_boolean(chosen.type) else self._data.take(chosen))


def _is_number(value: Any) -> bool:
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError):
        return str(value).strip().lower() in MISSING_NUMBERS
    return True


class _Store:
    """Blocks in a temporary file, as streams of Arrow that begin at ``starts``: a new one where the columns or types change."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.starts: list[int] = []
        self._writer: Any = None
        self._schema: Any = None

    def add(self, block: Any) -> None:
        """Writes a record batch."""
        if self._writer is None or not block.schema.equals(self._schema, check_metadata=True):
            self._close()
            self.starts.append(self._file.tell())
            self._schema, self._writer = block.schema, pa.ipc.new_stream(pa.PythonFile(self._file, "w"), block.schema)
        self._writer.write_batch(block)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def table(self) -> Any:
        """Returns all blocks as one table on the map of the file, which may then be closed."""
        self._close()
        self._file.flush()
        mapped = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        parts = [pa.ipc.open_stream(pa.BufferReader(mapped.slice(start))).read_all() for start in self.starts]
        return _joined(parts)


def _joined(parts: Sequence[Any]) -> Any:
    """Returns one table of several, whose columns may differ."""
    with suppress(pa.ArrowException):
        return pa.concat_tables(parts, promote_options="permissive")
    names = list(dict.fromkeys(name for part in parts for name in part.column_names))
    return pa.table([_joined_column(parts, name) for name in names], names, metadata=parts[0].schema.metadata)


def _joined_column(parts: Sequence[Any], name: str) -> Any:
    """Returns a column of several tables, null where a table lacks it; of several types, it becomes texts."""
    places = [part.schema.get_field_index(name) for part in parts]
    each = [
        pa.table({name: pa.nulls(len(part)) if place < 0 else part[place]}) for part, place in zip(parts, places, strict=True)
    ]
    try:
        return pa.concat_tables(each, promote_options="permissive")[name]
    except pa.ArrowException:
        return pa.chunked_array([as_words(chunk.to_pylist()) for part in each for chunk in part[name].chunks], pa.string())


def _blocks_of_datasets(source: str, split: str, rows: int | None) -> Iterator[Any]:
    """Yields the blocks of a folder that `datasets` saved, or of a data set of the hub, which is streamed."""
    folder = Path(source)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise DataError(f"{source} is a folder, and not one that datasets saved (save_to_disk): name one file.")
    metadata = {}
    try:
        import datasets  # type: ignore[import-untyped]
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingDependencyError(f"{source} needs datasets, which is missing: {install_command('simcse')}.") from error
    try:
        if folder.is_dir():
            data = datasets.load_from_disk(source)
            if isinstance(data, datasets.DatasetDict):
                if split not in data:
                    raise DataError(f"{source} has no split '{split}', only {', '.join(data)}: name the folder of one of them.")
                data = data[split]
        else:
            name, _, configuration = source.partition(":")
            commit = HfApi().dataset_info(name).sha or ""
            data = datasets.load_dataset(name, configuration or None, split=split, streaming=True, revision=commit)
            metadata[COMMIT] = commit.encode()
        data = data if rows is None else data.take(rows)
        if data.features is not None:
            metadata[b"huggingface"] = json.dumps({"info": {"features": data.features.to_dict()}}).encode()
        start = 1
        for batch in data.with_format("arrow").iter(ROWS):
            for part in batch.to_batches():
                yield block_of(part.schema.names, part.columns, range(start, start + len(part)), metadata)
                start += len(part)
    except (OSError, ValueError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:
        raise error if isinstance(error, DataError) else DataError(f"{source} cannot be read: {one_line(error)}") from error
