"""The Triton engine under triton's interpreter: every map, layout, precision and odd size, against the float64 oracle.

`test_triton_engine.py` runs this file in a process of its own, since the interpreter is chosen before triton is imported.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch
from covering import every_pair
from engine_cases import CPU, bare_rows
from oracle_cases import build, make_call, oracle_arguments
from torch import Tensor
from torch.nn.functional import normalize

from tempplug.engine.dense import dense_statistics
from tempplug.engine.triton import refusal, triton_statistics
from tempplug.errors import ConfigError
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.maps import LogitMap, LogOddsMap, ScaleMap
from tempplug.testing import oracle_loss

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

# Modules whose parts are watched or replaced.
BLOCKS: Any = import_module("tempplug.blocks")
AUTOGRAD: Any = import_module("tempplug.engine.triton.autograd")
PASSES: Any = import_module("tempplug.engine.triton.passes")
PLAN: Any = import_module("tempplug.engine.triton.plan")

SHIFTED = "profile=shifted,shift=0.2,width=0.5"
PROFILES = ["profile=cosine", "profile=linear", "profile=exponential", "profile=monotonic", SHIFTED]
STRATEGIES = ["fixed:temperature=0.05", "learnable", "macl", "uncertainty", "temperature-free"]
STRATEGIES += [f"dystress:{profile},detach={detach}" for profile in PROFILES for detach in ("true", "false")]
LAYOUTS = ["two-view", "symmetric", "queue", "two-view+hard", "cross-view", "cross-view+hard"]
TYPES = [torch.float32, torch.bfloat16, torch.float16]
Case = tuple[str, str, torch.dtype, int, int, str]
CASES: list[Case] = [
    *(
        (*case, "infonce")
        for case in [
            *every_pair(STRATEGIES, LAYOUTS, TYPES, [2, 3, 127, 129], [1, 3, 130, 64]),
            # Wider than any gradient in registers; the last one's keys end between two tiles and its queue with one.
            *every_pair(["learnable", "uncertainty", "temperature-free"], LAYOUTS[:3], TYPES, [70], [300]),
            ("fixed:temperature=0.05", "queue", torch.float32, 98, 300),
        ]
    ),
    *(("macl", "two-view", torch.float32, 20, 16, name) for name in ("dcl", "flatnce", "reweighted")),
    # One pair and hard negatives: an anchor of the other view, or the other direction, has no negative.
    *every_pair(STRATEGIES[:5:2], ["two-view+hard", "symmetric+hard"], TYPES[:1], [1], [5], ["infonce", "reweighted"]),
]


def rounded(rows: Tensor, precision: torch.dtype) -> Tensor:
    """The rows in the precision that the matrix units keep; the gradient does not see the rounding."""
    return rows + (rows.to(precision).to(rows.dtype) - rows).detach()


def plain(dtype: torch.dtype, block: Block, logit_map: LogitMap) -> Any:
    """Plain torch on what the kernels get: negatives of rounded rows, positives of the rows as they are."""
    anchors, candidates = block.anchors.to(dtype), block.candidates.to(dtype)
    exact = dense_statistics(replace(block, anchors=anchors, candidates=candidates), logit_map)
    if block.precision == torch.float32:
        return exact
    low = replace(block, anchors=rounded(anchors, block.precision), candidates=rounded(candidates, block.precision))
    return replace(exact, negative_lse=dense_statistics(low, logit_map).negative_lse)


def result(case: Case, through: torch.dtype | None = None) -> tuple[Tensor, list[Tensor]]:
    """The loss and the gradients of all that learns, from the kernels, or from plain torch in a dtype."""

    def route(engine: str, block: Block, logit_map: LogitMap, *, mirrored: bool = False, **_: object) -> Any:
        return [plain(through, each, logit_map) for each in ([block, block.mirrored()] if mirrored else [block])], "dense"

    strategy, layout, dtype, rows, dimension, objective = case
    call = make_call(layout, strategy, rows, dimension, dtype)
    loss_fn = build(strategy, objective, call, "mean", "triton")
    with patch.object(BLOCKS, "row_statistics", route) if through else nullcontext():
        value = loss_fn(*call.views, **call.inputs)
        return value.detach(), list(torch.autograd.grad(value, [*call.leaves(), *loss_fn.parameters()]))


def exact(case: Case) -> tuple[Tensor, list[Tensor]]:
    """The same from the oracle, or in half precision from the same rounded rows in float64."""
    strategy, layout, dtype, rows, dimension, objective = case
    if dtype != torch.float32:
        return result(case, torch.float64)
    call = make_call(layout, strategy, rows, dimension, dtype)
    arguments = oracle_arguments(strategy, objective, call, build(strategy, objective, call, "mean"))
    value = oracle_loss(*call.views, **arguments)
    return value.detach(), list(torch.autograd.grad(value, [*call.leaves(), *arguments["learned"]]))


def errors(found: tuple[Tensor, list[Tensor]], wanted: tuple[Tensor, list[Tensor]], rows: int) -> tuple[float, float]:
    """Relative errors of a loss and of its gradients."""
    loss = abs(float(found[0]) - float(wanted[0])) / max(abs(float(wanted[0])), 1e-3)
    # In one dimension unit rows have no gradient at all: what is left of it is measured against 1/N.
    gradients = [
        float((one.double() - other.double()).abs().max()) / max(float(other.abs().max()), 1 / rows)
        for one, other in zip(found[1], wanted[1], strict=True)
    ]
    return loss, max(gradients)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_loss_and_gradients_are_those_of_the_oracle(case: Case) -> None:
    wanted = exact(case)
    loss, gradient = errors(result(case), wanted, case[3])
    # Where float32 similarities themselves are not enough (near-duplicates under the log odds), plain torch is the measure.
    plain_loss, plain_gradient = errors(result(case, torch.float32), wanted, case[3])
    assert loss < 5e-6 + 2 * plain_loss
    # Gradients come back in the precision of the embeddings.
    allowed = {torch.float32: 5e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
    assert gradient < allowed[case[2]] + 2 * plain_gradient


def square_roles(count: int) -> PairRoles:
    half = count // 2
    positives, own = Pairing(((0, half, half), (half, count, -half))), Pairing(((0, count, 0),))
    return PairRoles(anchors=count, candidates=count, device=CPU, positives=positives, ignored=own, square=True)


def cross_roles(anchors: int, candidates: int) -> PairRoles:
    return PairRoles(anchors=anchors, candidates=candidates, device=CPU, positives=Pairing(((0, anchors, 0),)))


def block_of(rows: Tensor, precision: torch.dtype = torch.float32) -> Block:
    similarity = (rows * rows.roll(len(rows) // 2, 0)).sum(1).detach()
    return Block(rows, rows, bare_rows(rows, rows), square_roles(len(rows)), similarity, precision)


def cross_block(anchors: Tensor, candidates: Tensor, roles: PairRoles, precision: torch.dtype = torch.float32) -> Block:
    return Block(anchors, candidates, bare_rows(anchors, candidates), roles, torch.zeros(len(anchors)), precision)


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
        *every_pair([unit(140, 2), unit(140, 8)], [72.0, 90.0, 200.0, 500.0, 5000.0]),
        *every_pair([all_alike_but_one()], [10.0, 60.0, 150.0, 1000.0]),
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


@pytest.mark.parametrize(("precision", "allowed"), [(torch.float32, 2e-6), (torch.float16, 1e-3)])
@pytest.mark.parametrize("sizes", [1e-6, 1.0, 1e6])
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
    wanted = dense_statistics(replace(block, anchors=wide[0], candidates=wide[1]), scale(5.0)).negative_lse
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


@pytest.mark.parametrize(("precision", "dimension"), every_pair(TYPES, [20, 300]))
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


def test_maps_without_a_kernel_are_refused() -> None:
    class Odd(ScaleMap):
        pass

    block, odd = block_of(unit(20, 4)), Odd(torch.tensor(10.0))
    assert refusal(block, odd) == "logit map Odd has no kernel"
    assert refusal(block, scale(10.0)) is None
    with pytest.raises(ConfigError, match="logit map Odd has no kernel"):
        triton_statistics(block, odd)
