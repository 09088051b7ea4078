"""What it gains to subtract the mean of the word vectors before the training, from results of `studies.train_cells`.

A gain is of nDCG@10 on the test collection, in per cent of that of the temperature that held-out pairs choose without centring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from studies.cells import Cell, Measured
from studies.gains import Interval, intervals, loss_table
from tempplug.arguments import parse_spec
from tempplug_benchmarks.report.significance import holm

SEEN = ("quora", "medquad")
"""Data sets that chose the question of the first plan, and decide nothing in it."""
ADVISED = "fixed:temperature=0.2"
"""What is advised for centred vectors."""


@dataclass(frozen=True)
class Both:
    """A data set and number of passes, trained from vectors as they are and from centred ones."""

    plain: Measured
    centred: Measured

    def gain(self, arm: str = "") -> float:
        """Returns the gain of an arm from centred vectors, by default of the temperature that held-out pairs choose there."""
        return 100 * (self.centred.test[arm or tuned(self.centred)] / self.plain.test[tuned(self.plain)] - 1)

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
    """Returns a table of the tuned temperatures by data set, without centring and with, and of the gains with the tuned
    temperature and with `ADVISED`: by passes mean and worst, and by plan the mean with interval and p.
    """
    plans = {"first plan": by_passes(unseen(first)), "second plan": by_passes(second)}
    rows: dict[int, list[str]] = {}
    for plan, of in plans.items():
        for passes, each in of.items():
            chosen = ([tuned(both.plain) for both in each], [tuned(both.centred) for both in each])
            rows[passes] = [f"{passes} ({plan})", *(", ".join(map(_temperature, found)) for found in chosen)]
    last = {plan: [f"**{plan}**", "", ""] for plan in plans}
    header = ["passes", "tuned τ by data set", "tuned τ, centred"]
    for name, arm in (("tuned τ", ""), (f"τ {_temperature(ADVISED)}", ADVISED)):
        header.append(f"gain of centring, {name}: mean, worst")
        found: dict[str, Interval] = {}
        for plan, of in plans.items():
            for passes, each in of.items():
                gains = [both.gain(arm) for both in each]
                rows[passes].append(f"{fmean(gains):+.1f}, {min(gains):+.1f}")
            every = [both for each in of.values() for both in each]
            found[plan] = intervals([both.plain for both in every], {"": [both.gain(arm) for both in every]})[""]
        for (plan, one), p in zip(found.items(), holm([each.p for each in found.values()]), strict=True):
            last[plan].append(f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}], {p:.2g}")
    return [header, *(rows[passes] for passes in sorted(rows)), *last.values()]


def loss_rows(first: Sequence[Measured], second: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each arm loses from centred vectors to the temperature that held-out pairs choose there."""
    plans = {"first plan": unseen(first), "second plan": second}
    centred = {plan: [each for each in cells if each.cell.start == "centred"] for plan, cells in plans.items()}
    return loss_table("choice from centred vectors", centred)


def unknown_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of gains at `ADVISED` by data set: over the tuned temperature without centring, if unknown words lose the
    mean like all others and if their vector stays 0, and of the second over the first. Each is the mean and the worst over the
    lengths; the last row has the mean over the data sets with its interval.
    """
    at = {(each.data, each.cell): each for each in cells}
    kept = [each for each in cells if each.cell.start == "centred"]
    plain, shifted = ([at[each.data, replace(each.cell, start=start)] for each in kept] for start in ("vectors", "shifted"))
    gains = {
        "unknown words lose the mean: mean, worst": [Both(*pair).gain(ADVISED) for pair in zip(plain, shifted, strict=True)],
        "they stay 0: mean, worst": [Both(*pair).gain(ADVISED) for pair in zip(plain, kept, strict=True)],
        "second over first: mean, worst": [
            100 * (new.test[ADVISED] / old.test[ADVISED] - 1) for new, old in zip(kept, shifted, strict=True)
        ],
    }
    rows = [["training pairs", *gains]]
    for name in dict.fromkeys(each.data for each in kept):
        of = [[gain for each, gain in zip(kept, column, strict=True) if each.data == name] for column in gains.values()]
        rows.append([name, *(f"{fmean(column):+.1f}, {min(column):+.1f}" for column in of)])
    found = intervals(kept, gains).values()
    return [*rows, ["**mean, 95 %**", *(f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}]" for one in found)]]


def _temperature(arm: str) -> str:
    return f"{float(parse_spec(arm)[1]['temperature']):g}"
