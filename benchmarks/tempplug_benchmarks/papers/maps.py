"""The mapping from tables and figures of five papers to runs, or reasons why there are none: ``maps/PAPER.toml``.

Cells have the names printed in the tables. An answer may refer to a named mapping of arms or metrics defined once in the file,
and may list ``cases``: one answer each, which combine the shared keys and those of the case.
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
    """Cells reproduced by one task.

    Attributes:
        task: ``SUITE/TASK``, optionally followed by ``@`` and settings (`Suite.task`).
        dataset: heading of the cells' group of columns; empty for a figure without headings.
        metrics: our metrics in the paper profile, by printed heading.
        arms: our arms by printed row heading. A number in braces is a number of epochs in the paper, which smaller profiles
            scale down: ``schedule:period={200}+infonce``.
        settings: settings that a cell must also match, because rows may differ only in these.
    """

    task: str
    dataset: str = ""
    metrics: Mapping[str, str]
    arms: Mapping[str, str]
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that no run reproduces.

    Attributes:
        why: the reason, one line.
        datasets: headings of the groups of columns; empty for all.
        metrics: column headings; empty for all.
        methods: row headings; empty for all.
    """

    why: str
    datasets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    methods: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TableMap:
    """One table or figure.

    Attributes:
        number: as printed, such as ``B.1``; ``figure-3`` for a figure.
        title: short description.
        answers: the runs.
        gaps: cells without runs.
        command: command that draws a figure, if it is not a run of a suite.
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
        key: short name, used in cells and by ``--paper``.
        citation: authors, year and title.
        tables: in the order of the paper, followed by the figures.
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
