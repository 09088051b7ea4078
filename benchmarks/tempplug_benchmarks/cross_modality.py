"""Strategies across tasks: one table of all modalities, and what ranks over tasks can tell.

A strategy is an arm as its task's recipe has it; other objectives, and other options of a strategy that has an arm already,
stay in the tables of their tasks, as do fixed temperatures between the lowest and the highest. These two, and what was not
trained, say what is at stake and are not ranked. This module must not know how anything is printed.

Source: Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets (Friedman's test, Nemenyi's difference).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import UNTRAINED, Arm, parse_arm
from tempplug_benchmarks.comparison import ArmRow, Comparison
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.run.tuning import fixed_temperatures
from tempplug_benchmarks.significance import LEVEL

BASELINE = "fixed"
"""What the baseline of every task is called here: the temperature differs."""
LOWEST, HIGHEST = "fixed, lowest", "fixed, highest"
"""What the ends of a task's fixed temperatures are called, where they are not its baseline."""
REFERENCES = (LOWEST, HIGHEST, UNTRAINED.label)


@dataclass(frozen=True)
class TaskColumn:
    """One task of the table.

    Attributes:
        comparison: of its arms.
        rows: by strategy.
        references: rows that are no strategy's, by name: those of `REFERENCES` that there are.
        ranks: by strategy, 1 is best, equals share; empty where there is no signal.
    """

    comparison: Comparison
    rows: Mapping[str, ArmRow]
    references: Mapping[str, ArmRow]
    ranks: Mapping[str, float]


@dataclass(frozen=True)
class Ranking:
    """What ranks over data sets tell of the strategies that all of them have.

    Attributes:
        strategies: mean rank by strategy, best first.
        data_sets: how many.
        p: of the Friedman test that all are alike; 1 where all ranks are equal.
        critical: difference of mean ranks that Nemenyi's test asks for.
    """

    strategies: Mapping[str, float]
    data_sets: int
    p: float
    critical: float


def columns(comparisons: Sequence[Comparison]) -> list[TaskColumn]:
    """Returns a column for each task that compares strategies.

    Args:
        comparisons: of any suites, profiles and tasks.
    """
    found = []
    for comparison in comparisons:
        rows = _strategies(comparison)
        if len(rows) > 1:
            ranks = {} if comparison.signal is False else _ranks(comparison, rows)
            found.append(TaskColumn(comparison, rows, _references(comparison), ranks))
    return found


def ranking(found: Sequence[TaskColumn]) -> Ranking | None:
    """Returns what the ranks tell; None where no three data sets have three strategies in common.

    Of the strategies that two tasks share, and all data sets that have these, the ones that make the largest table are taken.
    Friedman's test wants rows that are independent, so that each data set is one row.

    Args:
        found: see `columns`.
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
    """Returns the columns without those of the task or the data of another; a task's largest profile stands for it."""
    kept, seen = [], set[tuple[str, str]]()
    for column in sorted(found, key=lambda each: -PROFILES.index(each.comparison.profile_name)):
        each = column.comparison
        names = {(each.suite, each.task.name), (each.suite, each.dataset)}
        if not names & seen:
            kept.append(column)
        seen |= names
    return kept


def _strategies(comparison: Comparison) -> dict[str, ArmRow]:
    """Returns the rows that stand for a strategy, by its name: the arm of the recipe, or the first where there is none."""
    chosen: dict[str, ArmRow] = {}
    for row in comparison.rows:
        parts = Arm(row.label).parts
        if comparison.primary.name not in row.summaries or not parts:
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
    """Returns the temperature of an arm of strategy ``fixed`` that has results."""
    strategy, _ = Arm(row.resolved).parts or ("", "")
    return float(parse_spec(strategy)[1]["temperature"])


def _references(comparison: Comparison) -> dict[str, ArmRow]:
    """Returns the rows of the lowest and highest fixed temperature and of what was not trained."""
    measured = {row.label: row for row in comparison.rows if comparison.primary.name in row.summaries}
    fixed = sorted((measured[label] for label in fixed_temperatures(comparison.task, measured)), key=temperature)
    found = {LOWEST: fixed[0], HIGHEST: fixed[-1]} if len(fixed) > 1 else {}
    found |= {UNTRAINED.label: measured[UNTRAINED.label]} if UNTRAINED.label in measured else {}
    return {name: row for name, row in found.items() if row.label != comparison.baseline}


def _ranks(comparison: Comparison, rows: Mapping[str, ArmRow]) -> dict[str, float]:
    """Returns ranks by mean, 1 is best, equals share theirs."""
    sign = -1 if comparison.primary.higher_is_better else 1
    means = {name: sign * row.summaries[comparison.primary.name].mean for name, row in rows.items()}
    return {
        name: sum(other < mean for other in means.values()) + (1 + sum(other == mean for other in means.values())) / 2
        for name, mean in means.items()
    }
