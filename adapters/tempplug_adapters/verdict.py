"""Whether another temperature or strategy is better than the current one, by metrics over seeds.

The rule: change if the 95 % interval of the paired difference over the seeds is above 0. If the other one is the best of
several by the same seeds, the interval is widened for that choice (Bonferroni's correction), so that noise alone rarely wins.
It must not know how the metrics were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import mean, stdev

LEVEL = 0.05
POWER = 0.8
_MOST_SEEDS = 100


@dataclass(frozen=True)
class Verdict:
    """How much the best of the others differs from the reference.

    Attributes:
        reference: name of the current one, or of the second best if no current one is known.
        reference_is_current: whether the reference is the current one.
        best: name of the best of the others.
        lower_is_better: of the metric.
        difference: mean over seeds of the best minus the reference.
        half_width: half of the 95 % interval, from Student's t; None if there is one seed, or if the difference is equal with
            all seeds.
        seeds: number of seeds that both have.
        comparisons: number of differences of which this is the largest; the interval is widened for them.
        seeds_needed: about how many seeds would show a difference of this size with a probability of 80 %; None if it
            is clear, or not better, or if the noise is unknown, or more than 100 would be needed.
    """

    reference: str
    reference_is_current: bool
    best: str
    lower_is_better: bool
    difference: float
    half_width: float | None
    seeds: int
    comparisons: int
    seeds_needed: int | None

    @property
    def clear(self) -> bool:
        """Whether the whole interval is on the better side of 0."""
        return self.half_width is not None and self.gain > self.half_width

    @property
    def gain(self) -> float:
        """How much better the best is; negative if it is worse."""
        return -self.difference if self.lower_is_better else self.difference

    def sentence(self, metric: str) -> str:
        """Returns the verdict in words."""
        seeds = f"{self.seeds} seeds" if self.seeds > 1 else "one seed"
        if self.half_width is None:
            size = f"{self.difference:+.3g} with {'each of ' * (self.seeds > 1)}{seeds}"
        else:
            widened = f" for {self.comparisons} comparisons" if self.comparisons > 1 else ""
            size = f"{self.difference:+.3g} ± {self.half_width:.3g} (95 % interval{widened}, {seeds})"
        if self.reference_is_current:
            subject = f"You train at {self.reference}. {self.best} changes {metric}"
        elif not self.difference:
            return f"None is best: {self.best} and {self.reference} have the same {metric} with {seeds}."
        else:
            subject = f"{self.best} is best. Its {metric} differs from that of the second, {self.reference},"
        return f"{subject} by {size}: {self._conclusion()}"

    def _conclusion(self) -> str:
        same = "keep what you have" if self.reference_is_current else "they are not told apart"
        if self.clear:
            return "change it." if self.reference_is_current else "they differ clearly."
        if self.gain <= 0:
            return f"{same}."
        if self.half_width is None:
            return f"{same}, because {'equal differences' if self.seeds > 1 else 'one seed'} cannot tell the noise."
        number = f"about {self.seeds_needed}" if self.seeds_needed else f"more than {_MOST_SEEDS}"
        return f"{same}; a difference of this size needs {number} seeds to be seen."


def judge(values: Mapping[str, Mapping[int | None, float]], current: str | None, lower_is_better: bool = False) -> Verdict:
    """Compares the best with the current one.

    Args:
        values: metric by name and seed, of at least two names, all with the same seeds.
        current: one of the names; None compares the best with the second best.
        lower_is_better: of the metric.
    """
    ranked = sorted(values, key=lambda name: mean(values[name].values()), reverse=not lower_is_better)
    others = [name for name in ranked if name != current]
    best, reference = others[0], others[1] if current is None else current
    comparisons = len(values) - 1
    differences = [value - values[reference][seed] for seed, value in values[best].items()]
    difference = mean(differences)
    deviation = stdev(differences) if len(differences) > 1 else 0.0
    verdict = Verdict(
        reference, current is not None, best, lower_is_better, difference, None, len(differences), comparisons, None
    )
    if deviation <= 1e-9 * max(map(abs, values[best].values())):
        return verdict
    half_width = _quantile(1 - LEVEL / comparisons / 2, len(differences) - 1) * deviation / math.sqrt(len(differences))
    needed = _needed(verdict.gain / deviation, comparisons) if 0 < verdict.gain <= half_width else None
    return replace(verdict, half_width=half_width, seeds_needed=needed)


def _quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit  # of Student's t

    return float(stdtrit(degrees, probability))


def _needed(effect: float, comparisons: int) -> int | None:
    """Returns how many seeds show a difference of `effect` standard deviations of the paired differences."""
    for seeds in range(2, _MOST_SEEDS + 1):
        needed = _quantile(1 - LEVEL / comparisons / 2, seeds - 1) + _quantile(POWER, seeds - 1)
        if effect * math.sqrt(seeds) >= needed:
            return seeds
    return None
