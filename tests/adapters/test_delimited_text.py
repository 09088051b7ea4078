"""Text with delimiters: pyarrow reads the lines without quotes, and must give the rows, the lines and the refusals of `csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tempplug.errors import DataError
from tempplug_adapters.data_files import delimited_text, text_streams
from tempplug_adapters.data_files.tables import open_table

FIELDS = ["a", "1", "é", " ", "  b", "c ", "", "", "\0", "\u2028", "\ufeff", "\x1f", "NA", "nan", "\\"]
ODD = ['"', '"d"', '"e\nf"', '"g', "\r", "\t", ";"]
ENDS = ["\n", "\n", "\r\n", "\n\n", "\r\n\r\n", "\n \n"]


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """The name of a file, and its text: mostly rows of as many fields, with some that are not."""
    delimiter, suffix = draw(
        st.sampled_from([(",", "csv"), (";", "csv"), ("\t", "tsv"), ("|", "csv"), ("::", "dat"), (",", "txt")])
    )
    width, end = draw(st.integers(1, 3)), draw(st.sampled_from(ENDS))
    field = st.sampled_from(FIELDS if draw(st.booleans()) else FIELDS + ODD)
    rows = draw(st.lists(st.lists(field, min_size=width, max_size=width), max_size=6))
    if draw(st.integers(0, 4)) == 0:
        rows.append(draw(st.lists(field, max_size=4)))
    lines = [["x", "y", "z"][:width], *rows]
    text = end.join(delimiter.join(row) for row in lines) + draw(st.sampled_from(["", end]))
    return f"t.{suffix}", draw(st.sampled_from(["", "\ufeff"])) + text


def read(path: Path, header: bool) -> Any:
    """The names, the rows and their lines, or the refusal."""
    try:
        table = open_table(path, header=header)
    except DataError as error:
        return str(error)
    columns = [table.column(name).to_pylist() for name in table.names]
    return table.names, list(zip(*columns, strict=True)), [table.place(row) for row in range(len(table))]


@settings(deadline=None, max_examples=150)
@given(named=texts(), header=st.booleans())
def test_pyarrow_reads_what_csv_reads(tmp_path_factory: pytest.TempPathFactory, named: tuple[str, str], header: bool) -> None:
    name, text = named
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited_text, "_fast_block", lambda *_: None)
        expected = read(path, header)
    assert read(path, header) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_streams, "_CHARACTERS", 4)  # a block for each line or two
        assert read(path, header) == expected


@settings(deadline=None)
@given(rows=st.lists(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=2), min_size=1))
def test_the_fields_are_those_of_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    text = "x,y\n" + "".join(f"{','.join(row)}\n" for row in rows)
    path = tmp_path_factory.getbasetemp() / "fields.csv"
    path.write_bytes(text.encode())
    table = open_table(path)
    expected = list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True))[1:]
    assert [
        [cell or "" for cell in row] for row in zip(*(table.column(name).to_pylist() for name in "xy"), strict=True)
    ] == expected


def test_lines_without_quotes_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = '"u\nv",w\n'
    (tmp_path / "t.csv").write_text("a,b\n" + "x, y\n" * 4000 + quoted + "z,1\n" * 4000)
    monkeypatch.setattr(text_streams, "_CHARACTERS", 1 << 10)
    lines: list[int] = []
    rows = delimited_text._rows

    def counted(*arguments: Any) -> Iterator[Any]:
        for row in rows(*arguments):
            lines.append(row[0])
            yield row

    monkeypatch.setattr(delimited_text, "_rows", counted)
    table = open_table(tmp_path / "t.csv")
    assert table.column("b").to_pylist() == ["y"] * 4000 + ["w"] + ["1"] * 4000
    assert table.place(4001).endswith("line 4004")
    assert lines[0] == 1  # the header, and then the lines of the block with quotes
    assert 4002 in lines
    assert len(lines) < 400
