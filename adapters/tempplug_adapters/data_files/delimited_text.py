"""Reads text with delimiters as blocks of Arrow columns of texts, as written; a cell without content is missing.

Python's `csv` reads it, because pyarrow's reader takes the lines after an open quote for one field and reports nothing.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from tempplug.errors import DataError
from tempplug_adapters.data_files.text_streams import (
    HEAD,
    encoding_of,
    file_kind,
    naming,
    open_bytes,
    open_text,
    read_head,
)

LINE: Final = "\0line"
"""Column of each block with the number of the line, or of the row, that a row begins on, from 1."""
ROWS: Final = 1 << 15
"""Rows of a block."""
_LONGEST_FIELD: Final = 1 << 27
_DELIMITERS: Final = {".tsv": "\t,;|", ".tab": "\t,;|"}
_USUAL: Final = ",;\t|"

HasHeader = Callable[[Sequence[Sequence[str]]], bool]
"""From the first rows to whether the first has the names of the columns."""
Rows = Iterator[tuple[int, list[str]]]
"""The line that each row begins on, and its fields."""


def first_rows(path: Path) -> list[list[str]]:
    """Returns the first rows of a file, at most 100, as if it were text with delimiters; raises `DataError`."""
    with naming(path):
        return _sniffed(path, read_head(path), blanks=False)[1]


def _sniffed(path: Path, head: bytes, blanks: bool) -> tuple[str, list[list[str]], int]:
    """Returns the delimiter, empty for one column, the first rows, and the number of lines before them (Excel's ``sep=;``).

    ``.dat`` is what MovieLens calls its files, whose fields are separated by ``::``.
    """
    encoding = encoding_of(path, head)
    text = codecs.getincrementaldecoder(encoding)().decode(head)
    end = "\n" if "\n" in text else "\r"
    lines = re.findall(f"[^{end}]*{end}|[^{end}]+$", text)
    if len(head) == HEAD and len(lines) > 1:
        lines.pop()  # which may be cut
    if chosen := re.fullmatch(r"sep=(.)\r?\n", lines[0]):
        return chosen[1], _rows_of(lines[1:], chosen[1]), 1
    first = next((line for line in lines if line.strip()), "")
    if file_kind(path) == ".dat" and "::" in first:
        return "::", [line.rstrip("\r\n").split("::") for line in lines[:100] if line.strip()], 0
    usual = _DELIMITERS.get(file_kind(path), _USUAL)
    present = [each for each in usual if any(len(row) > 1 for row in _rows_of([first], each))]
    if not present:
        if blanks and len(first.split()) > 1:
            return " ", [line.split() for line in lines[:100] if line.strip()], 0
        return "", _rows_of(lines, ","), 0
    read = {each: _rows_of(lines, each) for each in present}
    even = [each for each, rows in read.items() if len({len(row) for row in rows}) == 1]
    delimiter = (even or present)[0]
    return delimiter, read[delimiter], 0


def _reader(lines: Iterable[str], delimiter: str, strict: bool = False) -> Any:
    """Returns a reader of fields, which may be quoted also after blanks behind the delimiter."""
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)


def _rows_of(lines: list[str], delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(csv.Error):  # the whole file is read strictly, which names the line
        rows.extend(row for row in _reader(lines[:100], delimiter) if row)
    return rows[:-1] if len(lines) > 100 else rows  # the last one may go on


def delimited_blocks(path: Path, head: bytes, header: bool | HasHeader, blanks: bool) -> Iterator[Any]:
    """Yields the blocks of a text, whose first bytes are ``head``; see `table_blocks.read_blocks`."""
    delimiter, first, skipped = _sniffed(path, head, blanks)
    named = header if isinstance(header, bool) else header(first)
    encoding = encoding_of(path, head)
    if delimiter == "\t" and not _is_quoted(path, encoding):
        yield from _named_blocks(path, encoding, named, skipped, lambda lines: _unquoted(lines, "\t"))
    elif delimiter in (" ", "::"):
        yield from _named_blocks(path, encoding, named, skipped, lambda lines: _unquoted(lines, delimiter.strip() or None))
    else:
        yield from _named_blocks(path, encoding, named, skipped, lambda lines: _quoted(lines, delimiter or ","))


def _unquoted(lines: Iterator[str], delimiter: str | None) -> Rows:
    for number, line in enumerate(lines, start=1):
        if stripped := line.rstrip("\r\n"):
            yield number, stripped.split(delimiter)


def _quoted(lines: Iterator[str], delimiter: str) -> Rows:
    csv.field_size_limit(_LONGEST_FIELD)
    reader, number = _reader(lines, delimiter, strict=True), 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = f" on line {reader.line_num}" if reader.line_num > number else ""
            fault = f"{error}{where}; is a quote left open?"
            if "new-line" in str(error):
                fault = f"a carriage return in a field without quotes{where}: quote the field, or remove it"
            raise DataError(f"in the row that begins on line {number}: {fault}") from error
        if fields:
            yield number, fields
        number = reader.line_num + 1


def _is_quoted(path: Path, encoding: str) -> bool:
    """Returns whether every field of a file with tabs that begins with a quote is quoted, as pandas and Excel write them.

    Corpora of sentences have bare quotes. A field with a tab and the end of a line in it would be two rows of such a corpus.
    """
    with open_bytes(path) as packed:
        if not any(b'"' in part for part in iter(lambda: packed.read(HEAD), b"")):
            return False
    count = None
    with open_text(path, encoding) as stream:
        try:
            for _, fields in _quoted(stream, "\t"):
                if len(fields) != (count := count or len(fields)) or any("\t" in each and "\n" in each for each in fields):
                    return False
        except DataError:
            return False
    return True


def _named_blocks(path: Path, encoding: str, named: bool, skipped: int, read: Callable[[Iterator[str]], Rows]) -> Iterator[Any]:
    with open_text(path, encoding) as stream:
        rows = read(stream)
        try:
            rows = itertools.dropwhile(lambda row: row[0] <= skipped, rows)
            number, fields = next(rows)
            if named:
                names = column_names(path, fields)
            else:
                names, rows = [str(place) for place in range(1, len(fields) + 1)], itertools.chain([(number, fields)], rows)
            first = f"line {number} has {len(names)}"
            while True:
                block = list(itertools.islice(rows, ROWS))
                for number, fields in block:
                    if len(fields) != len(names):
                        raise DataError(f"line {number}: {len(fields)} fields, but {first}; quote fields with a delimiter.")
                columns = [[each or None for each in column] for column in zip(*(fields for _, fields in block), strict=True)]
                arrays = [pa.array(each, pa.string()) for each in columns or [[]] * len(names)]
                yield block_of(names, arrays, [number for number, _ in block])
                if len(block) < ROWS:
                    return
        except DataError as error:
            message = str(error)
            raise error if message.startswith(str(path)) else DataError(f"{path}, {message}") from error


def column_names(path: Path, fields: Sequence[str]) -> list[str]:
    """Returns the names of a header, ``Unnamed: 0`` for one without; raises `DataError` if a name occurs twice."""
    names = [field.strip() or f"Unnamed: {place}" for place, field in enumerate(fields)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: two columns are called '{twice[0]}'; rename one. It has: {', '.join(names)}.")
    return names


def block_of(names: Sequence[str], arrays: Sequence[Any], lines: Sequence[int] | Any, metadata: Any = None) -> Any:
    """Returns a record batch of columns and the column `LINE`."""
    return pa.RecordBatch.from_arrays([*arrays, pa.array(lines, pa.int64())], [*names, LINE], metadata=metadata)
