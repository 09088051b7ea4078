"""The law that the best temperatures of `temperature_law` follow, and what each choice loses to the best of a cell.

The best temperature of a cell is that of a parabola in ln τ through the best fixed one by held-out pairs and its neighbours.
The law is a least-squares fit of its logarithm. A loss is of nDCG@10 on the test collection, in per cent of that of the fixed
temperature that is best on held-out pairs; between two temperatures that ran it is interpolated along ln τ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from tempplug.arguments import parse_spec
from tempplug_benchmarks.temperature_law import Cell, read_lines, run_of

TERMS = ("ln steps", "ln batch", "share of false negatives", "random start", "hard negatives")
FACTORS: Mapping[str, Callable[[Any], str]] = {
    "passes": lambda level: f"passes: {level}",
    "batch": lambda level: f"batch: {level:,}",
    "start": lambda level: f"start: {level}",
    "noise": lambda level: f"share of false negatives: {level:g}",
    "hard": lambda level: "hard negatives" if level else "no hard negatives",
}
"""Fields of a cell, and how a table names their levels."""
LAW, QUARTER = "the law", "chosen after a quarter of the passes"
WANTED = 1.5
"""Factor within which the law is to give the best temperature."""


@dataclass(frozen=True)
class Measured:
    """The results of a cell of a data set, means over seeds, by arm: nDCG@10 × 100 on both, and mean temperatures."""

    data: str
    cell: Cell
    steps: float = 0.0
    held_out: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    temperature: dict[str, float] = field(default_factory=dict)

    def fixed(self, figures: Mapping[str, float]) -> list[tuple[float, float]]:
        """Returns ln τ and the figure of each fixed temperature, in ascending order."""
        of = ((parse_spec(spec), value) for spec, value in figures.items())
        return sorted((math.log(float(given["temperature"])), value) for (name, given), value in of if name == "fixed")

    def best(self) -> float:
        """Returns ln of the best temperature by held-out pairs."""
        found = self.fixed(self.held_out)
        place = max(range(len(found)), key=lambda each: found[each][1])
        if place in (0, len(found) - 1):
            return found[place][0]
        around, middle = found[place - 1 : place + 2], found[place][0]
        a, b, _ = np.polyfit([each for each, _ in around], [figure for _, figure in around], 2)
        return float(np.clip(-b / (2 * a), around[0][0], around[-1][0])) if a < 0 else middle

    def chosen(self, specs: Iterable[str]) -> str:
        """Returns the strategy that is best on held-out pairs."""
        return max(specs, key=lambda each: self.held_out[each])

    def loss(self, figure: float) -> float:
        """Returns a figure on the test collection in per cent of the best fixed temperature, minus 100."""
        best = self.chosen(spec for spec in self.held_out if parse_spec(spec)[0] == "fixed")
        return 100 * (figure / self.test[best] - 1)

    def at(self, log_temperature: float) -> float:
        """Returns the interpolated figure on the test collection at a fixed temperature."""
        temperatures, figures = zip(*self.fixed(self.test), strict=True)
        return float(np.interp(log_temperature, temperatures, figures))

    def terms(self) -> list[float]:
        """Returns the `TERMS`, behind a 1."""
        cell = self.cell
        return [1, math.log(self.steps), math.log(cell.batch), cell.noise, float(cell.start == "random"), float(cell.hard)]


def read_measured(files: Iterable[Path]) -> list[Measured]:
    """Returns the cells of data sets, one of each file."""
    found: list[Measured] = []
    for file in files:
        lines = read_lines(file)
        for cell in dict.fromkeys(run_of(line)[0] for line in lines):
            of = [line for line in lines if run_of(line)[0] == cell]
            specs = dict.fromkeys(line["strategy"] for line in of)
            means = {
                name: {spec: fmean(line[name] for line in of if line["strategy"] == spec) for spec in specs}
                for name in ("held_out", "test", "temperature")
                if name in of[0]  # results of 2026-11-26 lack the last one
            }
            found.append(Measured(file.stem, cell, of[0]["steps"], *means.values()))
    return found


@dataclass(frozen=True)
class Law:
    """ln τ = a sum of `TERMS` with ``coefficients``, the first being the constant; ``errors`` are their standard errors."""

    coefficients: Sequence[float]
    errors: Sequence[float]

    def predicted(self, measured: Measured) -> float:
        """Returns ln τ of a cell."""
        return float(np.dot(self.coefficients, measured.terms()))

    def factors(self, cells: Iterable[Measured]) -> list[float]:
        """Returns by what factor the law misses the best temperature of each cell, at least 1."""
        return [math.exp(abs(self.predicted(each) - each.best())) for each in cells]


def fit(cells: Sequence[Measured]) -> Law:
    """Returns the law of some cells; the coefficient of a term that is the same in all of them is 0."""
    terms, best = np.array([each.terms() for each in cells]), np.array([each.best() for each in cells])
    used = [0, *np.flatnonzero(np.ptp(terms, axis=0))]
    found, *_ = np.linalg.lstsq(terms[:, used], best, rcond=None)
    variance = ((best - terms[:, used] @ found) ** 2).sum() / (len(cells) - len(used))
    coefficients, errors = np.zeros((2, terms.shape[1]))
    coefficients[used] = found
    errors[used] = np.sqrt(variance * np.diag(np.linalg.inv(terms[:, used].T @ terms[:, used])))
    return Law(coefficients.tolist(), errors.tolist())


def losses(cells: Sequence[Measured], law: Law) -> dict[str, dict[int, float]]:
    """Returns what each choice loses in per cent, by its name and the number of the cell; below 0: worse than the best.

    Choices are the strategies that ran, the law, and the fixed temperature that is best on held-out pairs after a quarter of
    the passes.
    """
    found: dict[str, dict[int, float]] = {}
    for number, own in enumerate(cells):
        for spec, figure in own.test.items():
            found.setdefault(spec, {})[number] = own.loss(figure)
        found.setdefault(LAW, {})[number] = own.loss(own.at(law.predicted(own)))
        for short in cells:
            if (short.data, replace(short.cell, passes=4 * short.cell.passes)) == (own.data, own.cell):
                chosen = short.chosen(spec for spec in short.held_out if parse_spec(spec)[0] == "fixed")
                found.setdefault(QUARTER, {})[number] = own.loss(own.test[chosen])
    return found


def law_rows(fitted: Sequence[Measured], tested: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the law of the first cells, and of how far it misses the best temperatures of both."""
    found = fit(fitted)
    lines = [["ln τ =", "coefficient ± standard error"]]
    for name, each, error in zip(("1", *TERMS), found.coefficients, found.errors, strict=True):
        lines.append([name, f"{each:.2f} ± {error:.2f}" if error else "-"])
    for name, cells in (("fitted on", fitted), ("tested on", tested)):
        factors = sorted(found.factors(cells))
        within = sum(each <= WANTED for each in factors)
        sets = ", ".join(dict.fromkeys(each.data for each in cells))
        shown = f"{within} of {len(factors)}; median factor {median(factors):.1f}, largest {factors[-1]:.0f}"
        lines.append([f"{name} {sets}: within a factor of {WANTED:g}", shown])
    return lines


def loss_rows(fitted: Sequence[Measured], tested: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the mean and the worst of `losses` over three choices of the cells of both."""
    columns = []
    for cells in (fitted, tested):
        found = losses(cells, fit(fitted))
        plain = [number for number, each in enumerate(cells) if each.cell == Cell(passes=each.cell.passes)]
        tuned = [number for number, each in enumerate(cells) if each.cell.start == "vectors"]
        columns += [(found, chosen) for chosen in (plain, tuned, range(len(cells)))]
    which = ("lengths alone", "all from vectors", "all")
    lines = [["choice", *(f"{name}: {each}" for name in ("fitted sets", "test sets") for each in which)]]
    names = dict.fromkeys(name for found, _ in columns for name in found)
    for name in sorted(names, key=lambda each: (not each.startswith("fixed"), each in (LAW, QUARTER))):
        shown = []
        for found, chosen in columns:
            have = [found[name][each] for each in chosen if each in found.get(name, {})]
            whole = len(have) == len(chosen) or (name == QUARTER and have)
            shown.append(f"{fmean(have):+.1f}, {min(have):+.1f}" if whole else "-")
        lines.append([name if name in (LAW, QUARTER) else f"`{name}`", *shown])
    return lines


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
