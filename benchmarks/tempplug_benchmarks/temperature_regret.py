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

from scipy import stats

from tempplug.arguments import parse_spec
from tempplug_benchmarks.report.significance import holm
from tempplug_benchmarks.temperature_law import Cell
from tempplug_benchmarks.temperature_law_fit import Measured

SEEN = ("quora", "medquad")
"""Data sets that chose the question of the plan on centred vectors."""


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
    """Returns the fixed temperature that the guide advises: 0.1 from 16 passes on or from random vectors, else 0.01."""
    cold = measured.cell.start == "vectors" and measured.cell.passes < 16
    return f"fixed:temperature={0.01 if cold else 0.1:g}"


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


def tested(columns: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Returns mean, 95 % interval and p of each row of a table, given its differences by data set."""
    raw = {name: float(stats.ttest_1samp(values, 0).pvalue) for name, values in columns.items()}
    adjusted = dict(zip(raw, holm(list(raw.values())), strict=True))
    found = {}
    for name, values in columns.items():
        half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
        found[name] = f"{fmean(values):+.1f} [{fmean(values) - half:+.1f}, {fmean(values) + half:+.1f}], {adjusted[name]:.2g}"
    return found


def regret_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm of a cell by its default and by the best of all its
    configurations, of the differences to ``fixed``, and of what adapting adds. The first row is of `advised` temperatures.
    """
    names = [*configurations(cells[0])]
    rows, header = {name: [f"`{name}`"] for name in names}, ["strategy"]
    best = [each.chosen(each.test) for each in cells]
    for budget, choose in (("default", _default), ("five configurations", _searched)):
        arms = {name: [choose(each, name) for each in cells] for name in names}
        shown = tested({name: by_set(cells, _over(cells, of, arms["fixed"])) for name, of in arms.items() if name != "fixed"})
        for name, of in arms.items():
            regrets = _over(cells, of, best)
            rows[name] += [f"{fmean(regrets):+.1f}, {min(regrets):+.1f}", shown.get(name, "-")]
        header += [f"{budget}: mean, worst", "minus `fixed`, 95 %, Holm p"]
    by_guide = _over(cells, [advised(each) for each in cells], best)
    guide = ["`fixed` as the guide advises", f"{fmean(by_guide):+.1f}, {min(by_guide):+.1f}", "-", "-", "-", "-"]
    adapting = {name: [over_control(each, _searched(each, name)) for each in cells] for name in names if name != "fixed"}
    shown = tested({name: by_set(cells, figures) for name, figures in adapting.items()})
    for name in names:
        rows[name].append(shown.get(name, "-"))
    return [[*header, "minus its mean temperature held fixed"], guide, *rows.values()]


def cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm, by start and passes: the default, and the best of all its
    configurations, means over the data sets.
    """
    kinds = dict.fromkeys(each.cell for each in cells)
    rows = []
    for name in configurations(cells[0]):
        row = [f"`{name}`"]
        for kind in kinds:
            own = [each for each in cells if each.cell == kind]
            best = [each.chosen(each.test) for each in own]
            budgets = [[choose(each, name) for each in own] for choose in (_default, _searched)]
            row.append(", ".join(f"{fmean(_over(own, arms, best)):+.1f}" for arms in budgets))
        rows.append(row)
    return [["strategy", *(f"{_named(kind)}: default, five" for kind in kinds)], *rows]


def negative_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each variant of the negatives gains over none, each at the temperature chosen for it, without and
    with false negatives.
    """
    names = [name for name in variants(cells[0]) if name]
    rows = {name: [_shown(name)] for name in names}
    header = ["term or layout"]
    for noisy in (False, True):
        of = [each for each in cells if (each.cell.noise > 0) == noisy]
        gains = {name: [_gain(each, name) for each in of] for name in names}
        shown = tested({name: by_set(of, figures) for name, figures in gains.items()})
        for name, figures in gains.items():
            rows[name] += [shown[name], f"{min(figures):+.1f}"]
        header += [f"{'a fifth false negatives' if noisy else 'as they are'}: mean, 95 %, Holm p", "worst"]
    return [header, *rows.values()]


def negative_cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the same gains by cell, means over the data sets, and of the nDCG@10 without a term."""
    kinds = dict.fromkeys(each.cell for each in cells)
    header, rows = ["term or layout", *map(_named, kinds)], []
    none = [fmean(each.test[each.chosen(variants(each)[""])] for each in cells if each.cell == kind) for kind in kinds]
    rows.append(["none: nDCG@10", *(f"{figure:.2f}" for figure in none)])
    for name in variants(cells[0]):
        if name:
            gains = [fmean(_gain(each, name) for each in cells if each.cell == kind) for kind in kinds]
            rows.append([_shown(name), *(f"{gain:+.1f}" for gain in gains)])
    return [header, *rows]


def _default(measured: Measured, name: str) -> str:
    return configurations(measured)[name][0]


def _searched(measured: Measured, name: str) -> str:
    return measured.chosen(configurations(measured)[name])


def _over(cells: Sequence[Measured], arms: Sequence[str], others: Sequence[str]) -> list[float]:
    return [over(*each) for each in zip(cells, arms, others, strict=True)]


def _gain(measured: Measured, variant: str) -> float:
    of = variants(measured)
    return over(measured, measured.chosen(of[variant]), measured.chosen(of[""]))


def _shown(variant: str) -> str:
    return f"`{variant.removeprefix('+infonce+').removeprefix('@')}`"


def _named(cell: Cell) -> str:
    passes = f"{cell.passes} pass{'es' if cell.passes > 1 else ''}"
    return f"{passes}{', random start' * (cell.start == 'random')}{', false negatives' * (cell.noise > 0)}"


def centred_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the temperature that held-out pairs choose and its nDCG@10, without centring and with, by data set and
    passes, and of the gain in per cent; the last row has its mean and 95 % interval over the data sets that chose nothing.
    """
    plain = {(each.data, each.cell): each for each in cells if each.cell == Cell(passes=each.cell.passes)}
    passes = [*dict.fromkeys(cell.passes for _, cell in plain)]
    header, rows, gains = ["data set"], [], {each: dict[str, float]() for each in passes}
    for each in passes:
        header += [f"{_named(Cell(passes=each))}: τ, nDCG@10", "centred", "gain, %"]
    for data in dict.fromkeys(each.data for each in cells):
        row = [f"{data}{' (seen before)' * (data in SEEN)}"]
        for each in passes:
            own = plain[data, Cell(passes=each)]
            other = next(found for found in cells if (found.data, found.cell) == (data, replace(own.cell, start="centred")))
            chosen = [one.chosen(arm for arm in one.test if parse_spec(arm)[0] == "fixed") for one in (own, other)]
            gains[each][data] = 100 * (other.test[chosen[1]] / own.test[chosen[0]] - 1)
            row += [f"{_temperature(arm)}, {one.test[arm]:.2f}" for arm, one in zip(chosen, (own, other), strict=True)]
            row.append(f"{gains[each][data]:+.1f}")
        rows.append(row)
    shown = tested({str(each): [gain for data, gain in of.items() if data not in SEEN] for each, of in gains.items()})
    last = ["mean of the others, 95 %, Holm p"]
    for each in passes:
        last += ["", "", shown[str(each)]]
    return [header, *rows, last]


def centred_loss_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each arm loses to the temperature that held-out pairs choose, from centred vectors, by data sets
    that chose the question and others: mean and worst over their cells.
    """
    rows = [["choice, from centred vectors", "four other data sets: mean, worst", f"{' and '.join(SEEN)}: mean, worst"]]
    for arm in cells[0].test:
        row = [f"`{arm}`"]
        for seen in (False, True):
            of = [each for each in cells if each.cell.start == "centred" and (each.data in SEEN) == seen]
            found = [each.loss(each.test[arm]) for each in of]
            row.append(f"{fmean(found):+.1f}, {min(found):+.1f}")
        rows.append(row)
    return rows


def _temperature(arm: str) -> str:
    return f"{float(parse_spec(arm)[1]['temperature']):g}"
