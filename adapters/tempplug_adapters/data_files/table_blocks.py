"""Reads files of tables as blocks of Arrow columns, whatever wrote them: text with delimiters, JSON, parquet, Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from tempplug.errors import DataError
from tempplug_adapters.data_files.delimited_text import ROWS, HasHeader, block_of, column_names, delimited_blocks
from tempplug_adapters.data_files.json_rows import json_blocks
from tempplug_adapters.data_files.text_streams import file_kind, naming, read_head
from tempplug_adapters.storage.files import one_line

JSON_LINES: Final = (".jsonl", ".ndjson")
ARROW: Final = (".arrow", ".feather")
_BYTES: Final = 1 << 26
"""Bytes of a parquet file that are read together."""


def read_blocks(path: Path, header: bool | HasHeader = True, blanks: bool = False) -> Iterator[Any]:
    """Yields the record batches of a file, which may differ in columns and types; each has the column `LINE`.

    Args:
        path: ``.json`` (an array of objects), ``.jsonl``, ``.ndjson``, ``.parquet``, ``.arrow``, ``.feather``; other files are
            text with delimiters. Whether it is packed by gzip is found from its content.
        header: whether the first row of text with delimiters has names, or a function that says so; columns without names are
            called ``1``, ``2`` and so on.
        blanks: whether blanks separate the fields of a text whose first line has no other delimiter.

    Raises:
        DataError: the file is missing, empty, damaged, packed otherwise, or unpacks to far more than its size.
    """
    with naming(path):
        head, kind = read_head(path), file_kind(path)
        try:
            if head.startswith(b"PAR1"):
                yield from _parquet_blocks(path)
            elif head.startswith(b"ARROW1") or kind in ARROW:
                yield from _arrow_blocks(path)
            elif kind in (".json", *JSON_LINES):
                yield from json_blocks(path, head)
            elif kind == ".parquet":
                raise DataError(f"{path} is not a parquet file, or its beginning is missing: write or download it again.")
            else:
                yield from delimited_blocks(path, head, header, blanks)
        except pa.ArrowException as error:
            raise DataError(f"{path} cannot be read: {one_line(error)}") from error


def _plain_type(kind: Any) -> Any:
    """Returns a type without encodings that pyarrow's functions do not read: dictionaries (pandas' categories) and views."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _numbered(batches: Iterator[Any]) -> Iterator[Any]:
    start = 1
    for encoded in batches:
        batch = encoded.cast(
            pa.schema([(each.name, _plain_type(each.type)) for each in encoded.schema], encoded.schema.metadata)
        )
        yield block_of(batch.schema.names, batch.columns, range(start, start + batch.num_rows), batch.schema.metadata)
        start += batch.num_rows


def _parquet_blocks(path: Path) -> Iterator[Any]:
    with parquet.ParquetFile(path) as file:
        column_names(path, file.schema_arrow.names)
        size = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
        rows = max(1, file.metadata.num_rows * _BYTES // max(1, size))  # images are large
        yield from _numbered(file.iter_batches(batch_size=min(ROWS, rows)))
        if file.metadata.num_rows == 0:
            yield _no_rows(file.schema_arrow)


def _arrow_blocks(path: Path) -> Iterator[Any]:
    with pa.memory_map(str(path)) as source:
        head = source.read(6)
        source.seek(0)
        reader = pa.ipc.open_file(source) if head == b"ARROW1" else pa.ipc.open_stream(source)
        column_names(path, reader.schema.names)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if head == b"ARROW1" else iter(reader)
        yield _no_rows(reader.schema)
        for batch in _numbered(iter(batches)):
            batch.validate(full=True)  # a damaged file would crash the process that reads its offsets
            yield batch


def _no_rows(schema: Any) -> Any:
    return block_of(schema.names, [pa.array([], _plain_type(each.type)) for each in schema], [], schema.metadata)
