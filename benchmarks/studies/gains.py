"""What choices lose or gain in the cells of a study.

A figure is that of the test, for texts nDCG@10 on the test collection, in per cent of that of another choice, minus 100. Every
choice is made on held-out data, in each cell anew. Intervals and p values are those of Student's t over the data sets, each
with the mean of its cells; p values have Holm's correction for the rows of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, Protocol

from scipy import stats

from studies.cells import Cell, Measured
from tempplug_benchmarks.report.significance import holm


class Interval(NamedTuple):
    """Mean of the means of data sets, ends of its 95 % interval, and its p."""

    mean: float
    low: float
    high: float
    p: float


def over(measured: Measured, arm: str, other: str) -> float:
    """Returns the figure of an arm on the test collection in per cent of that of another one, minus 100."""
    return 100 * (measured.test[arm] / measured.test[other] - 1)


class OfData(Protocol):
    """What belongs to a data set."""

    @property
    def data(self) -> str:
        """Its name."""
        ...


def by_set(cells: Sequence[OfData], figures: Sequence[float]) -> list[float]:
    """Returns the mean of the figures of the cells of each data set."""
    of: dict[str, list[float]] = {}
    for each, figure in zip(cells, figures, strict=True):
        of.setdefault(each.data, []).append(figure)
    return [fmean(each) for each in of.values()]


def intervals(cells: Sequence[Measured], rows: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """Returns mean, 95 % interval and p of each row of a table, given its differences by cell."""
    columns = {name: by_set(cells, figures) for name, figures in rows.items()}
    raw = {name: float(stats.ttest_1samp(values, 0).pvalue) for name, values in columns.items()}
    adjusted = dict(zip(raw, holm(list(raw.values())), strict=True))
    found = {}
    for name, values in columns.items():
        mean, half = fmean(values), float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
        found[name] = Interval(mean, mean - half, mean + half, adjusted[name])
    return found


def tested(cells: Sequence[Measured], rows: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Returns `intervals` as the cells of a table."""
    found = intervals(cells, rows).items()
    return {name: f"{of.mean:+.1f} [{of.low:+.1f}, {of.high:+.1f}], {of.p:.2g}" for name, of in found}


def named(cell: Cell) -> str:
    """Returns a cell in words, without its batch and without a start from pretrained vectors."""
    passes = f"{cell.passes} pass{'es' if cell.passes > 1 else ''}"
    negatives = f"{', false negatives' * (cell.noise > 0)}{', hard negatives' * cell.hard}"
    return f"{passes}{', random start' * (cell.start == 'random')}{negatives}"


def loss_table(what: str, groups: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns a table of what each arm loses to the fixed temperature that held-out pairs choose, in groups of cells."""
    rows = [[what, *(f"{name}: mean, worst" for name in groups)]]
    for arm in dict.fromkeys(arm for cells in groups.values() for each in cells for arm in each.test):
        losses = [[each.loss(each.test[arm]) for each in cells if arm in each.test] for cells in groups.values()]
        rows.append([f"`{arm}`", *(f"{fmean(each):+.1f}, {min(each):+.1f}" if each else "-" for each in losses)])
    return rows


def start_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a `loss_table` by the start of the training."""
    groups: dict[str, list[Measured]] = {}
    for each in sorted(cells, key=lambda each: each.cell.start == "random"):
        groups.setdefault(f"{'random' if each.cell.start == 'random' else 'pretrained'} start", []).append(each)
    return loss_table("choice", groups | ({"all": [*cells]} if len(groups) > 1 else {}))


def batch_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a `loss_table` by the batch, with the temperatures that held-out pairs choose in a last row."""
    groups: dict[str, list[Measured]] = {}
    for each in cells:
        groups.setdefault(f"{each.cell.batch:,}", []).append(each)
    chosen = [", ".join(each.chosen(each.test).partition("=")[2] for each in of) for of in groups.values()]
    return [*loss_table("temperature, batches of", groups), ["chosen, by data set", *chosen]]
