"""The law that the best temperatures of cells follow, and what each choice loses to the best of a cell.

The best temperature of a cell is that of a parabola in ln τ through the best fixed one by held-out pairs and its neighbours.
The law is a least-squares fit of its logarithm. A loss is of nDCG@10 on the test collection, in per cent of that of the fixed
temperature that is best on held-out pairs; between two temperatures that ran it is interpolated along ln τ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from studies.cells import Cell, Measured
from tempplug.arguments import parse_spec

TERMS = ("ln steps", "ln batch", "share of false negatives", "random start", "hard negatives")
LAW, QUARTER = "the law", "chosen after a quarter of the passes"
WANTED = 1.5
"""Factor within which the law is to give the best temperature."""


def terms(measured: Measured) -> list[float]:
    """Returns the `TERMS` of a cell, behind a 1."""
    cell = measured.cell
    return [1, math.log(measured.steps), math.log(cell.batch), cell.noise, float(cell.start == "random"), float(cell.hard)]


@dataclass(frozen=True)
class Law:
    """ln τ = a sum of `TERMS` with ``coefficients``, the first being the constant; ``errors`` are their standard errors."""

    coefficients: Sequence[float]
    errors: Sequence[float]

    def predicted(self, measured: Measured) -> float:
        """Returns ln τ of a cell."""
        return float(np.dot(self.coefficients, terms(measured)))

    def factors(self, cells: Iterable[Measured]) -> list[float]:
        """Returns by what factor the law misses the best temperature of each cell, at least 1."""
        return [math.exp(abs(self.predicted(each) - each.best())) for each in cells]


def fit(cells: Sequence[Measured]) -> Law:
    """Returns the law of some cells; the coefficient of a term that is the same in all of them is 0."""
    rows, best = np.array([terms(each) for each in cells]), np.array([each.best() for each in cells])
    used = [0, *np.flatnonzero(np.ptp(rows, axis=0))]
    found, *_ = np.linalg.lstsq(rows[:, used], best, rcond=None)
    variance = ((best - rows[:, used] @ found) ** 2).sum() / (len(cells) - len(used))
    coefficients, errors = np.zeros((2, rows.shape[1]))
    coefficients[used] = found
    errors[used] = np.sqrt(variance * np.diag(np.linalg.inv(rows[:, used].T @ rows[:, used])))
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
