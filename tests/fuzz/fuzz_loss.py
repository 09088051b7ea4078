"""Calls that are allowed, against the float64 oracle: all layouts, strategies, objectives, terms, engines, contexts, shapes.

Batches of one, duplicates, rows of zeros, rows of any length, labels that leave anchors without a positive or without a
negative, masks that leave pairs without a role. Compared are the loss of each row and the gradient of everything that learns.
"""

from __future__ import annotations

import random

import torch
from fuzzing import Verdict
from oracle_cases import CONTEXTS, LAYOUTS, OBJECTIVES, RAGGED, STRATEGIES, TERMS, Call, compare, make_call, zero_rows

from tempplug.errors import ConfigError

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


def changed(chance: random.Random, call: Call, strategy: str, change: str) -> None:
    """Makes a call odd in one way."""
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
            if leaf.dtype == torch.float16 and leaf.ndim > 1:  # the oracle gives the shortest rows a direction, too
                flat[flat.float().norm(dim=1) < torch.finfo(leaf.dtype).tiny] = 0
    there = call.inputs.get("hard_negative_mask")
    if there is not None and torch.equal(there, ~call.inputs["hard_negatives"].detach().any(2)):
        call.inputs["hard_negative_mask"] = torch.ones_like(there)  # a mask of what is not there is refused
    if "labels" in call.inputs and change in ("same class", "all classes"):
        count = len(call.inputs["labels"])
        classes = 70 if strategy.startswith(("head-tail", "mm-ts")) else count
        call.inputs["labels"] = torch.zeros(count).long() if change == "same class" else torch.arange(count) % classes
    if "positive_mask" in call.inputs and change == "bare masks":
        generator = torch.Generator().manual_seed(chance.randrange(1000))
        roles = torch.rand(call.inputs["positive_mask"].shape, generator=generator)
        call.inputs["positive_mask"], call.inputs["negative_mask"] = roles < 0.15, roles > 0.8


def tolerance_of(strategy: str, call: Call) -> float:
    """How far a number may be off, relative to the largest."""
    if call.views[0].dtype == torch.float64:
        return 1e-6 if "debiased" in call.negatives else 1e-9  # an estimate that is nearly 0 has lost digits
    # Log-odds and their slope divide by 1 - |s|, down to eps, of which the float32 rounding of s alone is 1e-3. Of a short row,
    # what is left of two gradients that cancel is as large as the rounding of either.
    norms = [norm for view in call.views for norm in view.detach().double().norm(dim=1).tolist() if norm]
    return (4e-3 if strategy.startswith(("temperature-free", "amcl", "tempnet")) else 5e-5) * max(1, 1 / min(norms, default=1))


def case(number: int) -> Verdict:
    chance = random.Random(number)
    strategy, dtype, change = chance.choice(STRATEGIES), chance.choice(DTYPES), chance.choice(CHANGES)
    rows, dimension = chance.choice([1, 1, 2, 3, 5, 9, 17, 40]), chance.choice([1, 2, 3, 8, 17])
    negatives = chance.choice(TERMS if dtype == torch.float64 else STEADY) if chance.random() < 0.5 else ""
    layout = cross_view(chance) if chance.random() < 0.3 else chance.choice([*LAYOUTS, *RAGGED])
    call = make_call(layout, strategy, rows, dimension, dtype, negatives)
    changed(chance, call, strategy, change)
    # Among ties, which are the most similar is anybody's guess.
    ranked = dtype == torch.float64 and dimension > 1 and change not in ("duplicates", "zeros")
    allowed = [each for each in OBJECTIVES[:-1] if not (each.startswith("sigmoid") and "debiased" in negatives)]
    objective = chance.choice([*allowed, *([AMCL_TOP] * 3 if ranked and strategy.startswith("amcl") else [])])
    engine, context = chance.choice(["auto", "dense", "tiled"]), chance.choice(["plain"] * 4 + list(CONTEXTS))
    told = f"{strategy} {change} {objective} {layout} {negatives} {engine} [{rows}, {dimension}] {dtype} {context}"
    try:
        compared = compare(strategy, objective, call, tolerance_of(strategy, call), engine, CONTEXTS[context])
    except ConfigError as error:
        own = objective == AMCL_TOP and ("hard=own" in layout or "ragged" in layout)
        return Verdict("refused" if own else "obscure", told, f"the loss refuses it: {error}")
    except Exception as error:
        return Verdict("wrong", told, f"{type(error).__name__}: {str(error)[:200]}")
    return Verdict("right" if compared else "refused", told)
