"""Autograd around the passes of the Triton engine: log-sum-exp of the negatives forward, gradients of the unit rows backward.

The similarities of the positives pass through as well, so that their gradient joins the same tensors in place.
It must not know row statistics or objectives: upstream gradients are whatever they are. Importing this module needs triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.engine.triton import plan
from tempplug.engine.triton.passes import Side, Work, gradient_of, gradients_by_slabs, operand, sums
from tempplug.engine.triton.plan import LOG2E, MapPlan

LN2 = 1 / LOG2E
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, None, None]
# One exponential serves rows and columns where their sums are no more than this many powers of two apart: then no factor
# leaves float32's range, and what a sum loses is below 2^-40 of it.
WIDEST_SPREAD = 170.0
# Rows whose scale is learned are multiplied with their gradient this many at a time.
CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Job:
    """What a call computes, in operands of this precision.

    Attributes:
        map: numbers of the logit map; its scale is an argument of its own.
        runs: of the pairing of the positives.
        square: candidates are the anchors, and logits and roles symmetric: one gradient for both parts of each row.
        mirrored: the log-sum-exp of the columns as well.
    """

    map: MapPlan
    roles: dict[str, int]
    runs: tuple[tuple[int, int, int], ...]
    precision: torch.dtype
    square: bool
    mirrored: bool


class LogSumExp(torch.autograd.Function):
    """The positives' similarity [N], now with gradient, and the log-sum-exp of each anchor's negatives [N], in nats.

    With ``mirrored`` also that of each candidate's. Arguments of ``apply``: anchors [N, D] and candidates [M, D] float32 unit
    rows (the same tensor twice for a square), scale [] or [N] float32 (any number for other maps), the positives' similarity
    [N], `Job`.
    """

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, candidates: Tensor, scale: Tensor, positive: Tensor, job: Job) -> tuple[Tensor, ...]:
        """Returns the positives' similarity, the log-sum-exp of the rows, and with ``mirrored`` that of the columns."""
        tiles = plan.choose_tiles(job.precision, anchors.device)
        left = operand(anchors, job.precision, tiles)
        right = left if candidates is anchors else operand(candidates, job.precision, tiles)
        factor = (scale.detach() * LOG2E).reshape(-1).contiguous()
        work = Work(left, right, anchors.shape[1], factor, job.map, job.roles, tiles)
        statistics = [sums(work)]
        if job.mirrored:
            statistics.append(sums(work.transposed()))
        ctx.save_for_backward(anchors, candidates, left, right, factor, scale, *statistics)
        ctx.job, ctx.tiles, ctx.dimension = job, tiles, anchors.shape[1]
        return positive.clone(), *((exponent + fraction.log2()) * LN2 for exponent, fraction in statistics)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        """Returns the gradients of anchors, candidates and scale, as far as they are wanted."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='triton' has no second derivatives (the backward pass ran with create_graph=True): use engine='dense'."
            )
        with torch.autocast(gradients[0].device.type, enabled=False):
            return _backward(ctx, gradients)


def _backward(ctx: Any, upstream: tuple[Tensor, ...]) -> Gradients:
    anchors, candidates, left, right, factor, scale, *statistics = ctx.saved_tensors
    of_positives, *of_sums = upstream
    job: Job = ctx.job
    work = Work(left, right, ctx.dimension, factor, job.map, job.roles, ctx.tiles)
    rows, columns, gain = _sides(job, scale, of_sums, statistics)
    pivots = _pivots(job, rows, columns)
    wants_anchors, wants_candidates, wants_scale = ctx.needs_input_grad[:3]
    wanted = wants_anchors or wants_scale, wants_candidates and not job.square
    of_anchors = of_candidates = None
    if work.dimension > work.tiles.widest:
        of_anchors, of_candidates = gradients_by_slabs(work, rows, columns, pivots, gain, wanted=wanted, square=job.square)
    else:
        if wanted[0]:
            of_anchors = gradient_of(work, rows, columns, pivots, gain, swapped=False)
        if wanted[1] and job.mirrored:
            # The roles are their own transpose: the kernel that served the anchors serves the candidates.
            of_candidates = gradient_of(work.transposed(), columns, rows, pivots, gain, swapped=False)
        elif wanted[1]:
            of_candidates = gradient_of(work, rows, columns, pivots, gain, swapped=True)
    of_scale = _of_scale(job, left, of_anchors, scale) if wants_scale and of_anchors is not None else None
    for start, stop, shift in job.runs:
        weights, others = of_positives[start:stop, None], slice(start + shift, stop + shift)
        if of_anchors is not None:
            of_anchors[start:stop].addcmul_(weights, candidates[others])
        into = of_anchors if job.square else of_candidates
        if into is not None:
            into[others].addcmul_(weights, anchors[start:stop])
    return of_anchors if wants_anchors else None, of_candidates, of_scale, None, None


def _sides(job: Job, scale: Tensor, upstream: list[Tensor], statistics: list[Tensor]) -> tuple[Side, Side, Tensor]:
    """Returns both sides' part in the gradient, and the factor [1] that was taken out of their coefficients."""
    slope = scale.detach() if job.map.kind == "scale" else 1.0
    coefficients = [gradient.float() / side[1] * slope for gradient, side in zip(upstream, statistics, strict=True)]
    largest = (
        torch.stack([coefficient.abs().amax() for coefficient in coefficients])
        .amax()
        .clamp(min=torch.finfo(torch.float32).tiny)
    )
    # With 1 the largest coefficient, float16's range holds the pair gradients at its upper end: weights of one in a million
    # would vanish otherwise. The other precisions have range to spare.
    target = 2.0**13 / job.map.steepest if job.precision == torch.float16 else 1.0
    parts = [
        Side(torch.stack([side[0], coefficient / largest * target]), True)
        for side, coefficient in zip(statistics, coefficients, strict=True)
    ]
    rows = parts[0]
    # The unused side's tensor is never read.
    columns = parts[1] if job.mirrored else Side(rows.statistics, job.square)
    return rows, columns, (largest / target).reshape(1)


def _pivots(job: Job, rows: Side, columns: Side) -> Tensor:
    """Returns [2]: the exponent midway between all sums, and 1 where they are too far apart for it, else 0."""
    if not columns.counts or job.map.kind == "log-odds":
        return torch.zeros(2, device=rows.statistics.device)
    ends = [torch.aminmax(side.statistics[0]) for side in (rows, columns)]
    low = torch.minimum(ends[0].min, ends[1].min)
    high = torch.maximum(ends[0].max, ends[1].max)
    return torch.stack([((low + high) / 2).floor(), (high - low > WIDEST_SPREAD).float()])


def _of_scale(job: Job, anchors: Tensor, gradient: Tensor, scale: Tensor) -> Tensor:
    """Returns Σ dLoss/dl_ij · s_ij = <a_i, dLoss/da_i> / scale, by anchor or summed; a square's gradient has pairs twice."""
    parts = [
        torch.linalg.vecdot(anchors[start : start + len(piece), : gradient.shape[1]].float(), piece)
        for start, piece in ((start, gradient[start : start + CHUNK]) for start in range(0, len(gradient), CHUNK))
    ]
    products = torch.cat(parts)
    if job.map.per_anchor:
        return products / scale
    return products.sum() / (scale * (2 if job.square else 1))
