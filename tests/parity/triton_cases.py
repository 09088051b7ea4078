"""Calls of the loss through the Triton kernels, interpreted or on a GPU, compared with the oracle. pytest is not needed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from itertools import cycle, product
from typing import Any
from unittest.mock import patch

import torch
from covering import every_pair
from engine_cases import with_rows
from oracle_cases import DEVICE, build, make_call, oracle_arguments
from torch import Tensor

from tempplug.block import Block
from tempplug.engine.dense import dense_statistics
from tempplug.strategies.maps import LogitMap
from tempplug.testing import oracle_loss

BLOCKS: Any = import_module("tempplug.call.blocks")
PROFILES = ["cosine", "linear", "exponential", "monotonic", "shifted,shift=0.2,width=0.5"]
STRATEGIES = ["fixed:temperature=0.05", "learnable", "macl", "uncertainty", "temperature-free"]
STRATEGIES += [f"dystress:profile={profile},detach={detach}" for profile in PROFILES for detach in ("true", "false")]
LAYOUTS = ["two-view", "symmetric", "queue", "two-view+hard", "cross-view", "cross-view+hard"]
TYPES = [torch.float32, torch.bfloat16, torch.float16]
# Strategy, layout, precision, rows, dimension, objective.
Case = tuple[str, str, torch.dtype, int, int, str]
SIZES = [(2, 64), (3, 130), (127, 1), (129, 3)]
# In every layout: a map with one scale, with one an anchor, without, and of each pair's similarity. The other maps share their
# kernels' way of reading rows.
KINDS = ["learnable", "uncertainty", "temperature-free", STRATEGIES[-1]]
CASES: list[Case] = [
    *((*case, "infonce") for case in every_pair(KINDS, LAYOUTS, TYPES, *zip(*SIZES, strict=True))),
    *(
        (strategy, layout, precision, *sizes, "infonce")
        for (strategy, precision), layout, sizes in zip(
            product([each for each in STRATEGIES if each not in KINDS], TYPES), cycle(LAYOUTS), cycle(SIZES), strict=False
        )
    ),
    # Wider than any gradient in registers; the last one's keys end between two tiles and its queue with one.
    *(
        (*case, 70, 300, "infonce")
        for case in zip(["learnable", "uncertainty", "temperature-free"], LAYOUTS[:3], TYPES, strict=True)
    ),
    ("fixed:temperature=0.05", "queue", torch.float32, 98, 300, "infonce"),
    *(("macl", "two-view", torch.float32, 20, 16, name) for name in ("dcl", "flatnce", "reweighted")),
    ("learnable", "symmetric", torch.float32, 20, 16, "infonce:margin=0.3,margin_kind=angular"),
    ("uncertainty", "two-view", torch.float32, 20, 16, "infonce:margin=0.2"),
    # One pair and hard negatives: an anchor of the other view, or the other direction, has no negative.
    *every_pair(STRATEGIES[:5:2], ["two-view+hard", "symmetric+hard"], TYPES[:1], [1], [5], ["infonce", "reweighted"]),
]
# Gradients come back in the precision of the embeddings.
ALLOWED = {torch.float32: 5e-6, torch.bfloat16: 8e-3 if DEVICE == "cpu" else 2e-2, torch.float16: 1e-3}


def rounded(rows: Tensor, precision: torch.dtype) -> Tensor:
    """The rows in the precision that the matrix units keep; the gradient does not see the rounding."""
    return rows + (rows.to(precision).to(rows.dtype) - rows).detach()


def plain(dtype: torch.dtype, block: Block, logit_map: LogitMap) -> Any:
    """Plain torch on what the kernels get: negatives of rounded rows, positives of the rows as they are."""
    anchors, candidates = block.anchors.to(dtype), block.candidates.to(dtype)
    exact = dense_statistics(with_rows(block, anchors, candidates), logit_map)
    if block.precision == torch.float32:
        return exact
    low = with_rows(block, rounded(anchors, block.precision), rounded(candidates, block.precision))
    return replace(exact, negative_lse=dense_statistics(low, logit_map).negative_lse)


def result(case: Case, through: torch.dtype | None = None) -> list[Tensor]:
    """The loss and the gradients of all that learns, from the kernels, or from plain torch in a dtype."""

    def route(engine: str, block: Block, logit_map: LogitMap, *, mirrored: bool = False, **_: object) -> Any:
        return [plain(through, each, logit_map) for each in ([block, block.mirrored()] if mirrored else [block])], "dense"

    strategy, layout, dtype, rows, dimension, objective = case
    call = make_call(layout, strategy, rows, dimension, dtype).on_device()
    loss_fn = build(strategy, objective, call, "mean", "triton")
    with patch.object(BLOCKS, "row_statistics", route) if through else nullcontext():
        value = loss_fn(*call.views, **call.inputs)
        found = [value.detach(), *torch.autograd.grad(value, [*call.leaves(), *loss_fn.parameters()])]
    return [each.cpu() for each in found]


def exact(case: Case) -> list[Tensor]:
    """The same from the oracle, or in half precision from the same rounded rows in float64."""
    strategy, layout, dtype, rows, dimension, objective = case
    if dtype != torch.float32:
        return result(case, torch.float64)
    call = make_call(layout, strategy, rows, dimension, dtype)
    arguments = oracle_arguments(strategy, objective, call, build(strategy, objective, call, "mean"))
    value = oracle_loss(*call.views, **arguments)
    return [value.detach(), *torch.autograd.grad(value, [*call.leaves(), *arguments["learned"]])]


def errors(found: list[Tensor], wanted: list[Tensor], rows: int) -> tuple[float, float]:
    """Relative errors of a loss and of its gradients."""
    loss = abs(float(found[0]) - float(wanted[0])) / max(abs(float(wanted[0])), 1e-3)
    # In one dimension unit rows have no gradient at all: what is left of it is measured against 1/N.
    gradients = [
        float((one.double() - other.double()).abs().max()) / max(float(other.abs().max()), 1 / rows)
        for one, other in zip(found[1:], wanted[1:], strict=True)
    ]
    return loss, max(gradients)


def check(case: Case) -> None:
    """Asserts that loss and gradients of the kernels are those of the oracle."""
    wanted, rows = exact(case), case[3]
    loss, gradient = errors(result(case), wanted, rows)
    # Where float32 similarities themselves are not enough (near-duplicates under the log odds), plain torch is the measure.
    plain_loss, plain_gradient = errors(result(case, torch.float32), wanted, rows)
    assert loss < 5e-6 + 2 * plain_loss, f"the loss is off by {loss:.1e}"
    assert gradient < ALLOWED[case[2]] + 2 * plain_gradient, f"a gradient is off by {gradient:.1e}"
