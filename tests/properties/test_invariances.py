"""Similarities of ±1 and the smallest temperatures leave losses and gradients finite."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

EXTREME = [
    "fixed:temperature=0.005",
    "learnable:initial_temperature=0.005,max_scale=200",
    "macl:base_temperature=0.05,alpha=2,threshold=0.8",
    "dystress:temperature_min=0.005,temperature_max=0.01",
    "dystress:profile=shifted,shift=-0.4,temperature_min=0.005,temperature_max=0.01,detach=false",
    "temperature-free:eps=1.2e-7",
    "schedule:temperature_min=0.005,temperature_max=0.005",
]
OBJECTIVES = ["infonce", "dcl", "dclw", "flatnce", "reweighted", "dual-temperature:second_temperature=1", "sigmoid"]


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def cornered(dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Returns pairs of views whose similarities are ±1 or nearly: identical, opposite, one row for all, almost identical."""
    rows = randn(0, 5, 4).detach()
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)[:, None]
    one_row = rows[:1].expand(5, 4)
    pairs = [(rows, rows), (rows, -rows), (one_row, one_row), (one_row, one_row * signs), (rows, rows * (1 + 1e-4 * rows))]
    return [(a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()) for a, b in pairs]


@pytest.mark.parametrize(
    ("strategy", "objective", "dtype", "layout"),
    every_pair(EXTREME, OBJECTIVES, [torch.float64, torch.float32, torch.bfloat16, torch.float16], ["two-view", "cross-view"]),
)
def test_extreme_similarities_and_temperatures_stay_finite(
    strategy: str, objective: str, dtype: torch.dtype, layout: Any
) -> None:
    loss_fn = ContrastiveLoss(strategy, objective, layout)
    loss_fn.set_progress(epoch=30.0)
    for position, (a, b) in enumerate(cornered(dtype)):
        loss = loss_fn(a, b)
        loss.backward()
        assert loss.isfinite(), f"pair {position}: the loss is {loss.item()}"
        assert all(leaf.grad.isfinite().all() for leaf in (a, b, *loss_fn.parameters())), f"pair {position}"
