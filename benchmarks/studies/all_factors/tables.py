"""The best temperatures of cells by each of their settings, and the temperatures of strategies beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from studies.cells import Measured
from tempplug.arguments import parse_spec

FACTORS: Mapping[str, Callable[[Any], str]] = {
    "passes": lambda level: f"passes: {level}",
    "batch": lambda level: f"batch: {level:,}",
    "start": lambda level: f"start: {level}",
    "noise": lambda level: f"share of false negatives: {level:g}",
    "hard": lambda level: "hard negatives" if level else "no hard negatives",
}
"""Fields of a cell, and how a table names their levels."""


def factor_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the best temperatures of each data set, geometric means over the cells with a level of a factor."""
    of = {name: [each for each in cells if each.data == name] for name in dict.fromkeys(each.data for each in cells)}
    lines = [["cells with", *of]]
    for factor, shown in FACTORS.items():
        for level in sorted({getattr(each.cell, factor) for each in cells}):
            some = [[each.best() for each in own if getattr(each.cell, factor) == level] for own in of.values()]
            means = [f"{math.exp(fmean(own)):.2g} ({len(own)})" if own else "-" for own in some]
            lines.append([shown(level), *means])
    return lines


def follow_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the mean temperature of each strategy in the cells that have strategies, below the best fixed one."""
    own = [each for each in cells if len(each.temperature) > len(each.fixed(each.test))]
    lines = [["temperature", *(f"{each.data}, passes: {each.cell.passes}" for each in own)]]
    lines.append(["the best fixed one", *(f"{math.exp(each.best()):.2g}" for each in own)])
    names = dict.fromkeys(_kind(spec) for each in own for spec in each.temperature)
    for name in names:
        of = [next(value for spec, value in each.temperature.items() if _kind(spec) == name) for each in own]
        if name != "fixed":
            lines.append([f"`{name}`", *(f"{value:.2g}" for value in of)])
    return lines


def _kind(spec: str) -> str:
    """Returns the name of a strategy, and the shape of a schedule."""
    name, given = parse_spec(spec)
    return f"{name}:shape={given['shape']}" if "shape" in given else name
