"""The table of strategies by tasks, and rank statistics over data sets.

A strategy is represented by the arm with the task's recipe. Fixed temperatures other than the baseline and untrained arms are
not ranked.
Source: Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets (Friedman's test, Nemenyi's difference).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import UNTRAINED, Arm, parse_arm
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.report.comparison import ArmRow, Comparison
from tempplug_benchmarks.report.significance import LEVEL
from tempplug_benchmarks.report.tables import (
    EXPLAINED,
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

BASELINE = "fixed"
"""Name of the baseline of every task; its temperature differs between tasks."""
LOWEST, HIGHEST = "fixed, lowest", "fixed, highest"
"""Names of the lowest and highest fixed temperature of a task, if they are not its baseline."""
REFERENCES = (LOWEST, HIGHEST, UNTRAINED.label)
TITLE = "All tasks"
MARKS = {"better": "▲", "worse": "▼"}


@dataclass(frozen=True)
class TaskColumn:
    """One task of the table.

    Attributes:
        comparison: comparison of its arms.
        rows: by strategy.
        references: rows of arms that are not strategies, by the names in `REFERENCES`.
        ranks: by strategy, 1 is best, ties share their mean rank; empty without a signal.
    """

    comparison: Comparison
    rows: Mapping[str, ArmRow]
    references: Mapping[str, ArmRow]
    ranks: Mapping[str, float]


@dataclass(frozen=True)
class Ranking:
    """Rank statistics of the strategies that several data sets have in common.

    Attributes:
        strategies: mean rank by strategy, best first.
        data_sets: number of data sets.
        p: p-value of the Friedman test for equal ranks; 1 if all ranks are equal.
        critical: critical difference of mean ranks in Nemenyi's test.
    """

    strategies: Mapping[str, float]
    data_sets: int
    p: float
    critical: float


def columns(comparisons: Sequence[Comparison]) -> list[TaskColumn]:
    """Returns one column for each task that compares strategies; comparisons may be of any suites, profiles and tasks."""
    found = [(comparison, strategy_rows(comparison)) for comparison in comparisons]
    return [
        TaskColumn(each, rows, _references(each), {} if each.signal is False else _ranks(each, rows))
        for each, rows in found
        if len(rows) > 1
    ]


def ranking(found: Sequence[TaskColumn]) -> Ranking | None:
    """Returns the rank statistics, or None if no three data sets have three strategies in common.

    Considers the strategies common to each pair of tasks and all data sets that have them, and uses the largest such table.
    Each data set is one row, because the Friedman test requires independent rows.
    """
    from scipy.stats import friedmanchisquare, studentized_range

    ranked = [each for each in found if each.ranks]
    best: tuple[list[TaskColumn], list[str]] | None = None
    for start in ranked:
        for other in ranked:
            names = [name for name in start.ranks if name in other.ranks]
            tasks = _one_a_data_set([each for each in ranked if all(name in each.ranks for name in names)])
            size = len(names) * len(tasks)
            if len(names) >= 3 and len(tasks) >= 3 and (best is None or size > len(best[0]) * len(best[1])):
                best = tasks, names
    if best is None:
        return None
    tasks, names = best
    table = [_ranks(each.comparison, {name: each.rows[name] for name in names}) for each in tasks]
    all_equal = all(len(set(row.values())) == 1 for row in table)
    p = 1.0 if all_equal else float(friedmanchisquare(*([row[name] for row in table] for name in names)).pvalue)
    spread = float(studentized_range.ppf(1 - LEVEL, len(names), math.inf)) / math.sqrt(2)
    means = {name: sum(row[name] for row in table) / len(table) for name in names}
    critical = spread * math.sqrt(len(names) * (len(names) + 1) / (6 * len(table)))
    return Ranking(dict(sorted(means.items(), key=lambda item: item[1])), len(table), p, critical)


def _one_a_data_set(found: Sequence[TaskColumn]) -> list[TaskColumn]:
    """Returns one column for each data set, from the largest profile of each task."""
    kept, seen = [], set[tuple[str, str]]()
    for column in sorted(found, key=lambda each: -PROFILES.index(each.comparison.profile_name)):
        each = column.comparison
        names = {(each.suite, each.task.name), (each.suite, each.dataset)}
        if not names & seen:
            kept.append(column)
        seen |= names
    return kept


def strategy_rows(comparison: Comparison) -> dict[str, ArmRow]:
    """Returns one row for each strategy, by name: the arm of the recipe, or else the first arm with the baseline's settings."""
    chosen: dict[str, ArmRow] = {}
    settings = comparison.baseline.partition("@")[2]
    for row in comparison.rows:
        parts = Arm(row.label).parts
        if comparison.primary.name not in row.summaries or not parts or row.label.partition("@")[2] != settings:
            continue
        if row.label == comparison.baseline:
            chosen[BASELINE] = row
            continue
        name, _ = parse_spec(parts[0])
        own = parse_arm(name, comparison.task.profile(comparison.profile_name).recipe).label
        if name != BASELINE and (name not in chosen or row.label == own):
            chosen[name] = row
    return chosen


def temperature(row: ArmRow) -> float:
    """Returns the temperature of an arm with strategy ``fixed`` and results, otherwise None."""
    strategy, _ = Arm(row.resolved).parts or ("", "")
    return float(parse_spec(strategy)[1]["temperature"])


def fixed_rows(comparison: Comparison) -> list[ArmRow]:
    """Returns the measured arms that differ from the baseline in a fixed temperature alone, ordered by it."""
    measured = _measured(comparison)
    return sorted((measured[label] for label in fixed_temperatures(comparison.task, measured)), key=temperature)


def _measured(comparison: Comparison) -> dict[str, ArmRow]:
    return {row.label: row for row in comparison.rows if comparison.primary.name in row.summaries}


def _references(comparison: Comparison) -> dict[str, ArmRow]:
    """Returns the rows of the lowest and the highest fixed temperature and of the untrained arm."""
    measured, fixed = _measured(comparison), fixed_rows(comparison)
    found = {LOWEST: fixed[0], HIGHEST: fixed[-1]} if len(fixed) > 1 else {}
    found |= {UNTRAINED.label: measured[UNTRAINED.label]} if UNTRAINED.label in measured else {}
    return {name: row for name, row in found.items() if row.label != comparison.baseline}


def _ranks(comparison: Comparison, rows: Mapping[str, ArmRow]) -> dict[str, float]:
    """Returns ranks by mean, 1 is best; ties share their mean rank."""
    from scipy.stats import rankdata

    sign = -1 if comparison.primary.higher_is_better else 1
    means = [sign * row.summaries[comparison.primary.name].mean for row in rows.values()]
    return dict(zip(rows, rankdata(means).tolist(), strict=True))


def cross_table(comparisons: Sequence[Comparison]) -> tuple[Table, tuple[str, ...]] | None:
    """Returns the table, one row for each task, and notes; None if fewer than two tasks compare strategies."""
    found = columns(comparisons)
    if len(found) < 2:
        return None
    ranked = ranking(found)
    means = ranked.strategies if ranked else {}
    others = sorted({name for column in found for name in column.rows} - means.keys())
    names = [*means, *sorted(others, key=lambda name: name != BASELINE)]
    names += [name for name in REFERENCES if any(name in column.references for column in found)]
    notes = [EXPLAINED["across"], _ranks_in_words(ranked)]
    quiet = [title(column.comparison) for column in found if not column.ranks]
    if quiet:
        notes.append(f"no signal, so that nothing is ranked: {', '.join(quiet)}")
    rows = [Row(("mean rank", *(f"{means[name]:.2f}" if name in means else NOTHING for name in names)), "baseline")]
    for column in found:
        each = column.comparison
        cells = (_cell(column, name) for name in names)
        rows.append(Row((f"{each.suite} / {task_title(each)}: {each.primary.name}", *cells), "measured"))
    return Table(("task", *names), tuple(rows[0 if means else 1 :])), tuple(notes)


def _cell(column: TaskColumn, name: str) -> str:
    """Returns rank, difference to the baseline, mark of the verdict and interval; the mean instead of a difference if none."""
    row = column.rows.get(name, column.references.get(name))
    if row is None:
        return NOTHING
    metric, difference = column.comparison.primary, row.differences.get(column.comparison.primary.name)
    figure = format_summary(row.summaries[metric.name], metric) if difference is None else format_difference(difference, metric)
    if row.label in fixed_temperatures(column.comparison.task, [row.label]):
        figure = f"τ {temperature(row):g}: {figure}"
    figure, bracket, interval = figure.partition(" [")
    rank = "no signal" if not column.ranks else f"{column.ranks[name]:g}" if name in column.ranks else ""
    mark = MARKS.get(row.significance.verdict, "") if column.ranks and row.significance else ""
    first = " ".join(filter(None, (" · ".join(filter(None, (rank, figure))), mark)))
    return SEPARATOR.join(filter(None, (first, (bracket + interval).strip())))


def _ranks_in_words(found: Ranking | None) -> str:
    if found is None:
        return "mean ranks: fewer than three data sets with a signal have three strategies in common."
    told = f"mean ranks over {found.data_sets} data sets of {len(found.strategies)} strategies: Friedman p = {found.p:.2g}"
    if found.p >= LEVEL:
        return f"{told}, so that no order of the strategies is shown."
    return f"{told}; two differ where their mean ranks are {found.critical:.2f} apart (Nemenyi, level {LEVEL})."
