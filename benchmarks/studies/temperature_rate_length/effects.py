"""What a temperature and a rate are worth in a part of a grid: ln figure = data set + temperature + rate, by least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from studies.cells import Measured
from studies.temperature_rate_length.grids import Configuration, grids_of

REFERENCE = Configuration(0.05, 3e-5)
"""The temperature and the rate that others are compared with."""
Figures = Mapping[tuple[str, Configuration], float]
Effects = dict[float, tuple[float, float]]
"""Per cent above the reference by temperature or rate, and half the width of its 95 % interval."""


def effects(figures: Figures) -> tuple[Effects, Effects]:
    """Returns the effects of temperatures and of rates, without those of `REFERENCE`, which are 0.

    Args:
        figures: nDCG@10 × 100, above 0, by data set and configuration; more of them than data sets and effects together, and
            with `REFERENCE`'s temperature and rate among them.
    """
    sets = sorted({data for data, _ in figures})
    others = [
        sorted({configuration[place] for _, configuration in figures} - {REFERENCE[place]}) for place in range(len(REFERENCE))
    ]
    columns: list[str | tuple[int, float]] = [
        *sets,
        *((place, value) for place, values in enumerate(others) for value in values),
    ]
    rows = [
        [column == data or (not isinstance(column, str) and configuration[column[0]] == column[1]) for column in columns]
        for data, configuration in figures
    ]
    design, logs = np.array(rows, dtype=float), np.log([*figures.values()])
    solution, *_ = np.linalg.lstsq(design, logs)
    free = len(logs) - len(columns)
    variance = float(np.square(logs - design @ solution).sum()) / free
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    half = stats.t.ppf(0.975, free) * errors
    of_temperatures, of_rates = Effects(), Effects()
    for column, effect, width in zip(columns, solution, half, strict=True):
        if not isinstance(column, str):
            place, value = column
            of_value = 100 * float(np.expm1(effect)), 100 * float(np.exp(effect) * width)
            (of_temperatures, of_rates)[place][value] = of_value
    return of_temperatures, of_rates


def effect_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the effects of plans on held-out pairs and on the test, beside `REFERENCE`.

    A plan that lacks data sets of the first one has the first one's effects on its own sets beside it.
    """
    rows = [["trainings", "figure", "temperature", "rate"]]
    parts = {plan: grids_of(cells) for plan, cells in plans.items()}
    first = next(iter(parts))
    for plan, grids in list(parts.items()):
        sets = {each.data for each in grids}
        if plan != first and sets != {each.data for each in parts[first]}:
            parts[f"{first}, its sets"] = [each for each in parts[first] if each.data in sets]
    for plan, grids in parts.items():
        for name in ("held_out", "test"):
            figures = {(grid.data, each): figure for grid in grids for each, figure in getattr(grid, name).items()}
            shown = [
                ", ".join(f"{value:g}: {effect:+.1f} ± {half:.1f}" for value, (effect, half) in sorted(of.items()))
                for of in effects(figures)
            ]
            rows.append([f"{plan.removeprefix('rate_')} ({len(figures)})", name.replace("_", "-"), *shown])
    return rows
