"""Detects known problems of a contrastive training from its logs, and gives remedies.

The limits mark values at which a quantity no longer has an effect; a training that works well does not reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LAST: Final = 3
"""Number of consecutive logs with a problem before it is reported, because a single batch may be unusual."""
LOST: Final = 0.5
"""A collapsing training has less than this fraction of its best uniformity."""
SPREAD: Final = -1.0
"""Uniformity that a training must have reached before it can collapse."""

Entries = Sequence[Mapping[str, Any]]
_CLOSE = (
    "end the projection head with batch normalisation (--last-batch-norm for graphs and images), which removes what all "
    "embeddings share, or lower the temperature, so that near negatives are pushed harder; a lower learning rate or weight "
    "decay, a larger batch, and the candidates of all processes (gather=True) keep embeddings apart too"
)


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        name: short description.
        seen: evidence in the logs.
        remedy: recommended action.
    """

    name: str
    seen: str
    remedy: str


def problems(entries: Entries, bounds: Mapping[str, float] | None = None, remedy: str = "choose other bounds") -> list[Problem]:
    """Returns the problems at the end of the logs, the most serious first; empty if there are too few logs.

    Args:
        entries: logs of training steps, in order.
        bounds: limits of the strategy's temperature by the options that set them, if known.
        remedy: advice of the strategy for temperatures at a bound.
    """
    figure = "uniformity" if any("uniformity" in each for each in entries) else "negative_similarity"
    best = min((_uniformity(figure, float(each[figure])) for each in entries if figure in each), default=0.0)
    # Collapsed embeddings also have similar positives, so only the first of these three problems is reported.
    alike: list[tuple[str, Callable[[float], bool], str, str, str]] = [
        (
            figure,
            lambda value: _uniformity(figure, value) > -0.2,  # spread embeddings have -2 to -4
            "uniformity has collapsed",
            f"{figure} is {{value:.2g}} {{since}}: all embeddings lie on nearly one point",
            _CLOSE,
        ),
        (
            figure,
            lambda value: best < SPREAD and _uniformity(figure, value) > LOST * best,
            "uniformity is collapsing",
            f"{figure} was {_value(figure, best):.3g} and is above {_value(figure, LOST * best):.3g} {{since}}: {{value:.3g}}",
            _CLOSE,
        ),
        (
            "positive_similarity",
            lambda value: value > 0.999,
            "positives are alike",
            "their mean similarity is {value:.5g} {since}: both views of an item are one, and nothing is left to align",
            "augment more strongly (dropout, crops, dropped edges or words), and make sure that the two views do not share it",
        ),
    ]
    close = next(filter(None, (_found(entries, *each) for each in alike)), None)
    gradient = _found(
        entries,
        "gradient_scale",
        lambda value: value < 0.01,
        "the gradient scale has collapsed",
        "it is {value:.2g} {since}: the positives have all the probability, and most pairs have no gradient any more",
        "raise the temperature; larger batches, hard negatives or stronger augmentation make the task harder; objective dcl or "
        "flatnce keeps the gradient of easy pairs",
    )
    return [each for each in (close, gradient, _bound(entries, bounds or {}, remedy)) if each is not None]


def _uniformity(figure: str, value: float) -> float:
    """Returns uniformity from its own value; from the mean similarity of negatives its lower bound by Jensen's inequality."""
    return value if figure == "uniformity" else 4 * (value - 1)


def _value(figure: str, uniformity: float) -> float:
    return uniformity if figure == "uniformity" else 1 + uniformity / 4


def _found(entries: Entries, figure: str, holds: Callable[[float], bool], name: str, seen: str, remedy: str) -> Problem | None:
    """Returns the problem, its beginning and last value, if ``holds`` is true in the last logs with the quantity."""
    having = [each for each in entries if figure in each]
    count = next((at for at, each in enumerate(reversed(having)) if not holds(float(each[figure]))), len(having))
    if count < LAST:
        return None
    first = having[-count]
    since = f"since step {first['step']}" if "step" in first else f"in the last {count} logs"
    return Problem(name, seen.format(value=float(having[-1][figure]), since=since), remedy)


def _bound(entries: Entries, bounds: Mapping[str, float], remedy: str) -> Problem | None:
    temperature = next((float(each["temperature"]) for each in reversed(entries) if "temperature" in each), 0.0)
    option, bound = min(bounds.items(), key=lambda each: abs(each[1] - temperature), default=("", 0.0))
    kind = "a bound" if not bounds else "its ceiling" if min(bounds.values()) < bound else "its floor"
    which = f", {option} = {bound:.3g}" if bounds else ""
    seen = f"it is {temperature:.3g} {{since}}{which}, and no longer adapts"
    # logs leave the share out while it is 0
    entries = [{"temperature_at_bound": 0.0, **each} for each in entries if "temperature" in each]
    return _found(entries, "temperature_at_bound", lambda value: value >= 0.99, f"the temperature is at {kind}", seen, remedy)
