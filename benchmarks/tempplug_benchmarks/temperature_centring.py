"""What it gains to subtract the mean of the word vectors before the training, from results of `temperature_law`.

A gain is of nDCG@10 on the test collection, in per cent of that of the temperature that held-out pairs choose without centring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tempplug.arguments import parse_spec
from tempplug_benchmarks.report.significance import holm
from tempplug_benchmarks.temperature_law import Cell
from tempplug_benchmarks.temperature_law_fit import Measured
from tempplug_benchmarks.temperature_regret import intervals

SEEN = ("quora", "medquad")
"""Data sets that chose the question of the first plan, and decide nothing in it."""
ADVISED = "fixed:temperature=0.2"
"""What is advised for centred vectors."""


@dataclass(frozen=True)
class Both:
    """A data set and number of passes, trained from vectors as they are and from centred ones."""

    plain: Measured
    centred: Measured

    def gain(self, arm: str) -> float:
        """Returns the gain of an arm from centred vectors."""
        return 100 * (self.centred.test[arm] / self.plain.test[tuned(self.plain)] - 1)

    def without(self, arm: str) -> float:
        """Returns the same of an arm from vectors as they are."""
        return 100 * (self.plain.test[arm] / self.plain.test[tuned(self.plain)] - 1)


def tuned(measured: Measured) -> str:
    """Returns the fixed temperature that held-out pairs choose."""
    return measured.chosen(arm for arm in measured.test if parse_spec(arm)[0] == "fixed")


def unseen(cells: Sequence[Measured]) -> list[Measured]:
    """Returns the cells of the data sets that decide in the first plan."""
    return [each for each in cells if each.data not in SEEN]


def by_passes(cells: Sequence[Measured]) -> dict[int, list[Both]]:
    """Returns the trainings that ran from both kinds of vectors, by passes in ascending order."""
    at = {(each.data, each.cell): each for each in cells}
    found: dict[int, list[Both]] = {}
    for own in sorted(cells, key=lambda each: each.cell.passes):
        if own.cell == Cell(passes=own.cell.passes):
            both = Both(own, at[own.data, replace(own.cell, start="centred")])
            found.setdefault(own.cell.passes, []).append(both)
    return found


def over_temperature(cells: Sequence[Measured]) -> dict[str, tuple[list[float], list[float]]]:
    """Returns temperatures and mean gains over the data sets, by start and passes."""
    found = {}
    for name in ("as they are", "centred"):
        for passes, of in by_passes(cells).items():
            temperatures = [math.exp(each) for each, _ in of[0].plain.fixed(of[0].plain.test)]
            arms = [f"fixed:temperature={each:g}" for each in temperatures]
            gains = [fmean(both.gain(arm) if name == "centred" else both.without(arm) for both in of) for arm in arms]
            found[f"{name}, {passes} pass{'es' if passes > 1 else ''}"] = (temperatures, gains)
    return found


def gain_rows(first: Sequence[Measured], second: Sequence[Measured]) -> list[list[str]]:
    """Returns a table, by passes, of the tuned temperatures without centring and with, by data set, and of the gains of the
    tuned temperature and of `ADVISED`.
    """
    of = by_passes([*unseen(first), *second])
    advised = f"{_temperature(ADVISED)} without a search"
    header = ["passes", "tuned τ", "tuned τ, centred"]
    rows = {passes: [str(passes)] for passes in of}
    for passes, both in of.items():
        for cells in ([each.plain for each in both], [each.centred for each in both]):
            rows[passes].append(", ".join(_temperature(tuned(each)) for each in cells))
    for name in ("tuned", advised):
        header += [f"gain, {name}: mean, 95 %, Holm p", "worst"]
        gains = [[each.gain(ADVISED if name == advised else tuned(each.centred)) for each in both] for both in of.values()]
        found = [intervals([each.plain for each in both], {"": own})[""] for both, own in zip(of.values(), gains, strict=True)]
        adjusted = holm([each.p for each in found])
        for row, each, p, own in zip(rows.values(), found, adjusted, gains, strict=True):
            row += [f"{each.mean:+.1f} [{each.low:+.1f}, {each.high:+.1f}], {p:.2g}", f"{min(own):+.1f}"]
    return [header, *rows.values()]


def loss_rows(first: Sequence[Measured], second: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each arm loses from centred vectors to the temperature that held-out pairs choose there: mean and
    worst over the cells of each plan.
    """
    rows = [["choice from centred vectors", "first plan: mean, worst", "second plan: mean, worst"]]
    plans = [[each for each in found if each.cell.start == "centred"] for found in (unseen(first), second)]
    for arm in plans[0][0].test:
        row = [f"`{arm}`"]
        for cells in plans:
            losses = [each.loss(each.test[arm]) for each in cells if arm in each.test]
            row.append(f"{fmean(losses):+.1f}, {min(losses):+.1f}" if losses else "-")
        rows.append(row)
    return rows


def _temperature(arm: str) -> str:
    return f"{float(parse_spec(arm)[1]['temperature']):g}"
