"""Paired t tests over seeds, corrected for interim analyses and multiple comparisons, and detectable differences.

Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from tempplug_benchmarks.results import Difference

LEVEL = 0.05
POWER = 0.8
FEW = 5
"""Minimum number of seeds for a verdict of better or worse."""

Verdict = Literal["better", "worse", "too small", "no difference seen", "underpowered", "one seed", "no signal", "mixed seeds"]


K = TypeVar("K")


@dataclass(frozen=True)
class Comparable:
    """One difference of a family of comparisons.

    Attributes:
        difference: to the baseline.
        higher_is_better: whether larger values are better.
        signal: whether the baseline is clearly better than without the loss; None if not measured.
        smallest: smallest absolute difference called better or worse, in the unit of the difference, at least 0.
        looks: number of analyses of the results, interim ones included, at least 1.
        seeds: seeds that every arm should have, by the plan or as the others; 0 if they may differ, as `looks` are corrected
            for. Arms with fewer get no verdict, because seeds may have been added until a difference was seen.
    """

    difference: Difference
    higher_is_better: bool
    signal: bool | None
    smallest: float = 0.0
    looks: int = 1
    seeds: int = 0


@dataclass(frozen=True)
class Significance:
    """The test of one difference of a family.

    Attributes:
        p: two-sided p-value of the paired t test.
        adjusted: p times the looks, with Holm's correction for the comparisons of the family.
        detectable: the difference found with 80 % power, at the level divided by comparisons and looks.
        verdict: a short verdict.
    """

    p: float | None
    adjusted: float | None
    detectable: float | None
    verdict: Verdict


def p_value(difference: Difference) -> float | None:
    """Returns the two-sided p-value of the paired t test; None for a single seed.

    If the differences of all seeds are equal, as with few test items, the t statistic is undefined; the sign test's p-value,
    2 ** (1 - number of seeds), is returned instead.
    """
    from scipy.stats import t

    if difference.deviation is None:
        return None
    if _all_equal(difference):
        return 2.0 ** (1 - difference.count) if difference.mean else 1.0
    statistic = abs(difference.mean) / (difference.deviation / math.sqrt(difference.count))
    return float(2 * t.sf(statistic, difference.count - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns the p-values after Holm's correction, in the given order."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted


def detectable(difference: Difference, comparisons: int) -> float | None:
    """Returns the true difference that would be found with 80 % power, at the level divided by all comparisons.

    The deviation is treated as known, which makes the value slightly too small. None for a single seed, or if the differences
    of all seeds are equal.

    Args:
        difference: gives the deviation and the number of seeds.
        comparisons: number of comparisons in the family, times the looks.
    """
    from scipy.stats import t

    if difference.deviation is None or _all_equal(difference):
        return None
    degrees = difference.count - 1
    needed = t.ppf(1 - LEVEL / comparisons / 2, degrees) + t.ppf(POWER, degrees)
    return float(needed * difference.deviation / math.sqrt(difference.count))


def _all_equal(difference: Difference) -> bool:
    """Returns whether the differences of all seeds are equal up to rounding."""
    return difference.deviation is not None and difference.deviation <= 1e-9 * abs(difference.mean)


def judge(family: Mapping[K, Comparable]) -> dict[K, Significance]:
    """Returns the significance of each difference of a family: all comparisons that answer one question, by name."""
    p_values = {name: p for name, each in family.items() if (p := p_value(each.difference)) is not None}
    adjusted = dict(zip(p_values, holm([min(1.0, family[name].looks * p) for name, p in p_values.items()]), strict=True))
    return {
        name: Significance(
            p_values.get(name),
            adjusted.get(name),
            detectable(each.difference, each.looks * len(p_values)),
            _verdict(each, adjusted.get(name)),
        )
        for name, each in family.items()
    }


def _verdict(each: Comparable, adjusted: float | None) -> Verdict:
    if each.signal is False:
        return "no signal"
    if adjusted is None:
        return "one seed"
    if each.difference.count < FEW:
        return "underpowered"
    if each.difference.count < each.seeds:
        return "mixed seeds"
    if adjusted >= LEVEL:
        return "no difference seen"
    if abs(each.difference.mean) < each.smallest:
        return "too small"
    return "better" if (each.difference.mean > 0) == each.higher_is_better else "worse"


def has_signal(over_without: Difference | None, higher_is_better: bool) -> bool | None:
    """Returns whether the baseline is clearly better than without the loss; None if their difference was not measured."""
    if over_without is None or (p := p_value(over_without)) is None:
        return None
    return p < LEVEL and (over_without.mean > 0) == higher_is_better
