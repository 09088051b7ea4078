"""What strategies and terms on negatives lose or gain with equal budgets, from results of `temperature_law`.

A figure is nDCG@10 on the test collection, in per cent of that of another choice, minus 100. Every choice is made by held-out
pairs, in each cell anew. Intervals and p values are those of Student's t over the data sets, each with the mean of its cells; p
values have Holm's correction for the rows of a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from scipy import stats

from tempplug.arguments import parse_spec
from tempplug_benchmarks.report.significance import holm
from tempplug_benchmarks.temperature_law import Cell
from tempplug_benchmarks.temperature_law_fit import Measured


class Interval(NamedTuple):
    """Mean of the means of data sets, ends of its 95 % interval, and its p."""

    mean: float
    low: float
    high: float
    p: float


def configurations(measured: Measured) -> dict[str, list[str]]:
    """Returns the arms of each strategy, its default first, as they ran."""
    found: dict[str, list[str]] = {}
    for arm in measured.test:
        found.setdefault(parse_spec(arm)[0], []).append(arm)
    return found


def variants(measured: Measured) -> dict[str, list[str]]:
    """Returns the arms at every fixed temperature, by what follows the strategy; an empty text for the fixed ones alone."""
    found: dict[str, list[str]] = {}
    for arm in measured.test:
        cut = min((place for mark in "+@" if (place := arm.find(mark)) >= 0), default=len(arm))
        found.setdefault(arm[cut:], []).append(arm)
    return found


def advised(measured: Measured) -> str:
    """Returns the temperature of the guide: 0.2 from centred vectors, 0.1 from random ones or from 16 passes on, 0.01."""
    short = {"centred": 0.2, "random": 0.1, "vectors": 0.01}[measured.cell.start]
    return f"fixed:temperature={max(short, 0.1) if measured.cell.passes >= 16 else short:g}"


def over(measured: Measured, arm: str, other: str) -> float:
    """Returns the figure of an arm on the test collection in per cent of that of another one, minus 100."""
    return 100 * (measured.test[arm] / measured.test[other] - 1)


def over_control(measured: Measured, arm: str) -> float:
    """Returns an arm's figure in per cent of that of its mean temperature held fixed, interpolated along ln τ, minus 100."""
    return 100 * (measured.test[arm] / measured.at(math.log(measured.temperature[arm])) - 1)


def by_set(cells: Sequence[Measured], figures: Sequence[float]) -> list[float]:
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


def arms_by_budget(cells: Sequence[Measured]) -> dict[str, dict[str, list[str]]]:
    """Returns the arm of each cell by budget and strategy: its default, and the best of all its configurations."""
    budgets, names = {"default": _default, "five configurations": _searched}, configurations(cells[0])
    return {budget: {name: [choose(each, name) for each in cells] for name in names} for budget, choose in budgets.items()}


def regrets(cells: Sequence[Measured], arms: Sequence[str]) -> list[float]:
    """Returns what the arm chosen in each cell loses to the best one; below 0: worse than the best."""
    return _over(cells, arms, [each.chosen(each.test) for each in cells])


def gains(cells: Sequence[Measured]) -> dict[str, list[float]]:
    """Returns what each variant of the negatives gains over none in each cell, both at the temperatures chosen for them."""
    names = [name for name in variants(cells[0]) if name]
    return {name.removeprefix("+infonce+").removeprefix("@"): [_gain(each, name) for each in cells] for name in names}


def by_negatives(cells: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Returns the cells without and with false negatives or mined hard negatives."""
    found: dict[str, list[Measured]] = {}
    for each in cells:
        more = "a fifth false negatives" if each.cell.noise else "mined hard negatives" if each.cell.hard else "as they are"
        found.setdefault(more, []).append(each)
    return found


def regret_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm of a cell by its default and by the best of all its
    configurations, of the differences to ``fixed``, and of what adapting adds. The first row is of `advised` temperatures.
    """
    rows, header = {name: [f"`{name}`"] for name in configurations(cells[0])}, ["strategy"]
    for budget, arms in arms_by_budget(cells).items():
        shown = _tested(cells, {name: _over(cells, of, arms["fixed"]) for name, of in arms.items() if name != "fixed"})
        for name, of in arms.items():
            lost = regrets(cells, of)
            rows[name] += [f"{fmean(lost):+.1f}, {min(lost):+.1f}", shown.get(name, "-")]
        header += [f"{budget}: mean, worst", "minus `fixed`, 95 %, Holm p"]
    by_guide = regrets(cells, [advised(each) for each in cells])
    guide = ["`fixed` as the guide advises", f"{fmean(by_guide):+.1f}, {min(by_guide):+.1f}", "-", "-", "-", "-"]
    adapting = {name: [over_control(each, _searched(each, name)) for each in cells] for name in rows if name != "fixed"}
    shown = _tested(cells, adapting)
    for name, row in rows.items():
        row.append(shown.get(name, "-"))
    return [[*header, "minus its mean temperature held fixed"], guide, *rows.values()]


def cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm, by start and passes: the default, and the best of all its
    configurations, means over the data sets.
    """
    kinds = dict.fromkeys(each.cell for each in cells)
    rows = {name: [f"`{name}`"] for name in configurations(cells[0])}
    for kind in kinds:
        own = [each for each in cells if each.cell == kind]
        budgets = arms_by_budget(own).values()
        for name, row in rows.items():
            row.append(", ".join(f"{fmean(regrets(own, arms[name])):+.1f}" for arms in budgets))
    return [["strategy", *(f"{_named(kind)}: default, five" for kind in kinds)], *rows.values()]


def negative_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each variant of the negatives gains over none, each at the temperature chosen for it, by the
    negatives that the batches have; and of what mined hard negatives gain over none.
    """
    rows, header = {name: [f"`{name}`"] for name in gains(cells)}, ["term or layout"]
    groups = by_negatives(cells)
    for negatives, of in groups.items():
        gained = gains(of)
        shown = _tested(of, gained)
        for name, figures in gained.items():
            rows[name] += [shown[name], f"{min(figures):+.1f}"]
        header += [f"{negatives}: mean, 95 %, Holm p", "worst"]
    found = [header, *rows.values()]
    if of := [each for each in cells if each.cell.hard]:
        without = {(each.data, each.cell): each for each in cells}
        others = [without[each.data, replace(each.cell, hard=False)] for each in of]
        none = [[each.test[each.chosen(variants(each)[""])] for each in own] for own in (of, others)]
        figures = [100 * (new / old - 1) for new, old in zip(*none, strict=True)]
        found.append(["no term, mined hard negatives", _tested(of, {"": figures})[""], f"{min(figures):+.1f}", "-", "-"])
    return found


def negative_cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the same gains by cell, means over the data sets, and of the nDCG@10 without a term."""
    kinds = dict.fromkeys(each.cell for each in cells)
    header, rows = ["term or layout", *map(_named, kinds)], []
    none = [fmean(each.test[each.chosen(variants(each)[""])] for each in cells if each.cell == kind) for kind in kinds]
    rows.append(["none: nDCG@10", *(f"{figure:.2f}" for figure in none)])
    for name, gained in gains(cells).items():
        means = [fmean(gain for each, gain in zip(cells, gained, strict=True) if each.cell == kind) for kind in kinds]
        rows.append([f"`{name}`", *(f"{mean:+.1f}" for mean in means)])
    return [header, *rows]


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


def _default(measured: Measured, name: str) -> str:
    return configurations(measured)[name][0]


def _searched(measured: Measured, name: str) -> str:
    return measured.chosen(configurations(measured)[name])


def _over(cells: Sequence[Measured], arms: Sequence[str], others: Sequence[str]) -> list[float]:
    return [over(*each) for each in zip(cells, arms, others, strict=True)]


def _gain(measured: Measured, variant: str) -> float:
    of = variants(measured)
    return over(measured, measured.chosen(of[variant]), measured.chosen(of[""]))


def _tested(cells: Sequence[Measured], rows: Mapping[str, Sequence[float]]) -> dict[str, str]:
    found = intervals(cells, rows).items()
    return {name: f"{of.mean:+.1f} [{of.low:+.1f}, {of.high:+.1f}], {of.p:.2g}" for name, of in found}


def _named(cell: Cell) -> str:
    passes = f"{cell.passes} pass{'es' if cell.passes > 1 else ''}"
    negatives = f"{', false negatives' * (cell.noise > 0)}{', hard negatives' * cell.hard}"
    return f"{passes}{', random start' * (cell.start == 'random')}{negatives}"
