"""Calls that are allowed, against the float64 oracle: all layouts, strategies, objectives, terms, engines, contexts, shapes.

Batches of one, duplicates, rows of zeros, rows of any length, labels that leave anchors without a positive or without a
negative, masks that leave pairs without a role. Compared are the loss and the gradient of everything that learns.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from fuzzing import Verdict
from oracle_cases import (
    CONTEXTS,
    LAYOUTS,
    OBJECTIVES,
    RAGGED,
    STRATEGIES,
    TERMS,
    Call,
    build,
    learned_of,
    make_call,
    oracle_arguments,
    zero_rows,
)
from torch import Tensor

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.testing import oracle_row_losses

DTYPES = (torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16)
CHANGES = ("none", "none", "duplicates", "zeros", "long", "short", "opposite", "same class", "all classes", "bare masks")
AMCL_TOP = "amcl-top:top_k=3,beta=0.2"
# Rounding to float32 may move a similarity over a threshold, or the whole of a sum to what is subtracted from it.
STEADY = [spec for spec in TERMS if not any(name in spec for name in ("false-negatives", "guide", "debiased"))]


def cross_view(chance: random.Random) -> str:
    """Returns a layout of any blocks, with any hard negatives."""
    blocks = "+".join(("ab", *(name for name in ("aa", "ba", "bb") if chance.random() < 0.5)))
    hard, extra = chance.choice(["shared", "ab", "own"]), chance.choice(["", "+hard", "+ragged"])
    softmax = chance.choice(["joint", "separate"]) if blocks in ("ab", "ab+ba") else "joint"
    in_batch = "false" if blocks == "ab" and extra and chance.random() < 0.5 else "true"
    return f"cross-view:directions={blocks},softmax={softmax},hard={hard},in_batch={in_batch}{extra}"


def draw(chance: random.Random) -> tuple[Call, str, str]:
    """Returns a call, the spec of its strategy, and what is odd about it."""
    strategy = chance.choice(STRATEGIES)
    rows, dimension = chance.choice([1, 1, 2, 3, 5, 9, 17, 40]), chance.choice([1, 2, 3, 8, 17])
    dtype = chance.choice(DTYPES)
    negatives = chance.choice(TERMS if dtype == torch.float64 else STEADY) if chance.random() < 0.5 else ""
    layout = cross_view(chance) if chance.random() < 0.3 else chance.choice([*LAYOUTS, *RAGGED])
    call = make_call(layout, strategy, rows, dimension, dtype, negatives)
    change = chance.choice(CHANGES)
    if change == "zeros":
        zero_rows(call)
    with torch.no_grad():
        for leaf in call.leaves():
            flat = leaf.view(-1, leaf.shape[-1]) if leaf.ndim > 1 else leaf
            if change == "duplicates":
                flat[1::2] = flat[:1]
            elif change in ("long", "short") and leaf.ndim > 1:
                flat.mul_(1e4 if change == "long" else 1e-3)
            elif change == "opposite" and leaf is call.views[-1] and leaf.shape == call.views[0].shape:
                leaf.copy_(-call.views[0])
    if "labels" in call.inputs and change in ("same class", "all classes"):
        count = len(call.inputs["labels"])
        top = 70 if strategy.startswith("head-tail") else count
        call.inputs["labels"] = torch.zeros(count).long() if change == "same class" else torch.arange(count) % top
    if "positive_mask" in call.inputs and change == "bare masks":
        generator = torch.Generator().manual_seed(chance.randrange(1000))
        shape = call.inputs["positive_mask"].shape
        roles = torch.rand(shape, generator=generator)
        call.inputs["positive_mask"], call.inputs["negative_mask"] = roles < 0.15, roles > 0.8
    return call, strategy, change


def reduced(losses: Tensor, kept: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / kept.sum().clamp(min=1)


def case(number: int) -> Verdict:
    chance = random.Random(number)
    call, strategy, change = draw(chance)
    # Among ties, which are the most similar is anybody's guess.
    ranked = call.views[0].dtype == torch.float64 and call.views[0].shape[1] > 1 and change not in ("duplicates", "zeros")
    allowed = [each for each in OBJECTIVES[:-1] if not (each.startswith("sigmoid") and "debiased" in call.negatives)]
    objective = chance.choice([*allowed, *([AMCL_TOP] * 3 if ranked and strategy.startswith("amcl") else [])])
    reduction, engine = chance.choice(["mean", "sum", "none"]), chance.choice(["auto", "dense", "tiled"])
    shapes = " ".join(str(list(each.shape)) for each in call.views)
    layout = (
        f"{call.layout}{'+' if call.symmetric else ''}{' hard' if 'hard_negatives' in call.inputs else ''} {call.negatives}"
    )
    context = chance.choice(["plain"] * 4 + list(CONTEXTS))
    told = f"{strategy} {change} {objective} {layout} {reduction} {engine} {shapes} {call.views[0].dtype} {context}"
    loss_fn = build(strategy, objective, call, reduction, engine)
    loss_fn.train(
        chance.random() < 0.5 or "log-q:size" in call.negatives or objective.startswith("sogclr")
    )  # state moves in training
    arguments = oracle_arguments(strategy, objective, call, loss_fn)
    own = "hard=own" in call.layout and "hard_negatives" in call.inputs
    if objective == AMCL_TOP and (own or "hard_negative_mask" in call.inputs):
        return _refused(told, loss_fn, call)
    try:
        rows, kept = oracle_row_losses(*call.views, **arguments)
    except ConfigError:
        return _refused(told, loss_fn, call)
    try:
        ours = CONTEXTS[context].call(loss_fn, *call.views, **call.inputs)
        numbers = loss_fn.record.numbers()
    except Exception as error:
        return Verdict("wrong", told, f"{type(error).__name__}: {str(error)[:200]}")
    theirs = reduced(rows, kept, reduction)
    leaves, references = [*call.leaves(), *loss_fn.parameters()], [*call.leaves(), *learned_of(arguments)]
    weights = torch.rand(theirs.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    found = CONTEXTS[context].gradients((ours * weights.to(ours.dtype)).sum(), leaves)
    expected = torch.autograd.grad((theirs * weights).sum(), references, allow_unused=True) if theirs.requires_grad else None
    detail = _difference("loss", ours, theirs, call, strategy)
    for position, (leaf, gradient) in enumerate(zip(leaves, found, strict=bool(found))):
        wanted = None if expected is None else expected[position]
        wanted = torch.zeros(leaf.shape) if wanted is None else wanted
        if gradient is None:
            detail = detail or f"no gradient of input {position}"
        else:
            detail = detail or _difference(f"gradient of input {position}", gradient, wanted, call, strategy)
    if not detail and numbers["finite"] != 1:
        detail = f"finite={numbers['finite']} in the record"
    return Verdict("wrong" if detail else "right", told, detail)


def _difference(name: str, ours: Tensor, theirs: Tensor, call: Call, strategy: str) -> str:
    """Returns what differs by more than the dtype allows, else the empty string."""
    if ours.shape != theirs.shape:
        return f"{name} has shape {list(ours.shape)}, not {list(theirs.shape)}"
    if not theirs.isfinite().all():  # a gradient of a very short row is beyond float16
        return ""
    if not ours.isfinite().all():
        return f"{name} is not finite"
    exact = call.views[0].dtype == torch.float64
    name_of = parse_spec(strategy)[0]
    # Log-odds and their slope divide by 1 - |s|, down to eps, of which the float32 rounding of s alone is 1e-3.
    # An estimate that is nearly 0 has lost digits, whichever way it was computed.
    tolerance = (
        (1e-6 if "debiased" in call.negatives else 1e-9) if exact else 4e-3 if name_of in ("temperature-free", "amcl") else 5e-5
    )
    rounding = torch.finfo(ours.dtype).eps
    theirs = theirs.detach().double()
    error = (ours.detach().double() - theirs).abs() - 2 * rounding * theirs.abs()
    # Of a short row, what is left of two gradients that cancel is as large as the rounding of either.
    norms = [norm for view in call.views for norm in view.detach().double().norm(dim=1).tolist() if norm]
    least = 1.0 if exact or name == "loss" else max(1.0, 1 / min(norms, default=1.0))
    worst = (error / theirs.abs().max().clamp(min=least)).max().item()
    return f"{name} is off by {worst:.1e}" if worst > tolerance else ""


def _refused(told: str, loss_fn: Any, call: Call) -> Verdict:
    """The oracle has no formula here; neither has the loss."""
    try:
        loss_fn(*call.views, **call.inputs)
    except ConfigError as error:
        return Verdict("refused", told, str(error))
    except Exception as error:
        return Verdict("obscure", told, f"{type(error).__name__}: {str(error)[:200]}")
    return Verdict("silent", told, "the oracle has no formula for it")
