"""Reads JSON as blocks of Arrow columns: an object a line, or an array of objects.

pyarrow reads it, and Python's `json` the blocks with values that pyarrow would change or refuse: integers beyond 53 bits in a
column of floating-point numbers or beyond 64 bits, and columns of several types, which become texts.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import json as arrow_json

from tempplug.errors import DataError
from tempplug_adapters.data_files.delimited_text import ROWS, block_of
from tempplug_adapters.data_files.text_streams import file_kind, line_blocks, open_text
from tempplug_adapters.storage.files import one_line

_MOST_CHARACTERS: Final = 1 << 29
"""Of an array, which is read at once."""


def json_blocks(path: Path, head: bytes) -> Iterator[Any]:
    """Yields the blocks of a file, whose first bytes are ``head``; see `table_blocks.read_blocks`."""
    with open_text(path, head) as stream:
        blocks, line = line_blocks(stream), 1
        first = next(blocks, "")
        if first.lstrip().startswith("["):
            yield from _json_array(path, first + stream.read(_MOST_CHARACTERS))
            return
        for content in itertools.chain([first], blocks):
            if content.strip():
                block = _json_block(path, content.encode(), line)
                if (
                    file_kind(path) == ".json"
                    and line == block.num_rows == 1
                    and all(map(pa.types.is_nested, block.schema.types[:-1]))
                ):
                    raise DataError(f"{path} has columns, not rows: write table.to_json(FILE, orient='records', lines=True).")
                yield block
            line += content.count("\n")


def _json_block(path: Path, content: bytes, line: int) -> Any:
    """Returns a block of JSON objects, a line each, of which the first is ``line``."""
    table = None
    options = arrow_json.ReadOptions(block_size=len(content) + 1)
    try:
        table = arrow_json.read_json(io.BytesIO(content), options)
        schema = pa.schema([(field.name, _without_times(field.type)) for field in table.schema])
        if schema != table.schema:
            table = arrow_json.read_json(io.BytesIO(content), options, arrow_json.ParseOptions(schema))
    except pa.ArrowException:
        table = None  # the rows are read one by one, which finds the line
    lines = content.split(b"\n")
    numbers: Any = [line + place for place, each in enumerate(lines) if each.strip()]
    if table is None or table.num_rows != len(numbers) or any(_inexact(each) for each in table.columns):
        return _json_rows(path, [(number, lines[number - line]) for number in numbers])
    batches = table.combine_chunks().to_batches()
    return block_of(table.column_names, batches[0].columns if batches else [], numbers)


def _json_rows(path: Path, lines: Sequence[tuple[int, bytes]]) -> Any:
    rows = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"not JSON ({getattr(error, 'msg', error)}); a row must be one object on one line"
            raise DataError(f"{path}, line {number}: {reason}.") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: must be a JSON object with one key a column.")
        rows.append(row)
    return _objects(path, rows, [number for number, _ in lines])


def _json_array(path: Path, content: str) -> Iterator[Any]:
    if len(content) > _MOST_CHARACTERS:
        raise DataError(f"{path} is too large for one JSON array: write a row a line, table.to_json(FILE, lines=True).")
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        listed = getattr(error, "msg", "") == "Extra data"
        reason = (
            "has arrays without names of columns; a row must be one object" if listed else f"is not JSON: {one_line(error)}"
        )
        raise DataError(f"{path} {reason}.") from error
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} must be an array of objects, or have an object a line, with one key a column.")
    for start in range(0, len(rows), ROWS):
        yield _objects(path, rows[start : start + ROWS], range(start + 1, min(start + ROWS, len(rows)) + 1))


def _objects(path: Path, rows: Sequence[dict[str, Any]], numbers: Sequence[int]) -> Any:
    names = list(dict.fromkeys(key for row in rows for key in row))
    arrays = []
    for name in names:
        values = [row.get(name) for row in rows]
        if {type(value) for value in values} - {type(None)} == {str, list}:
            values = [[value] if isinstance(value, str) else value for value in values]
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            array = None
        if array is None or _inexact(array):
            try:
                array = as_words(values)
            except UnicodeEncodeError as error:
                words = [json.dumps(value, ensure_ascii=False) for value in values]
                number = next(number for number, word in zip(numbers, words, strict=True) if re.search("[\ud800-\udfff]", word))
                raise DataError(
                    f"{path}, line {number}: '{name}' holds half a surrogate pair, which is not a character."
                ) from error
        arrays.append(array)
    return block_of(names, arrays, numbers)


def as_words(values: Iterable[Any]) -> Any:
    """Returns values of several types as Arrow's texts: a text as it is, another value as JSON."""
    words = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    )
    return pa.array(words, pa.string())


def _inexact(array: Any) -> bool:
    """Returns whether a column of floating-point numbers could have been of integers that it cannot represent."""
    if not pa.types.is_floating(array.type):
        return False
    largest = pc.max(pc.abs(array)).as_py()
    return largest is not None and 2**53 <= largest < 1e20


def _without_times(kind: Any) -> Any:
    """Returns a type of JSON with texts where pyarrow found texts that look like times, which it would rewrite."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(place).name, _without_times(kind.field(place).type)) for place in range(kind.num_fields)])
    return kind
