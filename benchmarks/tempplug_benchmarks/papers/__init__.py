"""Figures reported by papers (one JSON file per field), and the runs that reproduce their tables (``maps/``, TOML).

``sentence.json`` leaves out the transfer row of DySTreSS* in table 5 of DySTreSS, which equals that of table 11.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tempplug.errors import DataError, UnknownNameError, nearest


@dataclass(frozen=True)
class Paper:
    """A paper: its key in cells (``macl``), its name in reports (``MACL``), and authors, year and title."""

    key: str
    name: str
    citation: str


@dataclass(frozen=True)
class Cell:
    """One figure of one table.

    Attributes:
        table: number of the table as printed, e.g. ``B.4``.
        dataset: heading of the group of columns.
        metric: column heading.
        method: row heading.
        value: the printed figure; None if missing.
        std: the printed standard deviation; None if missing.
        settings: settings that the paper gives for the row: model, temperatures, batch size.
        note: remark about this figure; empty without one.
    """

    paper: str
    table: str
    dataset: str
    metric: str
    method: str
    value: float | None
    std: float | None
    settings: Mapping[str, str | int | float | None]
    note: str


@dataclass(frozen=True)
class PaperRow:
    """Identifies one row of one table: the method and the group of columns."""

    paper: str
    table: str
    method: str
    dataset: str


@dataclass(frozen=True)
class PaperTables:
    """The transcribed cells of one file."""

    name: str
    papers: Mapping[str, Paper]
    cells: tuple[Cell, ...]

    def row(self, row: PaperRow) -> dict[str, Cell]:
        """Returns the cells of a row by metric; raises `UnknownNameError` unless exactly one row matches."""
        found: dict[str, Cell] = {}
        for cell in self.cells:
            if (cell.paper, cell.table, cell.method, cell.dataset) != (row.paper, row.table, row.method, row.dataset):
                continue
            if cell.metric in found:
                raise UnknownNameError(f"table {row.table} of '{row.paper}' has several rows '{row.method}' for {row.dataset}.")
            found[cell.metric] = cell
        if not found:
            methods = sorted({cell.method for cell in self.cells if (cell.paper, cell.table) == (row.paper, row.table)})
            raise UnknownNameError(
                f"table {row.table} of '{row.paper}' has no row '{row.method}' for {row.dataset}."
                f"{nearest(row.method, methods)} Rows: {', '.join(methods) or 'none'}."
            )
        return found


@cache
def load(name: str) -> PaperTables:
    """Returns the transcribed tables of that name, or raises `DataError` if there is no such file."""
    source = files("tempplug_benchmarks.papers").joinpath(f"{name}.json")
    if not source.is_file():
        raise DataError(f"there are no transcribed tables named '{name}' in tempplug_benchmarks/papers.")
    content = json.loads(source.read_text(encoding="utf-8"))
    papers = {key: Paper(key=key, **entry) for key, entry in content["papers"].items()}
    return PaperTables(name, papers, tuple(Cell(**cell) for cell in content["cells"]))
