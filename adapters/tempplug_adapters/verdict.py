"""Whether to leave the current temperature for another one, from repeated measurements of each.

`judge` is the rule for the seeds of a metric, `weigh` that for held-out pairs. Neither must know how they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import ArrayLike

from tempplug.errors import ConfigError

LEVEL = 0.95
"""Probability that the intervals of all differences contain the true ones."""
MATTERS = 1.0
"""Points of accuracy that a difference must have to be worth a change."""
CREDIBLE = 0.8
"""Probability that the likely gain of a temperature is in its interval."""
MISSED = 1.5
"""Points that another temperature may gain, at the upper end of its interval, if the verdict is to keep the current one."""
POWER = 0.8
"""Probability with which `Verdict.needed` measurements show the difference."""
_MOST_NEEDED = 100
_NOISIEST = 4.0
"""Standard error in points up to which the rule of `weigh` was simulated."""
_MOST_LOST = 2.0
"""Standard errors that a difference loses at most when it is shrunk."""
_MEDIAN_OF_SQUARE = 0.455
"""Of a normal variable of variance 1: few temperatures that are far off do not count for the variance of the others."""


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
    quantity: str,
    lower_is_better: bool = False,
) -> Verdict:
    """Compares the current temperature with the best of the others.

    The rule: change if the interval of the best's difference does not contain 0. The interval is Student's for paired
    differences, at `LEVEL` for all comparisons with the current one together (Bonferroni).

    Args:
        measured: for each temperature or strategy, by the name that the sentence uses, the metric by seed, the same for all.
        current: name of the one that is trained with now; None compares the best with the second best.
        quantity: what was measured, for the sentence.
        lower_is_better: of the measurements.

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
    quantile = _quantile(1 - (1 - LEVEL) / 2 / comparisons, count) if known else math.inf
    half_width = quantile * deviation / math.sqrt(count) if known else math.inf
    gain = -difference if lower_is_better else difference
    change = gain > half_width
    open_question = known and 0 < gain <= half_width
    needed = _needed(gain / deviation, comparisons) if open_question else None
    size = f"{difference:+.3g}" + f" ± {half_width:.3g}" * known
    if known:
        size += f" (95 % interval{f' for {comparisons} comparisons' if comparisons > 1 else ''}, {count} seeds)"
    else:
        size += f" ({f'the same in {count} seeds' if count > 1 else 'measured once'}: no interval)"
    if current is None:
        sentence = f"The {quantity} of the best, {best}, differs from that of the second, {reference}, by {size}: "
        sentence += "they differ clearly" if change else "they do not differ clearly"
    else:
        sentence = f"You train at {current}. {best} changes {quantity} by {size}: "
        sentence += "change it" if change else "cannot tell yet" if needed else "keep what you have"
    if known and not deviation and current is not None:
        sentence = f"You train at {reference}. {best} has the same {quantity} in every measurement: keep what you have"
    if open_question:
        number = f"about {needed}" if needed else f"more than {_MOST_NEEDED}"
        sentence += f"; a difference of this size needs {number} seeds to be seen"
    return Verdict(reference, best, difference, half_width, change, needed, f"{sentence}.")


@dataclass(frozen=True)
class Weighed:
    """What held-out pairs say of the other temperatures beside the current one, in points of accuracy.

    Attributes:
        current: name of the current temperature.
        best: name of the best mean among the others.
        difference: mean of the best minus that of the current one, as measured.
        likely: by name of each other, what it likely gains over the current one, and half the width of the interval.
        answer: ``change``, ``keep``, or ``open`` if the measurements tell neither.
        sentence: all of this in words.
    """

    current: str
    best: str
    difference: float
    likely: Mapping[str, tuple[float, float]]
    answer: str
    sentence: str


def weigh(measured: Mapping[str, ArrayLike], current: str) -> Weighed:
    """Compares the current temperature with all others by differences that are shrunk towards 0 (empirical Bayes).

    The best of several is partly luck: each difference is multiplied by the share of its variance that is not noise, with the
    variance of the true differences estimated from all, but loses at most two standard errors (Efron and Morris 1971,
    limited translation). The rule: change if the best likely gains at least `MATTERS` and the lower end of its interval is
    above 0; keep if it does not, no other gains more than `MISSED` at the upper end of its interval, and the noise is not
    above what was simulated; otherwise the question is open. benchmarks/studies/advice_rule has how often this is right.

    Args:
        measured: for each temperature, by its name, [R, N] what was measured in R repetitions with N held-out pairs each, the
            same for all, in percent.
        current: name of the one that is trained with now.

    Raises:
        ConfigError: the current one was not measured, or nothing else was.
    """
    if len(measured) < 2 or current not in measured:
        raise ConfigError(f"current={current} must be among the measured, with another one beside it: {', '.join(measured)}.")
    names = [name for name in measured if name != current]
    differences = np.stack([np.asarray(measured[name]) - np.asarray(measured[current]) for name in names])
    means = differences.mean(axis=(1, 2))
    variances = differences.reshape(len(names), -1).var(axis=1, ddof=1) / differences[0].size
    if (repetitions := differences.shape[1]) > 1:  # the noise of trainings, which pairs do not show
        between = differences.mean(axis=2).var(axis=1, ddof=1) / repetitions
        variances += max(0.0, (between - variances).mean())
    variances = variances.clip(min=1e-9)
    spread = max(0.0, np.median(means**2) / _MEDIAN_OF_SQUARE - variances.mean())
    shares = spread / (spread + variances)
    shrunken, least = shares * abs(means), abs(means) - _MOST_LOST * np.sqrt(variances)
    gains = np.sign(means) * np.maximum(shrunken, least)
    deviations = np.sqrt(np.where(shrunken < least, 1.0, shares) * variances)
    half_widths = NormalDist().inv_cdf((1 + CREDIBLE) / 2) * deviations
    likely = {name: (float(gain), float(half)) for name, gain, half in zip(names, gains, half_widths, strict=True)}
    best = names[int(means.argmax())]
    gain, half_width = likely[best]
    upper, most = max((each + half, name) for name, (each, half) in likely.items())
    noise = float(np.sqrt(variances.mean()))
    answer, words = "keep", "keep what you have"
    if gain >= MATTERS and gain > half_width:
        answer, words = "change", "change it"
    elif gain >= MATTERS or upper > MISSED:
        answer, words = "open", f"cannot tell yet, {most} may gain {upper:.1f}"
    elif noise > _NOISIEST:
        answer, words = "open", f"cannot tell yet, the noise is ± {noise:.1f} points"
    difference = float(means.max())
    size = f"{difference:+.1f} points, " + (f"likely {gain:+.1f} ± {half_width:.1f}" if half_width else "no more than chance")
    sentence = f"You train at {current}. {best} changes held-out accuracy by {size}: {words}."
    return Weighed(current, best, difference, likely, answer, sentence)


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
