"""Whether to leave the current temperature for another one, from repeated measurements of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tempplug.errors import ConfigError

LEVEL = 0.95
"""Probability that the intervals of all differences contain the true ones."""
MATTERS = 1.0
"""Points of accuracy that a difference must have to be worth a change."""


@dataclass(frozen=True)
class Verdict:
    """The best of the others beside the current temperature.

    Attributes:
        current: name of the current temperature.
        best: name of the highest mean among the others.
        difference: mean of the best minus that of the current one, in the unit of the measurements.
        half_width: of the interval of the difference; infinite where each has one measurement.
        change: whether to train at the best one.
        sentence: all of this in words.
    """

    current: str
    best: str
    difference: float
    half_width: float
    change: bool
    sentence: str


def judge(
    measured: Mapping[str, Sequence[float]],
    current: str,
    *,
    matters: float = MATTERS,
    quantity: str = "held-out accuracy",
    unit: str = "points",
    decimals: int = 1,
) -> Verdict:
    """Compares the current temperature with the best of the others.

    The rule: change if the interval of the difference is above 0 and the difference is at least ``matters``. The interval is
    Student's for paired differences, at `LEVEL` for all comparisons with the current one together (Bonferroni).

    Args:
        measured: for each temperature or strategy, by the name that the sentence uses, what was measured, higher is better;
            place i of all of them is the same held-out pair, or the same seed.
        current: name of the one that is trained with now.
        matters: smallest difference that is worth a change, in the unit of the measurements.
        quantity: what was measured, for the sentence.
        unit: of a difference, for the sentence.
        decimals: of the figures in the sentence.

    Raises:
        ConfigError: the current one was not measured, nothing else was, or the numbers of measurements differ.
    """
    if current not in measured or len(measured) < 2:
        raise ConfigError(f"current={current} must be among the measured, with another one beside it: {', '.join(measured)}.")
    if len({len(values) for values in measured.values()}) > 1:
        raise ConfigError("measured: all temperatures must have the same number of measurements, in the same order.")
    best = max((name for name in measured if name != current), key=lambda name: fmean(measured[name]))
    differences = [value - base for value, base in zip(measured[best], measured[current], strict=True)]
    difference, half_width = fmean(differences), half_width_of(differences, len(measured) - 1)
    change = difference >= matters and difference > half_width
    interval = f"± {half_width:.{decimals}f} {unit}" if math.isfinite(half_width) else f"{unit} (measured once: no interval)"
    sentence = (
        f"You train at {current}. {best} changes {quantity} by {difference:+.{decimals}f} {interval}: "
        f"{'change it' if change else 'keep what you have'}."
    )
    return Verdict(current, best, difference, half_width, change, sentence)


def half_width_of(differences: Sequence[float], comparisons: int) -> float:
    """Returns half the width of the interval of the mean, infinite for a single difference."""
    if len(differences) < 2:
        return math.inf
    from scipy.stats import t

    quantile = float(t.ppf(1 - (1 - LEVEL) / 2 / comparisons, len(differences) - 1))
    return quantile * stdev(differences) / math.sqrt(len(differences))
