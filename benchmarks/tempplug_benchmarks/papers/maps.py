"""Which runs answer each table and figure of five papers, and why others are not answered: ``maps/PAPER.toml``.

Cells are named as the tables print them. An answer in a file may give the name of a mapping of arms or metrics that the file
defines once, and ``cases``: one answer each, with what all share and what the case adds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from tempplug.errors import UnknownNameError, nearest

PAPERS = ("dystress", "temperature-free", "temperature-schedules", "macl", "amcl")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Cells that one task measures.

    Attributes:
        task: ``SUITE/TASK``, settings of the table behind an ``@`` (`Suite.task`).
        dataset: heading of the cells' group of columns; empty where a figure prints none.
        metrics: ours, of the task's paper profile, by the printed heading.
        arms: ours by the printed heading of the row. A number in braces is a number of epochs of the paper's, which smaller
            profiles have fewer of: ``schedule:period={200}+infonce``.
        settings: that a cell must have beside: rows of one name may differ by them alone.
    """

    task: str
    dataset: str = ""
    metrics: Mapping[str, str]
    arms: Mapping[str, str]
    settings: Mapping[str, object] = field(default_factory=dict)

    def covers(self, dataset: str, metric: str, method: str, settings: Mapping[str, object]) -> bool:
        """Returns whether a cell is among them."""
        same = all(settings.get(name) == value for name, value in self.settings.items())
        return dataset == self.dataset and metric in self.metrics and method in self.arms and same


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that nothing measures.

    Attributes:
        why: the reason, one line.
        datasets: headings of the cells' groups of columns; empty: all.
        metrics: headings of their columns; empty: all.
        methods: headings of their rows; empty: all.
    """

    why: str
    datasets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    methods: Sequence[str] = ()

    def covers(self, dataset: str, metric: str, method: str) -> bool:
        """Returns whether a cell is among them."""
        named = ((dataset, self.datasets), (metric, self.metrics), (method, self.methods))
        return all(not names or name in names for name, names in named)


@dataclass(frozen=True, kw_only=True)
class TableMap:
    """One table or figure.

    Attributes:
        number: as printed, such as ``B.1``; ``figure-3`` of a figure.
        title: what it compares.
        answers: the runs.
        gaps: what is missing.
        command: what draws a figure, where that is no run of a suite.
    """

    number: str
    title: str
    answers: tuple[Answer, ...] = ()
    gaps: tuple[Gap, ...] = ()
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperMap:
    """One paper.

    Attributes:
        key: short name, as cells and ``--paper`` have it.
        citation: authors, year and title.
        tables: in the paper's order, figures behind them.
    """

    key: str
    citation: str
    tables: tuple[TableMap, ...]

    def table(self, number: str) -> TableMap:
        """Returns the table of that number, or raises `UnknownNameError` with the nearest number and all numbers."""
        known = {table.number: table for table in self.tables}
        if number not in known:
            raise UnknownNameError(
                f"paper '{self.key}' has no table '{number}'.{nearest(number, known)} It has: {', '.join(known)}."
            )
        return known[number]


@cache
def paper_map(key: str) -> PaperMap:
    """Returns the map of a paper, or raises `UnknownNameError` with the nearest name and all names."""
    if key not in PAPERS:
        raise UnknownNameError(f"no paper '{key}'.{nearest(key, PAPERS)} Known: {', '.join(PAPERS)}.")
    content = tomllib.loads(files("tempplug_benchmarks.papers").joinpath(f"maps/{key}.toml").read_text(encoding="utf-8"))
    return PaperMap(key=key, citation=content["citation"], tables=tuple(_table(entry, content) for entry in content["tables"]))


def _table(entry: dict[str, Any], content: Mapping[str, Any]) -> TableMap:
    answers = []
    for shared in entry.pop("answers", ()):
        for case in shared.pop("cases", ({},)):
            found = {**shared, **case}
            named = {kind: content[kind][found[kind]] for kind in ("metrics", "arms") if isinstance(found[kind], str)}
            answers.append(Answer(**{**found, **named}))
    gaps = tuple(Gap(**gap) for gap in entry.pop("gaps", ()))
    return TableMap(**entry, answers=tuple(answers), gaps=gaps)
