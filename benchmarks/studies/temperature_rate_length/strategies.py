"""Strategies beside fixed temperatures at equal numbers of configurations, each strategy with its learning rate chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from studies.cells import Cell, Measured
from studies.temperature_rate_length.grids import Grid, grids_of, interval, order_of, regrets

FIRST = 0.1
"""The rate of the first configuration of `rate_glove`."""
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


def strategy_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns regrets with one configuration (a strategy: at the rate `FIRST`), two and three (its rates), and differences of
    the latter to three fixed ones, by start.

    Args:
        plans: the grid of fixed temperatures, and the strategies.
    """
    fixed, others = plans.values()
    rows = [["start", "strategy", "one: mean, worst", "two", "three", "three, minus three of `fixed`, 95 %, worst"]]
    for start in ("centred", "vectors"):
        grids = [each for each in grids_of(fixed) if each.cell.start == start]
        rows.append([start, "`fixed`, in order", *(_shown(regrets(grids, count)) for count in (1, 2, 3)), "–"])
        for arm, figures in by_strategy(others).items():
            own = [(figures[grid.data, grid.cell], grid.test[grid.chosen()]) for grid in grids]
            first = [100 * (of[FIRST][1] / best - 1) for of, best in own]
            tuned = [100 * (max(of.values())[1] / best - 1) for of, best in own]
            gains = over_fixed(grids, figures)
            mean, low, high = interval(grids, gains)
            against = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}], {min(gains):+.1f}"
            rows.append([start, f"`{arm}`", _shown(first), "–", _shown(tuned), against])
    return rows


def _shown(lost: Sequence[float]) -> str:
    return f"{fmean(lost):+.1f}, {min(lost):+.1f}"
