"""Runs cases of the Triton engine under triton's interpreter: a JSON list of calls on stdin, a JSON list of results on stdout.

The interpreter has to be chosen before triton is imported, so this runs in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from engine_cases import bare_rows
from torch import Tensor

import tempplug
from tempplug.engine.dense import dense_statistics
from tempplug.engine.triton import refusal, triton_statistics
from tempplug.errors import ConfigError
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.maps import LogitMap, LogOddsMap, ScaleMap
from tempplug.testing.oracle import oracle_loss

Statistics = tuple[list[Any], str]
# Modules whose parts are watched or replaced.
LOSS: Any = import_module("tempplug.loss")
AUTOGRAD: Any = import_module("tempplug.engine.triton.autograd")
PASSES: Any = import_module("tempplug.engine.triton.passes")
PLAN: Any = import_module("tempplug.engine.triton.plan")


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


def through_plain(dtype: torch.dtype) -> Any:
    """Sends every block to plain torch in ``dtype``."""

    def route(engine: str, block: Block, logit_map: LogitMap, *, mirrored: bool = False, **_: object) -> Statistics:
        return [plain(dtype, each, logit_map) for each in ([block, block.mirrored()] if mirrored else [block])], "dense"

    return route


def embeddings(case: dict[str, Any]) -> dict[str, Tensor]:
    """Two noisy views of the same items, and what the layout takes beside them."""
    generator = torch.Generator().manual_seed(case.get("seed", 0))
    rows, dimension, dtype = case["rows"], case["dimension"], getattr(torch, case["dtype"])

    def draw(count: int) -> Tensor:
        return torch.randn(count, dimension, generator=generator)

    base = draw(rows)
    found = {"view_a": base + 0.7 * draw(rows), "view_b": base + 0.7 * draw(rows)}
    if "queue" in case["layout"]:
        found["queue"] = draw(rows + 60)
    if "hard" in case["layout"]:
        found["hard_negatives"] = draw(rows // 2 + 3)
    return {name: values.to(dtype).requires_grad_(name != "queue") for name, values in found.items()}


def loss_and_gradients(case: dict[str, Any], given: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The loss of a case through the public door, and its gradients."""
    options = ",".join(f"{key}={value}" for key, value in case["options"].items())
    loss_fn = tempplug.ContrastiveLoss(
        f"{case['strategy']}:{options}" if options else case["strategy"],
        case.get("objective", "infonce"),
        case["layout"].split("+")[0],
        symmetric="symmetric" in case["layout"],
        engine="triton",
    )
    leaves = [values for values in given.values() if values.requires_grad]
    arguments: dict[str, Any] = dict(given)
    if case["strategy"] == "uncertainty":
        pair = uncertainty(case, torch.float32)
        leaves += pair if needs_pair(case) else pair[:1]
        arguments["uncertainty"] = tuple(pair) if needs_pair(case) else pair[0]
    leaves += list(loss_fn.parameters())
    value = loss_fn(**arguments)
    return value.detach(), list(torch.autograd.grad(value, leaves))


def needs_pair(case: dict[str, Any]) -> bool:
    return "two-view" in case["layout"] or "symmetric" in case["layout"]


def uncertainty(case: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(case["rows"], generator=generator).to(dtype).requires_grad_() for _ in range(2)]


def oracle_gradients(case: dict[str, Any], given: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The same from the oracle, in float64."""
    wide: dict[str, Any] = {
        name: values.detach().double().requires_grad_(values.requires_grad) for name, values in given.items()
    }
    leaves = [values for values in wide.values() if values.requires_grad]
    arguments: dict[str, Any] = {"strategy": case["strategy"], "strategy_options": case["options"]}
    if case["strategy"] == "uncertainty":
        pair = uncertainty(case, torch.float64)
        leaves += pair if needs_pair(case) else pair[:1]
        arguments["uncertainty"] = tuple(pair) if needs_pair(case) else pair[0]
    if case["strategy"] == "learnable":
        (log_scale,) = tempplug.create_strategy("learnable").parameters()
        leaves.append(log_scale.detach().double().requires_grad_())
        arguments["learned"] = leaves[-1:]
    value = oracle_loss(
        **(wide | arguments),
        objective=case.get("objective", "infonce"),
        layout=case["layout"].split("+")[0],
        symmetric="symmetric" in case["layout"],
    )
    return value.detach(), list(torch.autograd.grad(value, leaves))


def through(route: Any, case: dict[str, Any], given: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The loss and its gradients with the statistics from elsewhere."""
    direct = LOSS.row_statistics
    LOSS.row_statistics = route
    found = loss_and_gradients(case, given)
    LOSS.row_statistics = direct
    return found


def parity(case: dict[str, Any]) -> dict[str, float]:
    """Relative errors of loss and gradients, and those of plain torch.

    In float32 they are measured against the oracle, in half precision against the same rounded rows in float64.
    """
    given = embeddings(case)
    found = {"": loss_and_gradients(case, given), "plain_": through(through_plain(torch.float32), case, given)}
    if case["dtype"] == "float32":
        wanted, references = oracle_gradients(case, given)
    else:
        wanted, references = through(through_plain(torch.float64), case, given)
    errors = {}
    for name, pair in found.items():
        errors[f"{name}loss"] = abs(float(pair[0]) - float(wanted)) / max(abs(float(wanted)), 1e-3)
        # In one dimension unit rows have no gradient at all: what is left of it is measured against 1/N.
        errors[f"{name}gradient"] = max(
            float((gradient.double() - reference.double()).abs().max()) / max(float(reference.abs().max()), 1 / case["rows"])
            for gradient, reference in zip(pair[1], references, strict=True)
        )
    return errors


def square_roles(count: int, **more: Any) -> PairRoles:
    half = count // 2
    positives = Pairing(((0, half, half), (half, count, -half)))
    own = Pairing(((0, count, 0),))
    return PairRoles(
        anchors=count, candidates=count, device=torch.device("cpu"), positives=positives, ignored=own, square=True, **more
    )


def block_of(rows: Tensor, precision: torch.dtype = torch.float32) -> Block:
    half = len(rows) // 2
    similarity = (rows * torch.cat([rows[half:], rows[:half]])).sum(1).detach()
    return Block(rows, rows, bare_rows(rows, rows), square_roles(len(rows)), similarity, precision)


def unit(count: int, dimension: int) -> Tensor:
    rows = torch.randn(count, dimension, generator=torch.Generator().manual_seed(3))
    return torch.nn.functional.normalize(rows, dim=1)


def against_dense(
    rows: Tensor, logit_map: LogitMap, upstream: Tensor, precision: torch.dtype = torch.float32
) -> dict[str, float]:
    """Errors of the log-sum-exp and of its gradient under any upstream gradient, against float64."""
    rows = rows.to(precision).float()
    own, reference = rows.clone().requires_grad_(), rows.double().requires_grad_()
    found = triton_statistics(block_of(own, precision), logit_map).negative_lse
    wanted = dense_statistics(block_of(reference), logit_map).negative_lse
    (gradient,) = torch.autograd.grad(found, own, upstream)
    (expected,) = torch.autograd.grad(wanted, reference, upstream.double())
    return {
        "value": float((found.double() - wanted).abs().max() / wanted.abs().max()),
        "gradient": float((gradient.double() - expected).abs().max() / expected.abs().max()),
    }


def cold(scale: float, dimension: int) -> dict[str, float]:
    """A scale so large that sums leave the range of a static shift, or rows too far apart for one exponential."""
    return against_dense(unit(140, dimension), ScaleMap(torch.tensor(scale)), torch.full((140,), 1 / 140))


def collapsed(scale: float) -> dict[str, float]:
    """All rows alike but one: sums at the upper end of the range and one at the lower."""
    rows = torch.zeros(140, 3)
    rows[:, 0] = 1.0
    rows[5] = torch.tensor([-0.6, 0.8, 0.0])
    return against_dense(rows, ScaleMap(torch.tensor(scale)), torch.full((140,), 1 / 140))


def online_runs(scale: float) -> dict[str, bool]:
    """Whether the pass with a running maximum wrote anything."""
    seen: dict[str, Any] = {}
    launch = PASSES._launch

    def watch(kernel: Any, grid: Any, tile: Any, tensors: dict[str, Tensor], **arguments: Any) -> None:
        launch(kernel, grid, tile, tensors, **arguments)
        if "flag" in tensors:
            seen["flag"] = bool(tensors["flag"].item())

    PASSES._launch = watch
    triton_statistics(block_of(unit(140, 8)), ScaleMap(torch.tensor(scale)))
    PASSES._launch = launch
    return seen


def upstream(sizes: float, precision: str) -> dict[str, float]:
    """Upstream gradients of both signs, zeros among them, of any size."""
    weights = torch.randn(140, generator=torch.Generator().manual_seed(4)) * sizes
    weights[::3] = 0.0
    return against_dense(unit(140, 16), ScaleMap(torch.tensor(10.0)), weights, getattr(torch, precision))


def uneven_upstream() -> dict[str, float]:
    """Anchors whose upstream gradients differ by four powers of ten, in half precision: the error of each against its own."""
    rows = [unit(140, 16).half().float().requires_grad_(), unit(280, 16)[140:].half().float()]
    roles = PairRoles(anchors=140, candidates=140, device=torch.device("cpu"), positives=Pairing(((0, 140, 0),)))
    weights, scale = torch.logspace(-4, 0, 140), ScaleMap(torch.tensor(5.0))
    block = Block(rows[0], rows[1], bare_rows(*rows), roles, torch.zeros(140), torch.float16)
    found = triton_statistics(block, scale).negative_lse
    wide = [each.detach().double().requires_grad_() for each in rows]
    wanted = dense_statistics(replace(block, anchors=wide[0], candidates=wide[1]), scale).negative_lse
    (gradient,) = torch.autograd.grad(found, rows[0], weights)
    (expected,) = torch.autograd.grad(wanted, wide[0], weights.double())
    return {"gradient": float(((gradient - expected).norm(dim=1) / expected.norm(dim=1)).max())}


def near_duplicates() -> dict[str, float]:
    """Pairs at the steepest part of the log odds, in half precision: range is what could run out."""
    base = unit(70, 16)
    rows = torch.nn.functional.normalize(torch.cat([base, base.roll(1, 0) + 0.005 * unit(140, 16)[70:]]), dim=1)
    return against_dense(rows, LogOddsMap(1e-4), torch.full((140,), 1 / 140), torch.float16)


def many_candidates() -> dict[str, float]:
    """The error of a sum of ten thousand equal terms."""
    tiles = PLAN.choose_tiles(torch.float32, torch.device("cpu"))
    anchor, crowd = torch.eye(2, 16), torch.full((10_000, 16), 0.25)
    roles = PLAN.plan_roles(
        PairRoles(anchors=2, candidates=10_000, device=torch.device("cpu"), positives=Pairing(((0, 2, 0),)))
    )
    operands = [PASSES.operand(rows, torch.float32, tiles) for rows in (anchor, crowd)]
    plan = PLAN.plan_map(LogOddsMap(1e-4))
    exponent, fraction = PASSES.sums(PASSES.Work(*operands, 16, torch.ones(1), plan, roles, tiles))
    found = fraction.double() * 2.0 ** exponent.double()
    return {"error": float((found / (9_999 * (1.25 / 0.75)) - 1).abs().max())}


def nothing_upstream() -> dict[str, bool]:
    rows = unit(20, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(
        triton_statistics(block_of(rows), ScaleMap(torch.tensor(10.0))).negative_lse.sum() * 0, rows
    )
    return {"zero": bool((gradient == 0).all())}


def not_a_number() -> dict[str, bool]:
    """NaN embeddings give NaN everywhere, quietly: a gradient scaler relies on it."""
    rows = unit(140, 4)
    rows[7, 2] = torch.nan
    rows.requires_grad_()
    found = triton_statistics(block_of(rows), ScaleMap(torch.tensor(10.0))).negative_lse
    (gradient,) = torch.autograd.grad(found.sum(), rows)
    return {"value": bool(found[torch.arange(140) != 77].isnan().all()), "gradient": bool(gradient.isnan().any())}


def repeated(precision: str, dimension: int) -> dict[str, bool]:
    """Two runs of one input, bit by bit."""
    runs = []
    for _ in range(2):
        rows = unit(140, dimension).requires_grad_()
        found = triton_statistics(block_of(rows, getattr(torch, precision)), ScaleMap(torch.tensor(20.0))).negative_lse
        runs.append((found.detach(), torch.autograd.grad(found.mean(), rows)[0]))
    return {"value": torch.equal(runs[0][0], runs[1][0]), "gradient": torch.equal(runs[0][1], runs[1][1])}


def many_slabs(square: bool) -> dict[str, float]:
    """The gradient of embeddings too wide for registers, in several slabs a side, against one slab."""
    side, results = PLAN.slabs.__defaults__, []
    for length in (8192, 128):
        PLAN.slabs.__defaults__ = (length,)
        rows = unit(260, 140).requires_grad_()
        others = rows if square else unit(250, 140).flip(0).requires_grad_()
        roles = square_roles(260) if square else PairRoles(
            anchors=260, candidates=250, device=torch.device("cpu"), positives=Pairing(((0, 130, 0), (130, 260, -130)))
        )  # fmt: skip
        block = Block(rows, others, bare_rows(rows, others), roles, torch.zeros(260), torch.float32)
        found = triton_statistics(block, ScaleMap(torch.tensor(10.0))).negative_lse
        results.append(torch.cat(torch.autograd.grad(found.mean(), [rows] if square else [rows, others])))
    PLAN.slabs.__defaults__ = side
    return {"gradient": float((results[0] - results[1]).abs().max() / results[0].abs().max())}


def twice_differentiated() -> dict[str, str]:
    rows = unit(20, 4).requires_grad_()
    found = triton_statistics(block_of(rows), ScaleMap(torch.tensor(10.0))).negative_lse
    try:
        torch.autograd.grad(found.sum(), rows, create_graph=True)
    except RuntimeError as error:
        return {"message": str(error)}
    return {"message": ""}


def only_what_is_asked() -> dict[str, Any]:
    """Which gradients are computed where the candidates need none."""
    asked = []
    direct = AUTOGRAD.gradient_of

    def watch(*arguments: Any, swapped: bool) -> Any:
        asked.append("candidates" if swapped else "anchors")
        return direct(*arguments, swapped=swapped)

    AUTOGRAD.gradient_of = watch
    anchors, keys = unit(20, 4).requires_grad_(), unit(30, 4)
    roles = PairRoles(anchors=20, candidates=30, device=torch.device("cpu"), positives=Pairing(((0, 20, 0),)))
    block = Block(anchors, keys, bare_rows(anchors, keys), roles, torch.zeros(20), torch.float32)
    triton_statistics(block, ScaleMap(torch.tensor(10.0))).negative_lse.sum().backward()
    AUTOGRAD.gradient_of = direct
    return {"asked": asked}


def refused() -> dict[str, Any]:
    """A third party's map under the interpreter: the reason, and the error of an explicit call."""

    class Odd(ScaleMap):
        pass

    block, odd = block_of(unit(20, 4)), Odd(torch.tensor(10.0))
    try:
        triton_statistics(block, odd)
    except ConfigError as error:
        return {"reason": refusal(block, odd), "message": str(error), "taken": refusal(block, ScaleMap(torch.tensor(10.0)))}
    return {"reason": refusal(block, odd), "message": ""}


CALLS: list[Callable[..., Any]] = [parity, cold, collapsed, online_runs, upstream, nothing_upstream, not_a_number, repeated]
CALLS += [near_duplicates, uneven_upstream, many_candidates]
CALLS += [many_slabs, twice_differentiated, only_what_is_asked, refused]


def main() -> None:
    """Runs the calls [[name, arguments], ...] of stdin."""
    torch.set_num_threads(1)
    known = {call.__name__: call for call in CALLS}
    json.dump([known[name](**arguments) for name, arguments in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
