"""Files of tables as other tools write them: functions from a path to nothing, made of a tool, its table and its options."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow
from pyarrow import feather, parquet

Write = Callable[[Path], Any]


def of_pandas(columns: Any, method: str, **options: Any) -> Write:
    """Writes by a method of a DataFrame such as ``to_csv``; without options as people call it, with the row numbers."""
    return lambda path: getattr(pandas.DataFrame(columns), method)(path, **options)


def of_polars(columns: dict[str, Any], method: str, **options: Any) -> Write:
    """Writes by a method of polars, such as ``write_ndjson``."""
    return lambda path: getattr(polars.DataFrame(columns), method)(path, **options)


def of_arrow(columns: dict[str, Any], kind: str = "parquet", **options: Any) -> Write:
    """Writes ``parquet`` or ``feather`` by pyarrow."""
    write = {"parquet": parquet.write_table, "feather": feather.write_feather}[kind]
    return lambda path: write(pyarrow.table(columns), path, **options)


def of_datasets(columns: dict[str, Any], split: str | None = None, rows: Sequence[int] | None = None) -> Write:
    """Writes a folder by ``save_to_disk``: a data set, or one of several splits; with ``rows`` a selection of them."""

    def write(path: Path) -> None:
        data: Any = datasets.Dataset.from_dict(columns)
        data = data if rows is None else data.select(rows)
        (data if split is None else datasets.DatasetDict({split: data})).save_to_disk(str(path))

    return write


def of_csv(rows: Sequence[Sequence[object]], encoding: str = "utf-8", **options: Any) -> Write:
    """Writes by Python's ``csv``; ``dialect="excel-tab"`` and ``delimiter=";"`` are what spreadsheets save."""

    def write(path: Path) -> None:
        with path.open("w", encoding=encoding, newline="") as stream:
            csv.writer(stream, **options).writerows(rows)

    return write


def of_lines(*rows: object, ends: str = "\n", packed: bool = False, encoding: str = "utf-8") -> Write:
    """Writes a line each: texts as they are, other objects as JSON."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    content = "".join(line + ends for line in lines).encode(encoding)
    return lambda path: path.write_bytes(gzip.compress(content) if packed else content)


def of_bytes(content: bytes) -> Write:
    """Writes bytes."""
    return lambda path: path.write_bytes(content)
