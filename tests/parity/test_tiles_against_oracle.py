"""The tiled engine through the loss against the float64 oracle, in one tile and in many ragged ones, kept or computed again.

Every strategy meets every layout; objectives and dtypes rotate.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from oracle_cases import COUNTS, LAYOUTS, OBJECTIVES, compare, make_call

pytestmark = [
    pytest.mark.usefixtures("cut"),
    pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning"),
]

STRATEGIES = [
    "fixed:temperature=0.07",
    "fixed:temperature=0.004",
    "learnable:initial_temperature=0.2,max_scale=8",
    "learnable:initial_temperature=0.02",
    "macl",
    "dystress",
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "temperature-free:eps=0.01",
    "schedule",
    f"head-tail:class_counts={COUNTS},temperature_tail=0.2",
    "uncertainty",
    "amcl:dimension=D",
    "amcl:dimension=D,span=0.5,floor=0.01,beta=0.01",
    "amcl:dimension=D,beta=0",
]
DTYPES = [torch.float64, torch.float32]
CASES = [
    (strategy, layout, OBJECTIVES[(i + j) % len(OBJECTIVES)], DTYPES[(i + j // 2) % 2])
    for (i, strategy), (j, layout) in itertools.product(enumerate(STRATEGIES), enumerate(LAYOUTS))
]


def test_objectives_and_types_meet_every_strategy_and_every_layout() -> None:
    for one, other in itertools.product([*OBJECTIVES, *DTYPES], [*STRATEGIES, *LAYOUTS]):
        assert any(one in case and other in case for case in CASES), f"{one} never meets {other}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)).replace(COUNTS, "…"))
def test_row_losses_and_gradients_are_those_of_the_oracle(case: tuple[str, str, str, torch.dtype]) -> None:
    strategy, layout, objective, dtype = case
    # Log-odds divide by 1 - |s|, down to 1e-2; logits at the smallest temperatures are hundreds of nats.
    reduced = 1e-4 if strategy.startswith(("temperature-free", "fixed:temperature=0.004", "amcl")) else 2e-5
    call = make_call(layout, strategy, 14, 6, dtype)
    compare(strategy, objective, call, 1e-10 if dtype == torch.float64 else reduced, "tiled")
