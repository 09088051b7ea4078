"""Whether to leave the current temperature for another one, from repeated measurements of each.

It must not know how they were measured.
"""

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
POWER = 0.8
"""Probability with which `Verdict.needed` measurements show the difference."""
_MOST_NEEDED = 100


@dataclass(frozen=True)
class Verdict:
    """The best of the others beside the current temperature.

    Attributes:
        current: name of the current temperature; of the second best if no current one was named.
        best: name of the best mean among the others.
        difference: mean of the best minus that of the current one, in the unit of the measurements.
        half_width: of the interval of the difference; infinite where each has one measurement, or where the difference is the
            same in all, so that the noise is unknown.
        change: whether to train at the best one.
        needed: about how many measurements of each would show a difference of this size with probability `POWER`; None if it
            is shown, or does not matter, or its noise is unknown, or 100 are not enough.
        sentence: all of this in words.
    """

    current: str
    best: str
    difference: float
    half_width: float
    change: bool
    needed: int | None
    sentence: str


def judge(
    measured: Mapping[str, Sequence[float]],
    current: str | None,
    *,
    lower_is_better: bool = False,
    matters: float = MATTERS,
    quantity: str = "held-out accuracy",
    unit: str = "points",
    decimals: int | None = 1,
    repeats: str = "",
) -> Verdict:
    """Compares the current temperature with the best of the others.

    The rule: change if the best is better by at least ``matters``, and the interval of its difference does not contain 0. The
    interval is Student's for paired differences, at `LEVEL` for all comparisons with the current one together (Bonferroni).

    Args:
        measured: for each temperature or strategy, by the name that the sentence uses, what was measured; place i of all of
            them is the same held-out pair, or the same seed.
        current: name of the one that is trained with now; None compares the best with the second best.
        lower_is_better: of the measurements.
        matters: smallest difference that is worth a change, in the unit of the measurements.
        quantity: what was measured, for the sentence.
        unit: of a difference, for the sentence; may be empty.
        decimals: of the figures in the sentence; None for three significant digits.
        repeats: what differs between the measurements, such as ``seeds``: the sentence then says how many there are and how
            many would be needed.

    Raises:
        ConfigError: the current one was not measured, nothing else was, or the numbers of measurements differ.
    """
    if len(measured) < 2 or (current is not None and current not in measured):
        raise ConfigError(f"current={current} must be among the measured, with another one beside it: {', '.join(measured)}.")
    if len({len(values) for values in measured.values()}) > 1:
        raise ConfigError("measured: all temperatures must have the same number of measurements, in the same order.")
    ranked = sorted(measured, key=lambda name: fmean(measured[name]), reverse=not lower_is_better)
    best, *others = (name for name in ranked if name != current)
    reference = others[0] if current is None else current
    differences = [value - base for value, base in zip(measured[best], measured[reference], strict=True)]
    difference, count, comparisons = fmean(differences), len(differences), len(measured) - 1
    deviation = stdev(differences) if count > 1 else 0.0
    known = count > 1 and (deviation > 1e-9 * max(map(abs, measured[best])) or difference == 0)  # whether the noise is
    half_width = half_width_of(differences, comparisons) if known else math.inf
    gain = -difference if lower_is_better else difference
    change = gain >= matters and gain > half_width
    open_question = known and 0 < gain <= half_width and gain >= matters
    needed = _needed(gain / deviation, comparisons) if open_question else None
    digits = ".3g" if decimals is None else f".{decimals}f"
    size = f"{difference:+{digits}}" + f" ± {half_width:{digits}}" * known + f" {unit}" * bool(unit)
    if not known:
        size += f" ({f'the same in {count} {repeats}' if count > 1 else 'measured once'}: no interval)"
    elif repeats:
        size += f" (95 % interval{f' for {comparisons} comparisons' if comparisons > 1 else ''}, {count} {repeats})"
    if current is None:
        sentence = f"The {quantity} of the best, {best}, differs from that of the second, {reference}, by {size}: "
        sentence += "they differ clearly" if change else "they do not differ clearly"
    else:
        sentence = f"You train at {current}. {best} changes {quantity} by {size}: "
        sentence += "change it" if change else "keep what you have"
    if known and not deviation and current is not None:
        sentence = f"You train at {reference}. {best} has the same {quantity} in every measurement: keep what you have"
    if open_question and repeats:
        number = f"about {needed}" if needed else f"more than {_MOST_NEEDED}"
        sentence += f"; a difference of this size needs {number} {repeats} to be seen"
    return Verdict(reference, best, difference, half_width, change, needed, f"{sentence}.")


def half_width_of(differences: Sequence[float], comparisons: int) -> float:
    """Returns half the width of the interval of the mean, infinite for a single difference."""
    if len(differences) < 2:
        return math.inf
    quantile = _quantile(1 - (1 - LEVEL) / 2 / comparisons, len(differences))
    return quantile * stdev(differences) / math.sqrt(len(differences))


def _quantile(probability: float, count: int) -> float:
    """Returns the quantile of Student's distribution for the mean of ``count`` values."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, probability))


def _needed(effect: float, comparisons: int) -> int | None:
    """Returns how many measurements show a difference of ``effect`` standard deviations of the paired differences."""
    for count in range(2, _MOST_NEEDED + 1):
        quantiles = _quantile(1 - (1 - LEVEL) / 2 / comparisons, count) + _quantile(POWER, count)
        if effect * math.sqrt(count) >= quantiles:
            return count
    return None
