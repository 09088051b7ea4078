"""Each engine, asked for by name, against the float64 oracle: engine × strategy × layout × objective × dtype × odd shapes.

A greedy choice of cases makes every pair of settings meet, so that the file stays quick; a few cases of a thousand rows, which
take several tiles a side, come on top.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from oracle_cases import COUNTS, HALF, LAYOUTS, OBJECTIVES, compare, make_call

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

HEAD_TAIL = f"head-tail:class_counts={COUNTS},temperature_tail=0.2"
STRATEGIES = [
    "fixed:temperature=0.05",
    "learnable",
    "learnable:initial_temperature=0.2,max_scale=8",
    "macl",
    "dystress",
    "dystress:detach=false",
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "temperature-free",
    "schedule",
    HEAD_TAIL,
    "uncertainty",
]
ENGINES = ["dense", "tiled"]
DTYPES = [torch.float64, torch.float32, *HALF]
ROWS = [2, 3, 127, 129]
DIMENSIONS = [1, 3, 130]
AXES: list[Sequence[Any]] = [ENGINES, STRATEGIES, LAYOUTS, OBJECTIVES, DTYPES, ROWS, DIMENSIONS]
# The shapes that need many tiles: several positives and per-anchor scales, both sums of a block, columns behind a queue.
MANY_ROWS = [
    ("tiled", "learnable", "two-view", "infonce", torch.float32, 1000, 3),
    ("tiled", "dystress", "two-view", "dcl", torch.float64, 1000, 130),
    ("tiled", HEAD_TAIL, "two-view+hard", "reweighted", torch.float32, 1000, 3),
    ("tiled", "temperature-free", "two-view+hard", "infonce", torch.float64, 1000, 3),
    ("tiled", "learnable", "symmetric", "infonce", torch.float64, 1000, 130),
    ("tiled", "uncertainty", "symmetric", "infonce", torch.float32, 1000, 3),
    ("tiled", "dystress:detach=false", "symmetric+hard", "dclw", torch.float32, 1000, 130),
    ("tiled", "learnable", "queue", "infonce", torch.float32, 1000, 130),
    ("tiled", "macl", "queue+hard", "dual-temperature", torch.float64, 1000, 3),
    ("tiled", "learnable", "labels", "infonce", torch.float32, 1000, 3),
    ("tiled", "learnable", "masks", "infonce", torch.float64, 1000, 3),
    ("dense", "learnable", "two-view", "infonce", torch.float32, 1000, 130),
]


def pairs_of(case: dict[int, Any]) -> set[tuple[Any, ...]]:
    """Returns the pairs of settings that meet in a case, which holds settings by the number of their axis."""
    return {(*first, *second) for first, second in itertools.combinations(sorted(case.items(), key=lambda item: item[0]), 2)}


def pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Returns cases in which every two settings of different axes meet, each built around a pair that is still missing."""
    numbered = list(enumerate(axes))
    missing = {
        (i, a, j, b): None for (i, first), (j, second) in itertools.combinations(numbered, 2) for a in first for b in second
    }
    cases: list[tuple[Any, ...]] = []
    while missing:
        i, a, j, b = next(iter(missing))
        case = {i: a, j: b}
        for axis, settings in numbered:
            if axis not in case:
                # Of settings that bring as many missing pairs the one whose turn it is, so that the others rotate.
                turn = len(cases) % len(settings)
                rotated = [*settings[turn:], *settings[:turn]]
                case[axis] = max(rotated, key=lambda each: len(pairs_of({**case, axis: each}) & missing.keys()))
        for pair in pairs_of(case):
            missing.pop(pair, None)
        cases.append(tuple(case[axis] for axis, _ in numbered))
    return cases


CASES = pairwise(AXES)


def test_the_cases_contain_every_pair() -> None:
    met = {(*pair,) for case in CASES for pair in itertools.combinations(enumerate(case), 2)}
    axes = [[(axis, setting) for setting in settings] for axis, settings in enumerate(AXES)]
    wanted = {pair for first, second in itertools.combinations(axes, 2) for pair in itertools.product(first, second)}
    assert wanted <= met, f"never meet: {sorted(map(str, wanted - met))[:5]}"
    assert len(CASES) < 200


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *MANY_ROWS], ids=lambda case: " ".join(map(str, case)).replace(COUNTS, "…"))
def test_row_losses_and_gradients_are_those_of_the_oracle(case: tuple[Any, ...]) -> None:
    engine, strategy, layout, objective, dtype, rows, dimension = case
    # Row losses are differences of logits of up to 20 nats, each rounded to float32. Log-odds and their slope divide by
    # 1 - |s|, down to 1e-4, of which the float32 rounding of s alone is 1e-3.
    reduced = 2e-3 if strategy == "temperature-free" else 1e-5
    tolerance = 1e-10 if dtype == torch.float64 else reduced
    compare(strategy, objective, make_call(layout, strategy, rows, dimension, dtype), tolerance, engine)
