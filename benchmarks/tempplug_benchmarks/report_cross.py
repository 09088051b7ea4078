"""The table of all modalities as plain strings: strategies by tasks, and in words what the ranks tell."""

from __future__ import annotations

from collections.abc import Sequence

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.cross_modality import BASELINE, Ranking, TaskColumn, columns, ranking
from tempplug_benchmarks.report_tables import NOTHING, Kind, Row, Table, title
from tempplug_benchmarks.significance import LEVEL

TITLE = "All tasks"
_MARKS = {"better": " ▲", "worse": " ▼"}
READING_CROSS = (
    "rank of the mean within the task, and difference to its baseline; ▲ better and ▼ worse after correction, without a mark "
    "nothing is shown. A strategy is as its task's recipe has it; other objectives and temperatures are in the tables below."
)


def cross_table(comparisons: Sequence[Comparison]) -> tuple[Table, tuple[str, ...]] | None:
    """Returns the table and what is to be said about it; None where fewer than two tasks compare strategies.

    Args:
        comparisons: of any suites, profiles and tasks.
    """
    found = columns(comparisons)
    if len(found) < 2:
        return None
    ranked = ranking(found)
    means = ranked.strategies if ranked else {}
    names = dict.fromkeys([*means, *(name for column in found for name in column.rows)])
    header = ("strategy", "mean rank", *(_heading(column) for column in found))
    rows = []
    for name in names:
        kind: Kind = "baseline" if name == BASELINE else "measured"
        mean = f"{means[name]:.2f}" if name in means else NOTHING
        rows.append(Row((name, mean, *(_cell(column, name) for column in found)), kind))
    remarks = [READING_CROSS, _ranks_in_words(ranked)]
    quiet = [title(column.comparison) for column in found if not column.ranks]
    if quiet:
        remarks.append(f"no signal, so that nothing is ranked: {', '.join(quiet)}")
    return Table(header, tuple(rows)), tuple(remarks)


def _heading(column: TaskColumn) -> str:
    comparison = column.comparison
    return f"{comparison.suite} / {comparison.task.name}: {comparison.primary.name}"


def _cell(column: TaskColumn, name: str) -> str:
    row = column.rows.get(name)
    if row is None:
        return NOTHING
    metric = column.comparison.primary
    rank = f"{column.ranks[name]:g}" if name in column.ranks else "no signal"
    difference = row.differences.get(metric.name)
    if difference is None:
        return f"{rank} · {row.summaries[metric.name].mean:.{metric.decimals}f}"
    mark = _MARKS.get(row.significance.verdict, "") if row.significance else ""
    return f"{rank} · {difference.mean:+.{metric.decimals}f}{mark}"


def _ranks_in_words(found: Ranking | None) -> str:
    if found is None:
        return "mean ranks: fewer than three tasks with a signal have three strategies in common."
    told = f"mean ranks over {found.tasks} tasks of {len(found.strategies)} strategies: Friedman p = {found.p:.2g}"
    if found.p >= LEVEL:
        return f"{told}, so that no order of the strategies is shown."
    return f"{told}; two differ where their mean ranks are {found.critical:.2f} apart (Nemenyi, level {LEVEL})."
