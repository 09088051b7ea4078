"""Gradients err less than those of plain PyTorch where an anchor has several positives or every pair a temperature."""

from __future__ import annotations

from statistics import mean

import pytest
import torch
from torch import Tensor

from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.speed.step import Step, views

SEEDS = range(8)


def gradient(function: object, pair: tuple[Tensor, Tensor]) -> Tensor:
    step = Step(function, *pair)  # type: ignore[arg-type]
    step()
    return step.gradient()


@pytest.mark.parametrize(("loss", "rows"), [("labels", 64), ("labels", 256), ("amcl", 256)])
def test_errors_against_float64_are_smaller_than_eager_ones(loss: str, rows: int) -> None:
    errors: dict[str, list[float]] = {"ours": [], "eager": []}
    for seed in SEEDS:
        case = SpeedRecipe(rows=rows, dimension=128, seed=seed)
        exact = gradient(LOSSES[loss].eager(0.1), views(case, torch.float64))
        for name, found in errors.items():
            made = getattr(LOSSES[loss], name)(0.1)
            found.append(((gradient(made, views(case)) - exact).abs().max() / exact.abs().max()).item())
    assert mean(errors["ours"]) < 0.9 * mean(errors["eager"])
