"""Reads the files of evaluation corpora: tables of UTF-8 text whose fields are separated by tabs and not quoted.

Sentences contain single quotation marks, with which readers of quoted fields lose rows.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_whole


def find_folder(data_dir: str | Path, kind: str, wanted: str, holds: Callable[[Path], bool]) -> Path:
    """Returns the first of ``data_dir``, its ``text/KIND`` and its ``KIND`` that ``holds`` the data; raises `DataError`."""
    data_dir = Path(data_dir)
    if not data_dir.is_dir():
        raise DataError(f"data_dir='{data_dir}' is not a folder; name the one that holds {wanted}.")
    for folder in (data_dir, data_dir / "text" / kind, data_dir / kind):
        if holds(folder):
            return folder
    raise DataError(f"data_dir='{data_dir}' holds none of {wanted}, nor do its text/{kind} and {kind}.")


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the position of each row ("FILE, line 2") and its fields in the order of ``columns``.

    Args:
        path: the file, decompressed if its name ends in ``.gz``.
        columns: names in the header, which may have others.

    Raises:
        DataError: the file cannot be read, is damaged or empty, is not UTF-8, a column is missing, or a row has more or fewer
            fields than the header.
    """
    # lines are split as bytes, because str.splitlines also splits at Unicode separators, which sentences may contain
    lines = read_whole(path).removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").split(b"\n")
    if lines == [b""]:
        raise DataError(f"{path} is empty; wanted a header with {', '.join(columns)} and a row a line.")
    header = _fields(path, 1, lines[0])
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(f"{path}, line 1: the header lacks {', '.join(missing)}; it has {', '.join(header)}.")
    if len(lines) == 1:
        raise DataError(f"{path} holds no rows, only a header.")
    places = [header.index(column) for column in columns]
    for number, line in enumerate(lines[1:], start=2):
        fields = _fields(path, number, line)
        if len(fields) != len(header):
            raise DataError(f"{path}, line {number}: {len(fields)} tab-separated fields, but the header has {len(header)}.")
        yield f"{path}, line {number}", [fields[place] for place in places]


def _fields(path: Path, number: int, line: bytes) -> list[str]:
    try:
        return line.removesuffix(b"\r").decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start} of the line).") from error
