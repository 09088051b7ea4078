"""Strategies beside fixed temperatures at equal numbers of configurations, each strategy with its learning rate chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from studies.cells import Cell, Measured
from studies.temperature_rate_length.grids import Configuration, Grid, grids_of, interval, order_of, regrets

RATE, TEMPERATURES = 0.1, {"centred": 0.2, "vectors": 0.01}
"""The first configurations of `rate_glove`: their rate, and their temperatures by start."""
Figures = Mapping[float, tuple[float, float]]
"""Held-out and test figures by rate."""


def by_strategy(cells: Sequence[Measured]) -> dict[str, dict[tuple[str, Cell], dict[float, tuple[float, float]]]]:
    """Returns the figures of each arm by data set and cell without a rate."""
    figures: dict[str, dict[tuple[str, Cell], dict[float, tuple[float, float]]]] = {}
    for each in cells:
        for arm, held_out in each.held_out.items():
            place = each.data, replace(each.cell, rate=None)
            figures.setdefault(arm, {}).setdefault(place, {})[each.cell.rate or 0.0] = held_out, each.test[arm]
    return figures


def over_fixed(grids: Sequence[Grid], figures: Mapping[tuple[str, Cell], Figures]) -> list[float]:
    """Returns the gain of an arm with all its rates over as many fixed configurations in the order from the other sets."""
    gains = []
    for grid in grids:
        own = figures[grid.data, grid.cell]
        order = order_of([other for other in grids if other.data != grid.data], len(own))
        gains.append(100 * (max(own.values())[1] / grid.test[grid.chosen(order)] - 1))
    return gains


def over_same_rates(grids: Sequence[Grid], figures: Mapping[tuple[str, Cell], Figures]) -> list[float]:
    """Returns the gain of an arm over the first fixed temperature, both with the rate that held-out pairs choose."""
    gains = []
    for grid in grids:
        own = figures[grid.data, grid.cell]
        fixed = grid.chosen([Configuration(TEMPERATURES[grid.cell.start], rate) for rate in own])
        gains.append(100 * (max(own.values())[1] / grid.test[fixed] - 1))
    return gains


def strategy_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns regrets of fixed configurations, in the order from the other sets, and of arms with one rate and with all, and
    the gains of the latter over as many fixed configurations, in this order and at the first temperature with the same rates.

    Args:
        plans: the grid of fixed temperatures, then those of strategies; data sets that the strategies lack are left out.
    """
    fixed, *parts = plans.values()
    others = [each for part in parts for each in part]
    measured = {each.data for each in others}
    against = [f"three, minus {what}, 95 %, worst" for what in ("three of `fixed`", "`fixed` at the first τ")]
    rows = [["start", "strategy", f"one (rate {RATE:g}): mean, worst", "two", "three", *against]]
    for start in dict.fromkeys(each.cell.start for each in fixed):
        grids = [each for each in grids_of(fixed) if each.cell.start == start and each.data in measured]
        rows.append([start, "`fixed`, in order", *(_shown(regrets(grids, count)) for count in (1, 2, 3)), "–", "–"])
        for arm, figures in by_strategy(others).items():
            own = [(figures[grid.data, grid.cell], grid.test[grid.chosen()]) for grid in grids]
            first = [100 * (of[RATE][1] / best - 1) for of, best in own]
            tuned = [100 * (max(of.values())[1] / best - 1) for of, best in own]
            gains = [_tested(grids, gained(grids, figures)) for gained in (over_fixed, over_same_rates)]
            rows.append([start, f"`{arm}`", _shown(first), "–", _shown(tuned), *gains])
    return rows


def _shown(lost: Sequence[float]) -> str:
    return f"{fmean(lost):+.1f}, {min(lost):+.1f}"


def _tested(grids: Sequence[Grid], gains: Sequence[float]) -> str:
    mean, low, high = interval(grids, gains)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}], {min(gains):+.1f}"
