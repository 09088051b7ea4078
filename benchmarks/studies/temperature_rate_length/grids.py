"""Grids of temperature and learning rate: the best of each, what a user loses who tries some, and the order to try them in.

Every choice is made on held-out pairs, mean of the seeds. A figure is nDCG@10 × 100 on the test collection; gains and losses
are in per cent. Orders and constants for a data set come from the other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from studies.cells import Cell, Measured
from studies.gains import by_set
from tempplug.arguments import parse_spec

TRIES = (1, 2, 3, 5, 8)
"""Numbers of configurations that a user can try."""
SMALLEST = 2.0
"""Smallest difference that matters, in per cent."""
SAMPLES = 10_000
FLAT = (0.02, 0.05, 0.1, 0.2)
"""Temperatures of the question whether a rate that follows the temperature flattens the choice."""
POWERS = (-1.0, -0.5, 0.0, 0.5, 1.0)


class Configuration(NamedTuple):
    """What a user can try: a fixed temperature, and Adam's learning rate for batches of 128."""

    temperature: float
    rate: float


@dataclass(frozen=True)
class Grid:
    """All configurations of a data set, start and length.

    Attributes:
        data: name of the training pairs.
        cell: how all of them are trained, without a rate.
        held_out: figures on held-out pairs.
        test: figures on the test collection.
        similarity: mean cosine of negatives in the first batch.
    """

    data: str
    cell: Cell
    held_out: Mapping[Configuration, float]
    test: Mapping[Configuration, float]
    similarity: float

    def chosen(self, tried: Iterable[Configuration] = ()) -> Configuration:
        """Returns the best of some configurations on held-out pairs, by default of all."""
        return max(tried or self.held_out, key=lambda each: self.held_out[each])

    def share(self, tried: Iterable[Configuration]) -> float:
        """Returns the best held-out figure of some configurations in per cent of the best of all."""
        return 100 * self.held_out[self.chosen(tried)] / self.held_out[self.chosen()]

    def regret(self, tried: Iterable[Configuration] = ()) -> float:
        """Returns the figure of the best tried configuration in per cent of that of the best of all, minus 100."""
        return 100 * (self.test[self.chosen(tried)] / self.test[self.chosen()] - 1)


def grids_of(measured: Iterable[Measured]) -> list[Grid]:
    """Returns the grids of cells that differ in the rate alone; other arms than fixed temperatures are left out."""
    merged: dict[tuple[str, Cell], list[Measured]] = {}
    for each in measured:
        merged.setdefault((each.data, replace(each.cell, rate=None)), []).append(each)
    grids = []
    for (data, cell), cells in merged.items():
        held_out: dict[Configuration, float] = {}
        test: dict[Configuration, float] = {}
        for each in cells:
            for arm, figure in each.held_out.items():
                name, options = parse_spec(arm)
                if name == "fixed" and each.cell.rate is not None:
                    configuration = Configuration(float(options["temperature"]), each.cell.rate)
                    held_out[configuration], test[configuration] = figure, each.test[arm]
        grids.append(Grid(data, cell, held_out, test, cells[0].first_similarity))
    return grids


def temperatures_of(grids: Sequence[Grid]) -> list[float]:
    """Returns the temperatures of the first grid in ascending order."""
    return sorted({each.temperature for each in grids[0].held_out})


def rates_of(grids: Sequence[Grid]) -> list[float]:
    """Returns the rates of the first grid in ascending order."""
    return sorted({each.rate for each in grids[0].held_out})


def order_of(grids: Sequence[Grid], count: int) -> list[Configuration]:
    """Returns which configurations to try, the first one first: each next one raises the mean share the most."""
    order: list[Configuration] = []
    remaining = sorted(grids[0].held_out)
    while remaining and len(order) < count:
        best = max(remaining, key=lambda each: fmean(grid.share([*order, each]) for grid in grids))
        remaining.remove(best)
        order.append(best)
    return order


def left_out(grids: Sequence[Grid], regret: Callable[[Sequence[Grid], Grid], float]) -> list[float]:
    """Returns a number for each grid, given the grids of the other data sets and itself."""
    return [regret([other for other in grids if other.data != each.data], each) for each in grids]


def regrets(grids: Sequence[Grid], count: int) -> list[float]:
    """Returns the regret of each grid after so many configurations, in the order from the other data sets."""
    return left_out(grids, lambda others, grid: grid.regret(order_of(others, count)))


def along_rates(others: Sequence[Grid], grid: Grid) -> float:
    """Returns the regret of a search of all rates at the one temperature that is best on the others so searched."""
    return grid.regret(_line(others, lambda one, temperature: one.temperature == temperature, temperatures_of(others)))


def along_temperatures(others: Sequence[Grid], grid: Grid) -> float:
    """Returns the regret of a search of all temperatures at the one rate that is best on the others so searched."""
    return grid.regret(_line(others, lambda one, rate: one.rate == rate, rates_of(others)))


def _line(
    others: Sequence[Grid], belongs: Callable[[Configuration, float], bool], values: Sequence[float]
) -> list[Configuration]:
    lines = [[each for each in others[0].held_out if belongs(each, value)] for value in values]
    return max(lines, key=lambda line: fmean(grid.share(line) for grid in others))


def interpolated(figures: Mapping[Configuration, float], temperature: float, rate: float) -> float:
    """Returns the figure of a temperature of the grid at any rate, linearly along ln rate; outside that of the nearest one."""
    points = sorted((each.rate, figure) for each, figure in figures.items() if each.temperature == temperature)
    rates, values = zip(*points, strict=True)
    return float(np.interp(np.log(rate), np.log(rates), values))


def followed(grids: Sequence[Grid], power: float) -> list[float]:
    """Returns what the worst of `FLAT` loses to the best of the grid at the rate c·(τ/0.1)^``power``; c is chosen on others."""
    rates = rates_of(grids)
    constants = np.geomspace(rates[0] / 10, rates[-1] * 10, 41)

    def worst(grid: Grid, figures: Mapping[Configuration, float], constant: float) -> float:
        lowest = min(interpolated(figures, each, constant * (each / 0.1) ** power) for each in FLAT)
        return 100 * (lowest / figures[grid.chosen()] - 1)

    def regret(others: Sequence[Grid], grid: Grid) -> float:
        constant = max(constants, key=lambda each: fmean(worst(other, other.held_out, each) for other in others))
        return worst(grid, grid.test, constant)

    return left_out(grids, regret)


def interval(grids: Sequence[Grid], figures: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean of the means of data sets, and the ends of its 95 % interval by the bootstrap over data sets."""
    means = np.array(by_set(grids, figures))
    samples = np.random.default_rng(0).integers(len(means), size=(SAMPLES, len(means)))
    low, high = np.percentile(means[samples].mean(1), [2.5, 97.5])
    return float(means.mean()), float(low), float(high)
