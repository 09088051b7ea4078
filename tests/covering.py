"""Fewer cases than a product, with every pair of values of any two parameters in at least one of them (a covering array)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Pair = tuple[tuple[int, int], tuple[int, int]]


def every_pair(*values: Sequence[Any], allowed: Callable[..., bool] = lambda *case: True) -> list[tuple[Any, ...]]:
    """Cases, one value of each parameter, that hold every pair of values of two parameters that some allowed case holds.

    Deterministic: each case is built around a pair that is still missing, and takes of every other parameter the value with the
    most missing pairs. Where such a case is not allowed, all others with that pair are searched.
    """
    sizes = list(map(len, values))
    missing: dict[Pair, None] = {
        ((i, a), (j, b)): None
        for i, j in itertools.combinations(range(len(sizes)), 2)
        for a, b in itertools.product(range(sizes[i]), range(sizes[j]))
    }

    def gain(case: Iterable[tuple[int, int]]) -> int:
        return sum(pair in missing for pair in itertools.combinations(case, 2))

    def value_of(case: dict[int, int]) -> list[Any]:
        return [each[case[position]] for position, each in enumerate(values)]

    chosen: list[tuple[Any, ...]] = []
    while missing:
        first = next(iter(missing))
        case = dict(first)
        for parameter in range(len(sizes)):
            if parameter not in case:
                # Of values with as many the one whose turn it is, so that the others rotate.
                turns = [(len(chosen) + each) % sizes[parameter] for each in range(sizes[parameter])]
                case[parameter] = max(turns, key=lambda each: gain(sorted({**case, parameter: each}.items())))
        if not allowed(*value_of(case)):
            others = (each for each in completions(dict(first), sizes) if allowed(*value_of(each)))
            case = max(others, key=lambda each: gain(sorted(each.items())), default={})
        if case:
            chosen.append(tuple(value_of(case)))
        for pair in [first, *itertools.combinations(sorted(case.items()), 2)]:
            missing.pop(pair, None)
    return chosen


def completions(case: dict[int, int], sizes: list[int]) -> Iterator[dict[int, int]]:
    """Every case that holds some values."""
    free = [parameter for parameter in range(len(sizes)) if parameter not in case]
    for each in itertools.product(*(range(sizes[parameter]) for parameter in free)):
        yield {**case, **dict(zip(free, each, strict=True))}
