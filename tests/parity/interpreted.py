"""The Triton kernels on the CPU, interpreted, against the oracle and plain torch.

`test_triton_engine.py` runs this file in a process of its own, with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from covering import every_pair
from engine_cases import CPU, block_of_rows, with_rows
from torch import Tensor
from torch.nn.functional import normalize
from triton_cases import CASES, TYPES, Case, check

from tempplug.block import Block
from tempplug.engine.dense import dense_statistics
from tempplug.engine.triton import triton_statistics
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import LogitMap, LogOddsMap, ScaleMap

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

# Modules whose parts are watched or replaced.
AUTOGRAD: Any = import_module("tempplug.engine.triton.autograd")
PASSES: Any = import_module("tempplug.engine.triton.passes")
PLAN: Any = import_module("tempplug.engine.triton.plan")


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_loss_and_gradients_are_those_of_the_oracle(case: Case) -> None:
    check(case)


def square_roles(count: int) -> PairRoles:
    half = count // 2
    positives, own = Pairing(((0, half, half), (half, count, -half))), Pairing(((0, count, 0),))
    return PairRoles(anchors=count, candidates=count, device=CPU, positives=positives, ignored=own, square=True)


def cross_roles(anchors: int, candidates: int) -> PairRoles:
    return PairRoles(anchors=anchors, candidates=candidates, device=CPU, positives=Pairing(((0, anchors, 0),)))


def block_of(rows: Tensor, precision: torch.dtype = torch.float32) -> Block:
    similarity = (rows * rows.roll(len(rows) // 2, 0)).sum(1).detach()
    return block_of_rows(rows, rows, square_roles(len(rows)), similarity, precision)


def cross_block(anchors: Tensor, candidates: Tensor, roles: PairRoles, precision: torch.dtype = torch.float32) -> Block:
    return block_of_rows(anchors, candidates, roles, torch.zeros(len(anchors)), precision)


def unit(count: int, dimension: int) -> Tensor:
    return normalize(torch.randn(count, dimension, generator=torch.Generator().manual_seed(3)))


def scale(value: float) -> ScaleMap:
    return ScaleMap(torch.tensor(value))


def against_dense(
    rows: Tensor, logit_map: LogitMap, upstream: Tensor, precision: torch.dtype = torch.float32
) -> tuple[float, float]:
    """Errors of the log-sum-exp and of its gradient under any upstream gradient, against float64."""
    rows = rows.to(precision).float()
    own, reference = rows.clone().requires_grad_(), rows.double().requires_grad_()
    found = triton_statistics(block_of(own, precision), logit_map).negative_lse
    wanted = dense_statistics(block_of(reference), logit_map).negative_lse
    (gradient,) = torch.autograd.grad(found, own, upstream)
    (expected,) = torch.autograd.grad(wanted, reference, upstream.double())
    of_value = float((found.double() - wanted).abs().max() / wanted.abs().max())
    return of_value, float((gradient.double() - expected).abs().max() / expected.abs().max())


def all_alike_but_one() -> Tensor:
    """Sums at the upper end of the range and one at the lower."""
    rows = torch.zeros(140, 3)
    rows[:, 0] = 1.0
    rows[5] = torch.tensor([-0.6, 0.8, 0.0])
    return rows


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        *zip([unit(140, 2), unit(140, 8)] * 3, [72.0, 90.0, 200.0, 500.0, 5000.0], strict=False),
        *every_pair([all_alike_but_one()], [10.0, 150.0, 1000.0]),
    ],
)
def test_small_temperatures_stay_exact_across_the_switch_to_a_running_maximum(rows: Tensor, number: float) -> None:
    value, gradient = against_dense(rows, scale(number), torch.full((140,), 1 / 140))
    assert value < 1e-6
    # A similarity is known to 2^-24, its logit to scale times that.
    assert gradient < 1e-6 + 4 * number * 2.0**-24


@pytest.mark.parametrize(("number", "wanted"), [(20.0, False), (5000.0, True)])
def test_running_maximum_only_where_it_is_needed(number: float, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, launch = [], PASSES._launch

    def watch(kernel: Any, grid: Any, tile: Any, tensors: dict[str, Tensor], **arguments: Any) -> None:
        launch(kernel, grid, tile, tensors, **arguments)
        seen.extend(bool(tensors[each].item()) for each in tensors if each == "flag")

    monkeypatch.setattr(PASSES, "_launch", watch)
    triton_statistics(block_of(unit(140, 8)), scale(number))
    assert seen[-1] is wanted


@pytest.mark.parametrize(
    ("sizes", "precision", "allowed"),
    [(1e-6, torch.float32, 2e-6), (1.0, torch.float32, 2e-6), (1e6, torch.float32, 2e-6), (1e-6, torch.float16, 1e-3)],
)
def test_any_upstream_gradient(sizes: float, precision: torch.dtype, allowed: float) -> None:
    """Of both signs, zeros among them."""
    weights = torch.randn(140, generator=torch.Generator().manual_seed(4)) * sizes
    weights[::3] = 0.0
    assert against_dense(unit(140, 16), scale(10.0), weights, precision)[1] < allowed


def test_half_precision_holds_anchors_of_little_weight() -> None:
    """Upstream gradients differ by four powers of ten: the error of each anchor against its own gradient."""
    rows = [unit(140, 16).half().float().requires_grad_(), unit(280, 16)[140:].half().float()]
    block = cross_block(*rows, cross_roles(140, 140), torch.float16)
    weights = torch.logspace(-4, 0, 140)
    wide = [each.detach().double().requires_grad_() for each in rows]
    wanted = dense_statistics(with_rows(block, *wide), scale(5.0)).negative_lse
    (gradient,) = torch.autograd.grad(triton_statistics(block, scale(5.0)).negative_lse, rows[0], weights)
    (expected,) = torch.autograd.grad(wanted, wide[0], weights.double())
    assert ((gradient - expected).norm(dim=1) / expected.norm(dim=1)).max() < 2e-3


def test_half_precision_holds_the_steepest_slopes() -> None:
    """Pairs at the steepest part of the log odds: range is what could run out."""
    base = unit(70, 16)
    rows = normalize(torch.cat([base, base.roll(1, 0) + 0.005 * unit(140, 16)[70:]]))
    assert against_dense(rows, LogOddsMap(1e-4), torch.full((140,), 1 / 140), torch.float16)[1] < 1e-2


def test_many_terms_add_up_as_exactly_as_few() -> None:
    """The error of a sum of ten thousand equal terms."""
    tiles = PLAN.choose_tiles(torch.float32, CPU)
    operands = [PASSES.operand(rows, torch.float32, tiles) for rows in (torch.eye(2, 16), torch.full((10_000, 16), 0.25))]
    plan, roles = PLAN.plan_map(LogOddsMap(1e-4)), PLAN.plan_roles(cross_roles(2, 10_000))
    exponent, fraction = PASSES.sums(PASSES.Work(*operands, 16, torch.ones(1), plan, roles, tiles))
    found = fraction.double() * 2.0 ** exponent.double()
    assert (found / (9_999 * (1.25 / 0.75)) - 1).abs().max() < 2e-7


def test_no_upstream_gradient_is_zero() -> None:
    rows = unit(20, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(triton_statistics(block_of(rows), scale(10.0)).negative_lse.sum() * 0, rows)
    assert not gradient.any()


def test_nan_embeddings_give_nan() -> None:
    """Without an error: a gradient scaler relies on it."""
    rows = unit(140, 4)
    rows[7, 2] = torch.nan
    rows.requires_grad_()
    found = triton_statistics(block_of(rows), scale(10.0)).negative_lse
    assert found[torch.arange(140) != 77].isnan().all()
    assert torch.autograd.grad(found.sum(), rows)[0].isnan().any()


@pytest.mark.parametrize(("precision", "dimension"), list(zip(TYPES, [20, 300, 20], strict=True)))
def test_two_runs_give_the_same_bits(precision: torch.dtype, dimension: int) -> None:
    runs = []
    for _ in range(2):
        rows = unit(140, dimension).requires_grad_()
        found = triton_statistics(block_of(rows, precision), scale(20.0)).negative_lse
        runs.append((found.detach(), torch.autograd.grad(found.mean(), rows)[0]))
    torch.testing.assert_close(*runs, rtol=0, atol=0)


@pytest.mark.parametrize("square", [True, False])
def test_slabs_add_up(square: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of embeddings too wide for registers, in several slabs a side, against one slab."""
    results, positives = [], Pairing(((0, 130, 0), (130, 260, -130)))
    for length in (8192, 128):
        monkeypatch.setattr(PLAN.slabs, "__defaults__", (length,))
        rows = unit(260, 140).requires_grad_()
        others = rows if square else unit(250, 140).flip(0).requires_grad_()
        roles = square_roles(260) if square else replace(cross_roles(260, 250), positives=positives)
        found = triton_statistics(cross_block(rows, others, roles), scale(10.0)).negative_lse
        results.append(torch.cat(torch.autograd.grad(found.mean(), [rows] if square else [rows, others])))
    assert (results[0] - results[1]).abs().max() / results[0].abs().max() < 1e-6


def test_second_derivatives_are_refused() -> None:
    rows = unit(20, 4).requires_grad_()
    found = triton_statistics(block_of(rows), scale(10.0)).negative_lse
    with pytest.raises(RuntimeError, match="engine='dense'"):
        torch.autograd.grad(found.sum(), rows, create_graph=True)


def test_only_gradients_that_are_wanted_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    swaps, direct = [], AUTOGRAD.gradient_of
    monkeypatch.setattr(
        AUTOGRAD, "gradient_of", lambda *given, swapped: swaps.append(swapped) or direct(*given, swapped=swapped)
    )
    anchors, keys = unit(20, 4).requires_grad_(), unit(30, 4)
    triton_statistics(cross_block(anchors, keys, cross_roles(20, 30)), scale(10.0)).negative_lse.sum().backward()
    assert swaps == [False]
