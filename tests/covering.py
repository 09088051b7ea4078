"""Fewer cases than a product, with every pair of values of any two parameters in at least one of them (a covering array)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any


def every_pair(*values: Sequence[Any], allowed: Callable[..., bool] = lambda *case: True) -> list[tuple[Any, ...]]:
    """Cases, one value of each parameter, that hold every pair of values of two parameters that some allowed case holds.

    Greedy and deterministic: each step takes the allowed case with the most pairs that are still missing.
    """
    cases = [case for case in itertools.product(*map(range, map(len, values))) if allowed(*pick(values, case))]
    pairs = {case: frozenset(itertools.combinations(enumerate(case), 2)) for case in cases}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(pairs[case] & missing))
        chosen.append(pick(values, best))
        missing -= pairs[best]
    return chosen


def pick(values: Sequence[Sequence[Any]], case: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(each[position] for each, position in zip(values, case, strict=True))
