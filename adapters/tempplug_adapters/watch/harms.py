"""What is known to be harmful in a contrastive training, as its logs show it, in words and with a remedy.

The limits are where a quantity no longer does its work, not where it is low: a training that is well shows none of them. It
must not know where the logs come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AT_BOUND = 0.99
"""Share of temperatures on a bound."""
LITTLE_GRADIENT = 0.01
"""Mean 1 - probability of the positive below which an anchor hardly moves."""
ALIKE = 0.999
"""Similarity of positives above which the two views are one."""
ONE_POINT = -0.2
"""Uniformity above which embeddings lie on nearly one point: spread ones have -2 to -4."""
LOST = 0.5
"""Share of its best uniformity that a training has left when it collapses."""
SPREAD = -1.0
"""Only what was this uniform once can collapse."""
LAST = 3
"""Logs that must agree before something is said: one batch may be odd."""

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Harm:
    """One thing that is wrong.

    Attributes:
        name: in a few words.
        seen: what the logs show.
        remedy: what to do.
    """

    name: str
    seen: str
    remedy: str


def harms(entries: Entries, bounds: Mapping[str, float] | None = None, remedy: str = "choose other bounds") -> list[Harm]:
    """Returns what is harmful at the end of the logs, the worst first; nothing where they are too few to say.

    Args:
        entries: logs of training steps, in order.
        bounds: temperatures that the strategy never passes, by the options that set them, where it is known.
        remedy: of the strategy, for temperatures on their bounds.
    """
    # on one point positives are alike as well, whatever the views
    first = _collapse(entries) or _alike(entries)
    found = (first, _little_gradient(entries), _bound(entries, bounds or {}, remedy))
    return [each for each in found if each is not None]


def _since(entries: Entries, name: str, holds: Callable[[float], bool]) -> tuple[float, str] | None:
    """Returns the last value and since when it holds, where it does in the last logs that have it."""
    having = [each for each in entries if name in each]
    count = 0
    while count < len(having) and holds(float(having[-1 - count][name])):
        count += 1
    if count < LAST:
        return None
    first = having[-count]
    return float(having[-1][name]), f"since step {first['step']}" if "step" in first else f"in the last {count} logs"


def _collapse(entries: Entries) -> Harm | None:
    remedy = (
        "lower the temperature, so that near negatives are pushed harder; a lower learning rate or weight decay, a larger "
        "batch, and the candidates of all processes (gather=True) keep embeddings apart too"
    )
    if found := _since(entries, "uniformity", lambda value: value > ONE_POINT):
        value, since = found
        return Harm("uniformity has collapsed", f"it is {value:.2g} {since}: all embeddings lie on nearly one point", remedy)
    values = [float(each["uniformity"]) for each in entries if "uniformity" in each]
    best = min(values, default=0.0)
    if best < SPREAD and (found := _since(entries, "uniformity", lambda value: value > LOST * best)):
        value, since = found
        return Harm(
            "uniformity is collapsing", f"it was {best:.3g} and is above {LOST * best:.3g} {since}: {value:.3g}", remedy
        )
    return None


def _alike(entries: Entries) -> Harm | None:
    found = _since(entries, "positive_similarity", lambda value: value > ALIKE)
    if found is None:
        return None
    value, since = found
    return Harm(
        "positives are alike",
        f"their mean similarity is {value:.5g} {since}: both views of an item are one, and nothing is left to align",
        "augment more strongly (dropout, crops, dropped edges or words), and make sure that the two views do not share it",
    )


def _little_gradient(entries: Entries) -> Harm | None:
    found = _since(entries, "gradient_scale", lambda value: value < LITTLE_GRADIENT)
    if found is None:
        return None
    value, since = found
    return Harm(
        "the gradient scale has collapsed",
        f"it is {value:.2g} {since}: the positives have all the probability, and most pairs teach nothing any more",
        "raise the temperature; larger batches, hard negatives or stronger augmentation make the task harder; objective dcl or "
        "flatnce keeps the gradient of easy pairs",
    )


def _bound(entries: Entries, bounds: Mapping[str, float], remedy: str) -> Harm | None:
    found = _since(entries, "temperature_at_bound", lambda value: value >= AT_BOUND)
    if found is None:
        return None
    _, since = found
    temperature = float(next(each["temperature"] for each in reversed(entries) if "temperature" in each))
    if not bounds:
        return Harm("the temperature is at a bound", f"it is {temperature:.3g} {since}, and no longer adapts", remedy)
    name, bound = min(bounds.items(), key=lambda each: abs(each[1] - temperature))
    others = [each for each in bounds.values() if each != bound]
    ceiling = any(each < bound for each in others)
    return Harm(
        f"the temperature is at its {'ceiling' if ceiling else 'floor'}",
        f"it is {temperature:.3g} {since}, {name} = {bound:.3g}, and no longer adapts",
        remedy,
    )
