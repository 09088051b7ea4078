"""Reads text with delimiters as blocks of Arrow columns of texts, as written; a cell without content is missing.

Python's `csv` reads what has quotes, because pyarrow's reader takes the lines after an open quote for one field and reports
nothing; pyarrow reads the lines without quotes.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv as arrow_csv

from tempplug.errors import DataError
from tempplug_adapters.data_files.text_streams import (
    HEAD,
    encoding_of,
    file_kind,
    line_blocks,
    line_ends,
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


def first_rows(path: Path) -> list[list[str]]:
    """Returns the first rows of a file, at most 100, as if it were text with delimiters; raises `DataError`."""
    with naming(path):
        return _sniffed(path, read_head(path), blanks=False)[1]


def _sniffed(path: Path, head: bytes, blanks: bool) -> tuple[str, list[list[str]], int]:
    """Returns the delimiter, empty for one column, the first rows, and the number of lines before them (Excel's ``sep=;``).

    ``.dat`` is what MovieLens calls its files, whose fields are separated by ``::``.
    """
    # the last letter and the last line may be cut
    lines = list(io.TextIOWrapper(io.BytesIO(head), encoding_of(path, head), "ignore", line_ends(head)))
    lines = lines[:-1] if len(head) == HEAD and len(lines) > 1 else lines
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
    quoted = delimiter not in (" ", "::") and (delimiter != "\t" or _is_quoted(path, head))
    with open_text(path, head) as stream:
        line = 1 + len(list(itertools.islice(stream, skipped)))
        number, fields, line = next(_rows(path, stream, delimiter, quoted, line), (line, [], line))
        if not fields:
            return
        named = header if isinstance(header, bool) else header(first)
        names = column_names(path, fields) if named else [str(place) for place in range(1, len(fields) + 1)]
        wanted = f"line {number} has {len(names)}"
        yield _block_of_rows(path, names, [] if named else [(number, fields, line)], line, wanted)[0]
        for content in line_blocks(stream):
            block, after = _fast_block(content, names, delimiter, quoted, line), line + content.count("\n")
            if block is None:
                lines = list(io.StringIO(content, newline=line_ends(head)))
                rows = _rows(path, itertools.chain(lines, stream), delimiter, quoted, line)
                block, after = _block_of_rows(path, names, rows, line + len(lines), wanted)
            line = after
            yield block


def _rows(path: Path, lines: Iterable[str], delimiter: str, quoted: bool, line: int) -> Iterator[tuple[int, list[str], int]]:
    """Yields the line that each row begins on, its fields and the line after it; the first of the lines is ``line``."""
    if not quoted:
        for number, text in enumerate(lines, start=line):
            if stripped := text.rstrip("\r\n"):
                yield number, stripped.split(delimiter.strip(" ") or None), number + 1
        return
    csv.field_size_limit(_LONGEST_FIELD)
    reader = _reader(lines, delimiter or ",", strict=True)
    while True:
        number = line + reader.line_num
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = line + reader.line_num - 1
            where = f" on line {last}" if last > number else ""
            fault = f"{error}{where}; is a quote left open?"
            if "new-line" in str(error):
                fault = f"a carriage return in a field without quotes{where}: quote the field, or remove it"
            raise DataError(f"{path}, in the row that begins on line {number}: {fault}") from error
        if fields:
            yield number, fields, line + reader.line_num


def _is_quoted(path: Path, head: bytes) -> bool:
    """Returns whether every field of a file with tabs that begins with a quote is quoted, as pandas and Excel write them.

    Corpora of sentences have bare quotes. A field with a tab and the end of a line in it would be two rows of such a corpus.
    """
    with open_bytes(path) as packed:
        if not any(b'"' in part for part in iter(lambda: packed.read(HEAD), b"")):
            return False
    count = None
    with open_text(path, head) as stream:
        try:
            for _, fields, _ in _rows(path, stream, "\t", quoted=True, line=1):
                if len(fields) != (count := count or len(fields)) or any("\t" in each and "\n" in each for each in fields):
                    return False
        except DataError:
            return False
    return True


def _block_of_rows(
    path: Path, names: Sequence[str], rows: Iterable[tuple[int, list[str], int]], end: int, wanted: str
) -> tuple[Any, int]:
    """Returns a block of the rows that begin before line ``end``, and the line after them: the last one may go on."""
    numbers: list[int] = []
    columns: list[list[str | None]] = [[] for _ in names]
    for number, fields, after in rows:
        if len(fields) != len(names):
            raise DataError(f"{path}, line {number}: {len(fields)} fields, but {wanted}; quote fields with a delimiter.")
        numbers.append(number)
        for column, field in zip(columns, fields, strict=True):
            column.append(field or None)
        if after >= end:
            end = after
            break
    return block_of(names, [pa.array(each, pa.string()) for each in columns], numbers), end


def _fast_block(content: str, names: Sequence[str], delimiter: str, quoted: bool, line: int) -> Any:
    """Returns the rows of some lines, read by pyarrow, which is several times faster; None where it would read other rows."""
    if (quoted and '"' in content) or content.count("\r") != content.count("\r\n") or content.startswith("\ufeff"):
        return None
    if delimiter in (" ", "::"):
        return None
    raw = content.encode()
    parse = arrow_csv.ParseOptions(delimiter=delimiter or ",", quote_char=False)
    convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    try:
        table = arrow_csv.read_csv(io.BytesIO(raw), arrow_csv.ReadOptions(column_names=names), parse, convert)
    except pa.ArrowInvalid:  # Python's message names the line
        return None
    letters = np.frombuffer(raw, np.uint8)
    starts = np.append(0, np.flatnonzero(letters == ord("\n")) + 1)
    starts = starts[starts < len(letters)]
    numbers = line + np.flatnonzero(~np.isin(letters[starts], [ord("\r"), ord("\n")]))
    words = [pc.utf8_ltrim(column, " " if quoted else "") for column in table.combine_chunks().columns]
    columns = [pc.if_else(pc.equal(each, ""), None, each).combine_chunks() for each in words]
    return block_of(names, columns, numbers)


def text_blocks(path: Path) -> Iterator[Any]:
    """Yields the blocks of a column ``text`` with the lines of a file, of which blank ones are missing; raises `DataError`."""
    with naming(path):
        head, line = read_head(path), 1
        with open_text(path, head) as stream:
            for content in line_blocks(stream):
                words = pa.array([each.strip() or None for each in io.StringIO(content, newline=line_ends(head))], pa.string())
                yield block_of(["text"], [words], range(line, line + len(words)))
                line += len(words)


def column_names(path: Path, fields: Sequence[str]) -> list[str]:
    """Returns the names of a header, ``Unnamed: 0`` for one without; raises `DataError` if a name occurs twice."""
    names = [field.strip() or f"Unnamed: {place}" for place, field in enumerate(fields)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: two columns are called '{twice[0]}'; rename one. It has: {', '.join(names)}.")
    return names


def block_of(names: Sequence[str], arrays: Sequence[Any], lines: Sequence[int] | Any, metadata: Any = None) -> Any:
    """Returns a record batch of columns and the column `LINE`."""
    return pa.RecordBatch.from_arrays([*arrays, pa.array(lines, pa.int64())], [*names, LINE], metadata=metadata)
