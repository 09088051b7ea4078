"""What a temperature and a rate are worth in a part of a grid: ln figure = group + temperature + rate, by least squares.

A group is a data set in one cell. Figures of one data set depend on each other, so intervals come from the jackknife that
leaves one data set out: from the effects a₁ … a_S without each of S sets, the standard error is √((S-1)/S · Σ(aₛ - mean)²).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from studies.cells import Cell, Measured
from studies.temperature_rate_length.grids import Configuration, Grid, grids_of
from studies.temperature_rate_length.tables import lengths_of

REFERENCE = Configuration(0.05, 3e-5)
"""The temperature and the rate that others are compared with."""
Figures = Mapping[tuple[str, Cell, Configuration], float]
"""nDCG@10 × 100, above 0, by data set, cell without a rate, and configuration."""
Effects = dict[float, tuple[float, float]]
"""Per cent above the reference by temperature or rate, and half the width of its 95 % interval."""


def effects(figures: Figures) -> tuple[Effects, Effects]:
    """Returns the effects of temperatures and of rates, without those of `REFERENCE`, which are 0.

    Args:
        figures: of at least two data sets, with `REFERENCE`'s temperature and rate among them, and enough of them without any
            one data set to tell all effects apart.
    """
    others = [
        (place, value)
        for place in range(len(REFERENCE))
        for value in sorted({configuration[place] for *_, configuration in figures} - {REFERENCE[place]})
    ]
    sets = sorted({data for data, *_ in figures})
    left_out = [fitted({key: each for key, each in figures.items() if key[0] != data}, others) for data in sets]
    errors = np.sqrt((len(sets) - 1) * np.var(left_out, axis=0))
    half = stats.t.ppf(0.975, len(sets) - 1) * errors
    of_temperatures, of_rates = Effects(), Effects()
    for (place, value), effect, width in zip(others, fitted(figures, others), half, strict=True):
        (of_temperatures, of_rates)[place][value] = 100 * float(np.expm1(effect)), 100 * float(np.exp(effect) * width)
    return of_temperatures, of_rates


def fitted(figures: Figures, others: Sequence[tuple[int, float]]) -> NDArray[np.float64]:
    """Returns the logarithms of the effects of ``others``, places in a configuration with their values."""
    groups = list(dict.fromkeys((data, cell) for data, cell, _ in figures))
    rows = [
        [group == (data, cell) for group in groups] + [configuration[place] == value for place, value in others]
        for data, cell, configuration in figures
    ]
    solution: NDArray[np.float64] = np.linalg.lstsq(np.array(rows, dtype=float), np.log([*figures.values()]))[0]
    return solution[len(groups) :]


def parts_of(grids: Sequence[Grid]) -> dict[str, list[Grid]]:
    """Returns all grids under an empty name, and where they differ in that, those of each length, with and without hard
    negatives, and of each length with and without them.
    """
    parts: dict[str, list[Grid]] = {}
    for passes, hard in itertools.product((None, *lengths_of(grids)), (None, False, True)):
        of = [each for each in grids if passes in (None, each.cell.passes) and hard in (None, each.cell.hard)]
        if of and of not in parts.values():
            length = f", {passes} pass{'es' if passes > 1 else ''}" if passes else ""
            parts[length + {None: "", False: ", no hard negatives", True: ", hard negatives"}[hard]] = of
    return parts


def effect_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the effects of plans and of their parts on held-out pairs and on the test, beside `REFERENCE`."""
    rows = [["trainings", "figure", "temperature", "rate"]]
    for plan, cells in plans.items():
        for part, grids in parts_of(grids_of(cells)).items():
            for name in ("held_out", "test"):
                of = {(grid.data, grid.cell, each): found for grid in grids for each, found in getattr(grid, name).items()}
                shown = [
                    ", ".join(f"{value:g}: {effect:+.1f} ± {half:.1f}" for value, (effect, half) in sorted(found.items()))
                    for found in effects(of)
                ]
                rows.append([f"{plan.removeprefix('rate_')}{part} ({len(of)})", name.replace("_", "-"), *shown])
    return rows
