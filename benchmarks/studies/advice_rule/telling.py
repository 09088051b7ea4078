"""Simulates when an answer of ``tempplug advise`` may be called a verdict; see README.md.

Run it as ``python -m studies.advice_rule.telling PLAN --output DIR``; the plan says how data sets are made.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

from studies.advice_rule.simulate import GAINS, MATTERS, Array, at_best_rates, crossed, curves, draw, write_results
from tempplug_adapters.advise.training import TEMPERATURES

MOST = 5
"""Repetitions that hold out each pair once."""
DRAWN: Array = np.random.default_rng(0).standard_normal((2000, len(TEMPERATURES) - 1))
"""Normal variables for the quantile of the largest of correlated differences."""
KEYS = ("rule", "schedule", "held_out", "decay", "curves", "gain")
COUNTS = ("repetitions", "verdicts", "keep", "wrong", "wrong_keep")


class Answer(NamedTuple):
    """The temperature, by place, that a rule advises, and how much another may gain over the current one, in points."""

    chosen: int
    missed: float


def largest(differences: Array, level: float) -> float:
    """Returns the two-sided quantile of the largest of normal variables that correlate as differences [T - 1, N] do."""
    varying = differences[differences.std(axis=1) > 0]
    if not len(varying):
        return 0.0
    factor = np.linalg.cholesky(np.atleast_2d(np.corrcoef(varying)) + 1e-6 * np.eye(len(varying)))
    return float(np.quantile(np.abs(DRAWN[:, : len(varying)] @ factor.T).max(axis=1), level))


def errors(differences: Array, repeated: bool) -> Array:
    """Returns the standard errors of the means of differences [T - 1, repetitions, anchors].

    With ``repeated`` they contain the variance between repetitions that anchors do not explain.
    """
    anchors = differences.reshape(len(differences), -1)
    variance: Array = anchors.var(axis=1, ddof=1) / anchors.shape[1]
    if repeated:
        between = differences.mean(axis=2).var(axis=1, ddof=1) / differences.shape[1]
        variance = variance + max(0.0, float((between - variance).mean()))
    return np.sqrt(variance)


def clear(credits: Array, current: int, *, level: float, together: str, repeated: bool = False) -> Answer:
    """Advises a change if the best difference is at least a point and its interval is above 0.

    Args:
        credits: of held-out anchors, [T, repetitions, anchors].
        current: place of the current temperature.
        level: of the interval.
        together: ``no``, ``bonferroni`` or ``dunnett``: for which comparisons it holds.
        repeated: see `errors`.
    """
    others = np.delete(np.arange(len(credits)), current)
    differences = credits[others] - credits[current]
    anchors = differences.reshape(len(others), -1)
    if together == "dunnett":
        quantile = largest(anchors, level)
    else:
        comparisons = len(others) if together == "bonferroni" else 1
        quantile = float(t.ppf(1 - (1 - level) / 2 / comparisons, anchors.shape[1] - 1))
    means, half_widths = anchors.mean(axis=1), quantile * errors(differences, repeated)
    best = int(means.argmax())
    change = means[best] >= MATTERS and means[best] > half_widths[best]
    return Answer(int(others[best]) if change else current, float((means + half_widths).max()))


def shrunken(credits: Array, current: int, *, level: float | None = None, most: float = math.inf) -> Answer:
    """Advises a change if the best difference is at least a point after all are shrunk towards 0, as the plans say.

    With a level, the credible interval of the measured best must be above 0, too; where only that is missing, no limit holds.
    ``most`` is how many standard errors a difference may lose.
    """
    others = np.delete(np.arange(len(credits)), current)
    differences = credits[others] - credits[current]
    variance = np.maximum(errors(differences, repeated=True) ** 2, 1e-9)
    means = differences.mean(axis=(1, 2))
    spread = max(0.0, float(np.median(means**2)) / 0.455 - float(variance.mean()))  # 0.455: median of a squared normal
    shares = spread / (spread + variance)
    bounds = np.abs(means) - most * np.sqrt(variance)
    held = bounds > shares * np.abs(means)
    likely = np.sign(means) * np.where(held, bounds, shares * np.abs(means))
    deviations = np.sqrt(np.where(held, 1.0, shares) * variance)
    best = int((likely if level is None else means).argmax())
    gains = likely[best] >= MATTERS
    certain = level is None or likely[best] > norm.ppf((1 + level) / 2) * deviations[best]
    missed = math.inf if gains and not certain else float((likely + norm.ppf(0.9) * deviations).max())
    return Answer(int(others[best]) if gains and certain else current, missed)


RULES: dict[str, Callable[[Array, int], Answer]] = {
    "bonferroni": partial(clear, level=0.95, together="bonferroni"),
    "interval": partial(clear, level=0.95, together="no"),
    "bonferroni-80": partial(clear, level=0.8, together="bonferroni"),
    "dunnett": partial(clear, level=0.95, together="dunnett"),
    "dunnett-80": partial(clear, level=0.8, together="dunnett"),
    "repeated": partial(clear, level=0.95, together="dunnett", repeated=True),
    "repeated-80": partial(clear, level=0.8, together="dunnett", repeated=True),
    "shrunken": shrunken,
    "shrunken-80": partial(shrunken, level=0.8),
    "shrunken-90": partial(shrunken, level=0.9),
    "shrunken-95": partial(shrunken, level=0.95),
    "limited-80": partial(shrunken, level=0.8, most=2.0),
}


def simulate(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields counts of answers by rule, schedule, held-out pairs, decay, half of the curves and gain, and of these by limit.

    Of `COUNTS`, ``repetitions`` is how many there were in all; ``verdicts`` counts answers that are one, ``keep`` those that
    keep the current temperature, ``wrong`` the verdicts for a temperature more than a point below the best, and ``wrong_keep``
    those of keep.
    """
    generator = np.random.default_rng(plan["seed"])
    current = TEMPERATURES.index(plan["current"])
    counts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for place, curve in enumerate(curves(plan["curves"])):
        kinds = (curve, np.full_like(curve, curve[current]))
        for heights, _, held_out, decay in product(kinds, range(plan["draws"]), plan["held_out"], plan["decay"]):
            rates = crossed(heights, generator)
            truth = rates.max(axis=1)
            gain = next(name for name, limit in GAINS.items() if truth.max() - truth[current] < limit)
            right = draw(rates, held_out, MOST, decay, plan["run_noise"], generator)
            measured = {number: at_best_rates(right[:, :, :number]) for number in range(min(plan["repetitions"]), MOST + 1)}
            for name in (each.partition(":")[0] for each in plan["rules"]):
                answers = {number: RULES[name](credits, current) for number, credits in measured.items()}
                for limit, schedule in product(plan["limits"], (*plan["repetitions"], "adaptive")):
                    number = schedule
                    told = [each for each, answer in answers.items() if answer.chosen != current or answer.missed <= limit]
                    if schedule == "adaptive":
                        number = min(told, default=MOST)
                    keep = answers[number].chosen == current
                    verdict = number in told
                    wrong = verdict and truth.max() - truth[answers[number].chosen] > MATTERS
                    key = (name, schedule, held_out, decay, "confirm" if place % 2 else "choose", gain, limit)
                    counts[key].update(
                        data_sets=1,
                        repetitions=number,
                        verdicts=int(verdict),
                        keep=int(verdict and keep),
                        wrong=int(wrong),
                        wrong_keep=int(wrong and keep),
                    )
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (*first, limit), counted in counts.items():
        named = dict(zip(KEYS, first, strict=True))
        line = lines.setdefault(tuple(first), named | {"data_sets": counted["data_sets"], "limits": {}})
        line["limits"][f"{limit:g}"] = [counted[name] for name in COUNTS]
    yield from lines.values()


if __name__ == "__main__":
    write_results(simulate, __doc__)
