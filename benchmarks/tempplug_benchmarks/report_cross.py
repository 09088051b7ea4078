"""The table of all modalities: strategies by tasks, each cell in its parts, and in words what the ranks tell.

It must not know how anything is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.cross_modality import (
    BASELINE,
    REFERENCES,
    Ranking,
    TaskColumn,
    columns,
    ranking,
    temperature,
)
from tempplug_benchmarks.report_tables import (
    NOTHING,
    SEPARATOR,
    Row,
    Table,
    format_difference,
    format_summary,
    task_title,
    title,
)
from tempplug_benchmarks.run.tuning import fixed_temperatures
from tempplug_benchmarks.significance import LEVEL, Verdict

TITLE = "All tasks"
MARKS = {"better": "▲", "worse": "▼"}
QUIET = ("no signal", "one seed")
"""Verdicts of which nothing can be concluded."""
READING_CROSS = (
    "rank of the mean within the task, and difference to its baseline with the 95 % interval; ▲ better and ▼ worse: at least "
    "five seeds, p below 0.05 after correction, and a difference that matters; without a mark nothing is shown. A strategy is "
    "as its task's recipe has it; other objectives and temperatures are in the tables of the tasks. Lowest and highest are the "
    "ends of the fixed temperatures that were run, without a rank."
)


@dataclass(frozen=True)
class CrossCell:
    """One strategy on one task.

    Attributes:
        rank: by the mean; ``no signal`` where nothing is ranked; empty where the strategy was not run, or is none.
        figure: the difference to the baseline with its interval; of the baseline the mean; empty where it was not run.
        verdict: on the difference, or ``baseline``; ``no signal`` where nothing is ranked, empty where there is no difference.
    """

    rank: str = ""
    figure: str = ""
    verdict: Verdict | str = ""

    @property
    def text(self) -> str:
        """All of it: rank, difference and mark; then the interval."""
        figure, bracket, interval = self.figure.partition(" [")
        ranked = " · ".join(filter(None, (self.rank, figure)))
        first = " ".join(filter(None, (ranked, MARKS.get(self.verdict))))
        return SEPARATOR.join(filter(None, (first, (bracket + interval).strip()))) if self.figure else NOTHING


@dataclass(frozen=True)
class CrossTable:
    """Strategies by tasks.

    Attributes:
        columns: the tasks.
        mean_ranks: by strategy, best first, those that are not ranked last; empty text for these.
        cells: by strategy, one a task.
        remarks: what is to be said about it.
    """

    columns: tuple[TaskColumn, ...]
    mean_ranks: dict[str, str]
    cells: dict[str, tuple[CrossCell, ...]]
    remarks: tuple[str, ...]


def cross(comparisons: Sequence[Comparison]) -> CrossTable | None:
    """Returns the table; None where fewer than two tasks compare strategies.

    Args:
        comparisons: of any suites, profiles and tasks.
    """
    found = tuple(columns(comparisons))
    if len(found) < 2:
        return None
    ranked = ranking(found)
    means = ranked.strategies if ranked else {}
    others = sorted({name for column in found for name in column.rows} - means.keys())
    names = [*means, *sorted(others, key=lambda name: name != BASELINE)]
    names += [name for name in REFERENCES if any(name in column.references for column in found)]
    remarks = [READING_CROSS, _ranks_in_words(ranked)]
    quiet = [title(column.comparison) for column in found if not column.ranks]
    if quiet:
        remarks.append(f"no signal, so that nothing is ranked: {', '.join(quiet)}")
    return CrossTable(
        found,
        {name: f"{means[name]:.2f}" if name in means else "" for name in names},
        {name: tuple(_cell(column, name) for column in found) for name in names},
        tuple(remarks),
    )


def cross_table(comparisons: Sequence[Comparison]) -> tuple[Table, tuple[str, ...]] | None:
    """Returns the table as plain strings, a line for each task, and what is to be said about it; see `cross`."""
    found = cross(comparisons)
    if found is None:
        return None
    means = tuple(mean or NOTHING for mean in found.mean_ranks.values())
    rows = [Row(("mean rank", *means), "baseline")] if any(found.mean_ranks.values()) else []
    for position, column in enumerate(found.columns):
        each = column.comparison
        cells = (found.cells[name][position].text for name in found.mean_ranks)
        rows.append(Row((f"{each.suite} / {task_title(each)}: {each.primary.name}", *cells), "measured"))
    return Table(("task", *found.mean_ranks), tuple(rows)), found.remarks


def _cell(column: TaskColumn, name: str) -> CrossCell:
    row = column.rows.get(name, column.references.get(name))
    if row is None:
        return CrossCell()
    metric, difference = column.comparison.primary, row.differences.get(column.comparison.primary.name)
    figure = format_summary(row.summaries[metric.name], metric) if difference is None else format_difference(difference, metric)
    if row.label in fixed_temperatures(column.comparison.task, [row.label]):
        figure = f"τ {temperature(row):g}: {figure}"
    if not column.ranks:
        return CrossCell(QUIET[0], figure, QUIET[0])
    verdict = "baseline" if row.label == column.comparison.baseline else row.significance.verdict if row.significance else ""
    return CrossCell(f"{column.ranks[name]:g}" if name in column.ranks else "", figure, verdict)


def _ranks_in_words(found: Ranking | None) -> str:
    if found is None:
        return "mean ranks: fewer than three data sets with a signal have three strategies in common."
    told = f"mean ranks over {found.data_sets} data sets of {len(found.strategies)} strategies: Friedman p = {found.p:.2g}"
    if found.p >= LEVEL:
        return f"{told}, so that no order of the strategies is shown."
    return f"{told}; two differ where their mean ranks are {found.critical:.2f} apart (Nemenyi, level {LEVEL})."
