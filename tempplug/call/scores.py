"""Scores that the caller computed in place of embeddings: which parts of a loss accept them, and their views.

The rows of these views have no dimension. They give the number of anchors and candidates, and carry the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tempplug.call.memory import Memory
from tempplug.call.parts import Parts
from tempplug.call.read import check_rows, read_given_targets, read_row_arguments
from tempplug.distributed import rows_of_one
from tempplug.embeddings import UnitRows
from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug.inputs import check_finite, check_read, unread
from tempplug.layouts import Views
from tempplug.negatives.base import NegativeTerm
from tempplug.objectives.base import Objective
from tempplug.options import COLDEST
from tempplug.precision import at_least_float32
from tempplug.strategies.base import Strategy
from tempplug.transforms import refuse_fake


def read_scores(parts: Parts, memory: Memory, scores: Tensor, arguments: dict[str, Any]) -> Views:
    """Returns the views of a call of `tempplug.ContrastiveLoss.from_scores`, with the errors listed there."""
    refuse_fake(scores, *arguments.values())
    for name in ("queue", "hard_negatives", "hard_negative_mask"):
        if name in arguments:
            raise ConfigError(f"{name}= is no argument of from_scores: scores of hard negatives are the columns from N on.")
    refuse_cosines_only(parts)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ShapeError(f"scores of shape {list(scores.shape)} must be [N, M], one row an anchor, neither number 0.")
    (size, columns), device, targets = scores.shape, scores.device, arguments.get("targets")
    # Candidates may be each row's own where values decide the roles, and none of them is an anchor.
    own = parts.layout.name == "masks" or (targets is not None and len(parts.layout.blocks) == 1)
    if columns < size and not own:
        raise ShapeError(
            f"scores of shape {list(scores.shape)} must have at least {size} columns, because column i is the positive of row "
            "i: take layout 'masks' for other positives."
        )
    check_read(arguments, parts.strategy, parts.layout, parts.read_of_rows | parts.objective.takes)
    labels, index, uncertainty = check_rows(arguments, memory, device, size, columns, parts.read_of_rows)
    scores = at_least_float32(scores)
    _check_range(scores)
    # Parts of the scores, so that a loss of no anchor has a gradient of 0.
    anchors, candidates = scores[:, :0], scores.T[:, :0]
    view_b_size = columns if own else size
    rows = {"view_a": anchors, "view_b": candidates[:view_b_size]}
    if columns > view_b_size:
        rows["hard_negatives"] = candidates[view_b_size:]
    units = UnitRows.of_tensors(rows)
    return Views(
        own=units,
        everyone=units,
        rows=rows_of_one(size),
        device=device,
        precision=scores.dtype,
        labels=labels,
        all_labels=labels,
        index=index,
        uncertainty=uncertainty,
        positive_mask=arguments.get("positive_mask"),
        negative_mask=arguments.get("negative_mask"),
        targets=read_given_targets(parts, targets, size, device, scores.dtype) if targets is not None else None,
        scores=scores,
        row_arguments=read_row_arguments(parts, arguments, rows),
    )


def _check_range(scores: Tensor) -> None:
    """Raises `NonFiniteError` where a score is NaN, infinite, or too large to be divided by every temperature; not on CUDA."""
    if unread(scores.device):
        return
    limit = torch.finfo(scores.dtype).max * COLDEST / 10  # of sums as well
    low, high = (extreme.item() for extreme in torch.aminmax(scores.detach()))
    if not (-limit <= low and high <= limit):
        check_finite("scores", scores)
        raise NonFiniteError(
            f"scores holds {low if -low > high else high:g}, and logits of more than {limit:.0e} leave {scores.dtype}: divide "
            "the scores by a constant, and leave pairs out by layout 'masks', not by a very low score."
        )


def refuse_cosines_only(parts: Parts) -> None:
    """Raises ConfigError where a part of the loss has no meaning for scores in place of cosines."""
    layout = parts.layout
    if parts.gather:
        raise ConfigError(
            f"gather={parts.gather!r} has no meaning for from_scores: other processes have no scores of this one's rows. "
            "Where its columns are candidates of all processes, take gather=False and say by targets= which are positives."
        )
    if parts.engine in ("tiled", "triton"):
        raise ConfigError(f"engine='{parts.engine}' computes similarities itself: from_scores takes 'dense', or 'auto'.")
    if not layout.takes_scores:
        raise ConfigError(
            f"layout '{layout.spec()}' needs similarities that scores of rows with columns do not hold: from_scores takes "
            "'cross-view' with directions=ab or ab+ba, hard=shared or ab and in_batch=true, or 'masks'. Columns of hard "
            "negatives may be each row's own, also with hard=shared; a row of its own candidates alone has targets=."
        )
    with_domain: list[Strategy | Objective | NegativeTerm] = [parts.strategy, parts.objective, *parts.terms]
    for part in with_domain:
        if part.cosines_only:
            shown = part.spec() if part is parts.objective else part.name  # a margin, which is an option, decides
            raise ConfigError(
                f"{part.kind} '{shown}' is defined for cosines in [-1, 1] alone, and scores may be any numbers: leave it "
                "out of a loss for from_scores."
            )
