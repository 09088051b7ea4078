"""What the map of a paper says: each table and figure with the runs that answer its cells, and the reasons for the others.

Cells are named as the tables print them. This module must not know any paper, nor how runs are planned or listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tempplug.errors import UnknownNameError, nearest


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
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

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
        """Returns the table of that number.

        Raises:
            UnknownNameError: there is none; the nearest and all numbers are in the message.
        """
        known = {table.number: table for table in self.tables}
        if number not in known:
            raise UnknownNameError(
                f"paper '{self.key}' has no table '{number}'.{nearest(number, known)} It has: {', '.join(known)}."
            )
        return known[number]
