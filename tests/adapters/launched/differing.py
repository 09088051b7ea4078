"""Calls of the loss that differ between two processes, or that one of them refuses, and how each ended, by kind of gathering.

Both processes go on to the next call; the last ones are good, and equal one process with all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from launched.pairs import DIMENSION, pairs, rows_of
from torch import Tensor, nn

import tempplug
from tempplug.types import Gather
from tempplug_adapters.ring_buffer import RingBuffer
from tempplug_adapters.vision.barlow_twins import BarlowTwins

KINDS: tuple[Gather, ...] = (True, "ring")
ROWS = 4
SIZES = (5, 3)
"""Rows of each process in the good calls."""
NAN = torch.tensor(torch.nan)


def rows(dimension: int = DIMENSION, count: int = ROWS) -> Tensor:
    return torch.randn(count, dimension, requires_grad=True)


def views(dimension: int = DIMENSION) -> tuple[Tensor, Tensor]:
    return rows(dimension), rows(dimension)


def loss(*parts: Any, **options: Any) -> Any:
    return lambda gather: tempplug.ContrastiveLoss(*parts, gather=gather, **options)


CROSS = loss("fixed", layout="cross-view")
KEYS = loss("fixed", layout="cross-view", negatives="same-key")
LABELS = loss("fixed", layout="labels")
# Below 0, because one guide of both views leaves nothing out otherwise.
GUIDE = loss("fixed", layout="cross-view", negatives="guide:margin=-0.1")
LOG_Q = loss("fixed", layout="cross-view", negatives="log-q")
COUNTED = loss("fixed", layout="cross-view", negatives="log-q:size=9")
KEY = torch.arange(ROWS)
HARD = torch.ones(2, DIMENSION)
BOTH = loss(layout="cross-view:directions=ab+ba,softmax=separate")
TARGETS = torch.eye(ROWS, 2 * ROWS)
HARD_OF_ROWS = torch.ones(ROWS, 2, DIMENSION)
PARTS = {"view_a": KEY, "view_b": KEY}
ALL_PARTS = {**PARTS, "hard_negatives": KEY[:2]}


def graded(gather: Gather, bad: bool) -> Tensor:
    with torch.set_grad_enabled(not bad):
        return CROSS(gather)(*views())


def constant(gather: Gather, bad: bool) -> Tensor:
    first, second = views()
    return CROSS(gather)(first, second.detach() if bad else second)


def evaluating(gather: Gather, bad: bool) -> Tensor:
    return CROSS(gather).train(not bad)(*views())


def told(gather: Gather, bad: bool) -> Tensor:
    """A schedule that one process was not told the progress of."""
    loss_fn = loss("schedule:period=5", layout="cross-view")(gather)
    if not bad:
        loss_fn.set_progress(epoch=1)
    return loss_fn(*views())


def in_a_second_head(gather: Gather, bad: bool) -> Tensor:
    pairs = [views(), views()]
    if bad:
        pairs[1] = pairs[1][0], pairs[1][1] * NAN
    firsts, seconds = zip(*pairs, strict=True)
    return CROSS(gather)(list(firsts), list(seconds))


def enqueued(gather: Gather, bad: bool, dimension: int = DIMENSION, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows of other types or dimensions for the ring buffer of one process."""
    RingBuffer(9, DIMENSION).enqueue(rows(dimension if bad else DIMENSION).detach().to(dtype if bad else torch.float32))
    return rows().sum()


def correlated(gather: Gather, bad: bool) -> Tensor:
    backbone = nn.Identity()
    backbone.dimension = DIMENSION
    return BarlowTwins(backbone, nn.Identity(), gather=True).loss(*([view] for view in views(7 if bad else DIMENSION)))


Case = tuple[Callable[[Gather, bool], Tensor], str]
F6, F7 = (f"'float32 [B, {dimension}] with gradient'" for dimension in (6, 7))
OF_VIEWS = "int64 [B] of view_a, int64 [B] of view_b"


def called(make: Any, good: dict[str, Any], bad: dict[str, Any] | None = None, **of_views: Any) -> Callable[..., Tensor]:
    return lambda gather, is_bad: make(gather)(*views(**(of_views if is_bad else {})), **(good if not is_bad else bad or {}))


def by(good: Any, bad: Any) -> Callable[..., Tensor]:
    """The same views in losses that differ."""
    return lambda gather, is_bad: (bad if is_bad else good)(gather)(*views())


# What both processes say of the call, in which the second one has something else.
DIFFERENT: dict[str, Case] = {
    "no keys": (called(KEYS, {"keys": KEY}), f"keys is '{OF_VIEWS}' in process 0 and absent in process 1"),
    "no labels": (called(LABELS, {"labels": KEY}), "labels is 'int64 [B]' in process 0 and absent in process 1"),
    "no targets": (
        called(CROSS, {"targets": TARGETS}),
        "targets is 'float32 [B, 8]' in process 0 and absent in process 1",
    ),
    "targets of another number of candidates": (
        called(CROSS, {"targets": TARGETS}, {"targets": TARGETS[:, :ROWS]}),
        "targets is 'float32 [B, 8]' in process 0 and 'float32 [B, 4]' in process 1",
    ),
    "targets of the other direction, of another number of candidates": (
        called(BOTH, {"targets": (TARGETS, TARGETS)}, {"targets": (TARGETS, TARGETS[:, :ROWS])}),
        "targets[1] is 'float32 [B, 8]' in process 0 and 'float32 [B, 4]' in process 1",
    ),
    "no hard negatives": (
        called(CROSS, {"hard_negatives": HARD}),
        "hard_negatives is 'float32 [H, 6]' in process 0 and absent in process 1",
    ),
    "hard negatives of rows": (
        called(CROSS, {"hard_negatives": HARD}, {"hard_negatives": HARD_OF_ROWS}),
        "hard_negatives is 'float32 [H, 6]' in process 0 and 'float32 [B, k, 6]' in process 1",
    ),
    "no mask of hard negatives": (
        called(
            CROSS,
            {"hard_negatives": HARD_OF_ROWS, "hard_negative_mask": HARD_OF_ROWS[..., 0] > 0},
            {"hard_negatives": HARD_OF_ROWS},
        ),
        "hard_negative_mask is 'bool [B, k]' in process 0 and absent in process 1",
    ),
    "a part of a dictionary": (
        called(KEYS, {"hard_negatives": HARD, "keys": ALL_PARTS}, {"hard_negatives": HARD, "keys": PARTS}),
        f"keys is 'int64 [H] of hard_negatives, {OF_VIEWS}' in process 0 and '{OF_VIEWS}' in process 1",
    ),
    "no second view": (
        lambda gather, bad: LABELS(gather)(*views()[bad:], labels=KEY // 2),
        f"view_b is {F6} in process 0 and absent in process 1",
    ),
    "dimensions": (
        called(CROSS, {}, dimension=7),
        f"view_a is {F6} in process 0 and {F7} in process 1; view_b is {F6} in process 0 and {F7} in process 1.",
    ),
    "types": (
        lambda gather, bad: CROSS(gather)(*(each.double() if bad else each for each in views())),
        f"view_a is {F6} in process 0 and 'float64 [B, 6] with gradient' in process 1; view_b is ",
    ),
    "dimensions of a row argument": (
        called(GUIDE, {"guide": torch.ones(ROWS, 3)}, {"guide": torch.ones(ROWS, 5)}),
        "guide is 'float32 [B, 3] of view_a, float32 [B, 3] of view_b' in process 0 and 'float32 [B, 5] of view_a, float32",
    ),
    "types of a row argument": (
        called(GUIDE, {"guide": torch.ones(ROWS, 3)}, {"guide": torch.ones(ROWS, 3).half()}),
        "in process 0 and 'float16 [B, 3] of view_a, float16 [B, 3] of view_b' in process 1",
    ),
    "a pair of uncertainties": (
        called(loss("uncertainty"), {"uncertainty": (KEY + 1.0, KEY + 1.0)}, {"uncertainty": KEY + 1.0}),
        "uncertainty is 'float32 [B] of view_a, float32 [B] of view_b' in process 0 and 'float32 [B]' in process 1",
    ),
    "heads": (
        lambda gather, bad: CROSS(gather)(*zip(*([views()] * (1 if bad else 2)), strict=True)),
        "the number of heads is '2' in process 0 and '1' in process 1",
    ),
    "gradient": (graded, "torch.is_grad_enabled() is 'True' in process 0 and 'False' in process 1"),
    "gradient of a view": (constant, f"view_b is {F6} in process 0 and 'float32 [B, 6]' in process 1"),
    "training": (evaluating, "training is 'True' in process 0 and 'False' in process 1"),
    "strategy": (
        by(CROSS, loss("fixed:temperature=0.2", layout="cross-view")),
        "strategy is 'fixed:temperature=0.1' in process 0 and 'fixed:temperature=0.2' in process 1",
    ),
    "objective": (
        by(CROSS, loss("fixed", "dcl", layout="cross-view")),
        "objective is 'infonce' in process 0 and 'dcl' in process 1",
    ),
    "layout": (
        by(CROSS, loss("fixed")),
        "layout is 'cross-view:directions=ab,softmax=joint,hard=shared,in_batch=true,positives=row' in pro",
    ),
    "negatives": (
        by(CROSS, loss("fixed", layout="cross-view", negatives="hardness")),
        "negatives is 'none' in process 0 and 'hardness:",
    ),
    "gathering": (
        lambda gather, bad: CROSS("ring" if (gather == "ring") != bad else True)(*views()),
        "gather is '",
    ),
    "reduction": (
        by(CROSS, loss("fixed", layout="cross-view", reduction="sum")),
        "reduction is 'mean' in process 0 and 'sum' in process 1",
    ),
    "types in a ring buffer": (
        lambda gather, bad: enqueued(gather, bad, dtype=torch.float64),
        "rows of a ring buffer is 'torch.float32 [B, 6]' in process 0 and 'torch.float64 [B, 6]' in process 1",
    ),
    "dimensions in Barlow Twins": (
        correlated,
        "embeddings of Barlow Twins is 'torch.float32 [B, 6], torch.float32 [B, 6]' in process 0 and 'torch.float32 [B, 7], ",
    ),
}
# What the second process alone refuses, and the error that it raises and the first one quotes.
REFUSED: dict[str, Case] = {
    "not a number": (
        lambda gather, bad: CROSS(gather)(rows(), rows() * (NAN if bad else 1)),
        "NonFiniteError: view_b holds NaN or infinite values in 4 of 4 rows (first: row 0)",
    ),
    "no tensor": (
        lambda gather, bad: CROSS(gather)([[1.0]] * ROWS if bad else rows(), rows()),
        "ShapeError: view_a is a list of heads, so view_b must be a list of as many, at least one.",
    ),
    "several heads of an objective for one": (
        lambda gather, bad: loss("fixed", "sogclr:size=9")(gather)(
            *(([rows()] * 2, [rows()] * 2) if bad else views()), index=KEY
        ),
        "ConfigError: objective 'sogclr' has one state for each example: it takes one head, not 2.",
    ),
    "a second head": (in_a_second_head, "NonFiniteError: view_b holds NaN or infinite values in 4 of 4 rows"),
    "rows of a row argument": (
        called(KEYS, {"keys": KEY}, {"keys": KEY[1:]}),
        "ShapeError: keys of shape [3] must have 4 rows, as view_a has.",
    ),
    "targets that do not sum to 1": (
        called(CROSS, {"targets": TARGETS}, {"targets": TARGETS * 2}),
        "ConfigError: targets holds row 0 with the sum 2; wanted numbers of at least 0",
    ),
    "an argument that is not read": (
        called(CROSS, {}, {"labels": KEY}),
        "ConfigError: labels= is read neither by layout 'cross-view' nor by strategy 'fixed'",
    ),
    "index of a strategy": (
        called(loss("individual:size=4"), {"index": KEY}, {"index": KEY + 1}),
        "ConfigError: index holds 4; size=4 of strategy 'individual'",
    ),
    "index of an objective": (
        called(loss("fixed", "sogclr:size=4"), {"index": KEY}, {"index": KEY - 1}),
        "ConfigError: index holds -1; size=4 of objective 'sogclr'",
    ),
    "classes": (
        called(loss("head-tail:class_counts=9/3/2/1"), {"labels": KEY}, {"labels": KEY + 1}),
        "ConfigError: labels holds 4; class_counts of strategy 'head-tail' allows 0 to 3",
    ),
    "progress": (told, "ConfigError: strategy 'schedule' was never told its progress"),
    "a guide that is not a number": (
        called(GUIDE, {"guide": torch.ones(ROWS, 3)}, {"guide": NAN.expand(ROWS, 3)}),
        "NonFiniteError: guide holds NaN or infinite values in 4 of 4 rows",
    ),
    "probabilities": (
        called(LOG_Q, {"candidate_log_q": -KEY.float()}, {"candidate_log_q": NAN.expand(ROWS)}),
        "NonFiniteError: candidate_log_q holds NaN or infinite values in 4 of 4 rows",
    ),
    "items": (
        called(COUNTED, {"index": KEY}, {"index": KEY + 9}),
        "ConfigError: index holds 12; size=9 of negative term 'log-q' allows 0 to 8.",
    ),
    "dimensions in a ring buffer": (
        lambda gather, bad: enqueued(gather, bad, dimension=7),
        "ShapeError: rows of shape [4, 7] must be [B, 6] for this ring buffer.",
    ),
}


def end(call: Callable[[Gather, bool], Tensor], gather: Gather, bad: bool) -> tuple[str, str]:
    """Returns how the call ended: the error and its message, or that it finished, and the loss."""
    try:
        found = call(gather, bad)
        found.backward()
    except Exception as error:
        return type(error).__name__, str(error)
    return "finished", str(found)


def good(gather: Gather, rows: slice) -> tuple[Tensor, Tensor]:
    """Returns the loss of some rows, and its gradient along them, of a call with several arguments."""
    batch, loss_fn = pairs(sum(SIZES)), KEYS(gather)
    embeddings = torch.stack([batch["a"], batch["b"]])[:, rows].clone().requires_grad_()
    hard, mask = batch["hard_negatives"][rows, None], torch.arange(sum(SIZES))[rows, None] >= SIZES[0]
    keys = {name: batch["labels"][rows] for name in ("view_a", "view_b", "hard_negatives")}
    keys["hard_negatives"] = keys["hard_negatives"][:, None] + 1
    found = loss_fn(*embeddings, hard_negatives=hard, hard_negative_mask=mask, keys=keys)
    (gradient,) = torch.autograd.grad(found, embeddings)
    return found.detach(), gradient


def ends(rank: int) -> dict[Gather, dict[str, Any]]:
    """Returns how each call ended by kind of gathering, and the averaged loss and the gradient of `good`."""
    results: dict[Gather, dict[str, Any]] = {}
    for gather in KINDS:
        results[gather] = {name: end(call, gather, rank == 1) for name, (call, _) in (DIFFERENT | REFUSED).items()}
        averaged, gradient = good(gather, rows_of(SIZES, rank))
        dist.all_reduce(averaged)
        results[gather]["good"] = averaged / len(SIZES), gradient / len(SIZES)
    return results
