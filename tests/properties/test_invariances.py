"""What must hold for every input: order, shift and scale invariances, slopes, finite values, and identities of gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from covering import every_pair
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tempplug import ContrastiveLoss

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")
quick = settings(deadline=None, max_examples=12, derandomize=True)

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
seeds = st.integers(0, 10_000)


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def value_and_gradients(loss_fn: ContrastiveLoss, *leaves: Tensor, **inputs: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    loss = loss_fn(*leaves, **inputs)
    return loss.detach(), torch.autograd.grad(loss, leaves)


@quick
@given(seed=seeds, rows=st.integers(2, 9), extra=st.integers(1, 12))
@pytest.mark.parametrize("strategy", ["fixed", "macl", "dystress:detach=false", "temperature-free"])
def test_order_of_the_negatives_does_not_matter(strategy: str, seed: int, rows: int, extra: int) -> None:
    a, b, queue, hard = randn(seed, rows, 5), randn(seed + 1, rows, 5), randn(seed + 2, extra, 5), randn(seed + 3, extra, 5)
    loss_fn = ContrastiveLoss(strategy, layout="queue", reduction="none")
    order = torch.randperm(extra, generator=torch.Generator().manual_seed(seed))
    expected = loss_fn(a, b, queue=queue, hard_negatives=hard)
    moved = loss_fn(a, b, queue=queue[order], hard_negatives=hard[order.flip(0)])
    swapped = loss_fn(a, b, queue=hard, hard_negatives=queue)
    torch.testing.assert_close(moved, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(swapped, expected, rtol=1e-13, atol=1e-13)


@quick
@given(seed=seeds, rows=st.integers(2, 9))
@pytest.mark.parametrize("layout", ["two-view", "cross-view"])
def test_order_of_the_batch_moves_the_rows_along(layout: str, seed: int, rows: int) -> None:
    a, b = randn(seed, rows, 5), randn(seed + 1, rows, 5)
    loss_fn = ContrastiveLoss("macl", "reweighted", layout, reduction="none")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    both = torch.cat([order, order + rows]) if layout == "two-view" else order
    torch.testing.assert_close(loss_fn(a[order], b[order]), loss_fn(a, b)[both], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-10, 1e-6, 1e6, 1e20])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "queue"])
def test_the_length_of_an_embedding_changes_its_own_gradient_alone(layout: Any, scale: float) -> None:
    a, b, queue = (randn(seed, 6, 5, dtype=torch.float32) for seed in range(3))
    inputs = {"queue": queue} if layout == "queue" else {}
    loss_fn = ContrastiveLoss("dystress", "infonce", layout)
    expected, (of_a, of_b) = value_and_gradients(loss_fn, a, b, **inputs)
    lengths = torch.logspace(0, math.log10(scale), 6)[:, None]
    loss, (of_scaled, of_other) = value_and_gradients(loss_fn, (a.detach() * lengths).requires_grad_(), b, **inputs)
    torch.testing.assert_close((loss, of_other), (expected, of_b), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_scaled * lengths, of_a, rtol=1e-4, atol=1e-5)
    assert (a * of_a).sum(dim=1).abs().max() < 1e-5  # moving along the embedding itself changes nothing


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


@quick
@given(seed=seeds, temperature=st.floats(0.005, 2.0))
def test_equal_temperatures_make_every_strategy_the_fixed_one(seed: int, temperature: float) -> None:
    a, b = randn(seed, 7, 6), randn(seed + 1, 7, 6)
    expected = ContrastiveLoss(f"fixed:temperature={temperature!r}")(a, b)
    bounds = f"temperature_min={temperature!r},temperature_max={temperature!r}"
    specs = [f"dystress:{bounds}", f"schedule:{bounds}", f"macl:base_temperature={temperature!r},alpha=0"]
    for spec in specs:
        loss_fn = ContrastiveLoss(spec)
        loss_fn.set_progress(epoch=30.0)
        torch.testing.assert_close(loss_fn(a, b), expected, rtol=1e-12, atol=1e-12, msg=spec)
    confident = (torch.zeros(7, dtype=torch.float64), torch.zeros(7, dtype=torch.float64))
    halved = ContrastiveLoss(f"uncertainty:base_temperature={temperature / 2!r}")(a, b, uncertainty=confident)
    torch.testing.assert_close(halved, expected, rtol=1e-12, atol=1e-12)
    assert math.isfinite(expected.item())
