"""Closed forms for labels and masks: statistics and gradient of a tile from one similarity and one exponential.

With E_ij = exp(l_ij), the sums P_i of E over the positives of row i and Q_i over its negatives, and n_i positives, the gradient
of a logit is

    E_ij · ∂loss/∂ln P_i / P_i + ∂loss/∂l⁺_i / n_i   at a positive,
    E_ij · ∂loss/∂ln Q_i / Q_i                       at a negative,

times the map's slope that of a similarity. Where candidates are the anchors and the map is symmetric, G_ij + G_ji comes from
the same E, so that one product gives the whole gradient. Positives and negatives are summed apart: no sum is a difference.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.marks import Marks, marks_of
from tempplug.engine.stream import ROOM, SMALLEST_SUM
from tempplug.engine.tile_logits import ScaledLogits, TileLogits
from tempplug.engine.tiles import Plan, Shape, Tile, make_plan
from tempplug.roles import Block, PairRoles
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.strategies.tile_forms import ScaleForm
from tempplug.types import RowStatistics

LN2 = math.log(2)
# Powers of 2 up to this, up or down, neither underflow nor overflow, whatever is summed.
SAFE = 90.0


def closed_statistics(block: Block, logit_map: LogitMap) -> RowStatistics | None:
    """Returns the statistics of every row of a block with labels or masks; None where sums without a maximum lose digits.

    Args:
        block: anchors, candidates and their roles.
        logit_map: with an in-place form.
    """
    roles = block.roles
    form = logit_map.tile_form(roles.candidates, block.anchors.dtype)
    if form is None:
        return None
    kind = ScaledLogits if isinstance(form, ScaleForm) else TileLogits
    logits = kind(block.anchors, block.candidates, logit_map, form)  # type: ignore[arg-type]
    run = Several(roles, logits, marks_of(roles, block.anchors.dtype), make_plan(Shape.of(roles), False))
    scale = next(iter(logit_map.tensors()), None)
    operands = (block.anchors,) if logits.mutual else (block.anchors, block.candidates)
    needs_gradient = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (scale, *operands))
    with torch.no_grad():
        if not run.forward(keep=needs_gradient):
            return None
    similarity, logit, positive, negative = Closed.apply(run, scale, *operands)  # type: ignore[no-untyped-call]
    if isinstance(logit_map, ScaleMap):
        logit = logit_map.scale * similarity
    counts = roles.positive_count()
    if bool((alone := counts == 1).any()):
        # One positive's log-sum-exp is its logit, to the last digit: a loss without negatives is 0.
        positive = torch.where(alone, logit, positive)
    return RowStatistics(logit, similarity, positive, negative, counts, roles.negative_count())


class Several:
    """One pass over a block, and what its backward pass needs.

    Args:
        roles: of the pairs.
        logits: of its tiles.
        marks: of its tiles.
        plan: the tiles; none is mirrored.

    Attributes:
        similarity: [N] mean similarity of the positives, after `forward`; so the others.
        logit: [N] their mean logit in nats; 0 where the map is a scale.
        positive_sums: [N] P, in units of 2^shift.
        negative_sums: [N] Q likewise.
    """

    def __init__(self, roles: PairRoles, logits: TileLogits, marks: Marks, plan: Plan) -> None:
        self.logits, self.marks, self.plan = logits, marks, plan
        anchors = logits.anchors
        self._starts = roles.negatives_start, roles.candidates - plan.extra_columns
        self._scratch = anchors.new_empty(3, plan.largest)
        self._kept: dict[Tile, tuple[Tensor, Tensor | None]] = {}
        self._positives, self._negatives = roles.positive_count(), roles.negative_count()
        self._count = self._positives.clamp(min=1).to(anchors.dtype)
        self.similarity, self.logit, self.positive_sums, self.negative_sums = anchors.new_zeros(4, len(anchors))

    def forward(self, keep: bool) -> bool:
        """Computes the sums; returns whether they are exact.

        Args:
            keep: whether a backward pass will follow.
        """
        for tile in self.plan.tiles:
            values = self._exponentials(tile, summing=True)
            if keep and self.plan.keep:
                self._kept[tile] = values
        self.similarity.div_(self._count)
        if self.logits.scale is None:
            self.logit.div_(self._count).mul_(LN2)
        else:
            self.similarity.mul_(LN2 / self.logits.scale)
        if self.logits.reach < SAFE:
            return True
        return _exact(self.negative_sums, self._negatives == 0) and _exact(self.positive_sums, self._positives <= 1)

    def _exponentials(self, tile: Tile, summing: bool = False) -> tuple[Tensor, Tensor | None]:
        """Returns E of a tile, 0 where a pair has no role here, and the slopes."""
        rows, columns = self._span(tile)
        product = self.logits.product(rows, columns)
        marked, other = self._like(product, 0), self._like(product, 1)
        positive = self.marks.positive(tile, marked)
        adds = summing and positive is not None
        if adds:
            _sum(torch.mul(product, marked, out=other), self.similarity, tile)
        values, slopes = self.logits.bend(product)
        if adds and slopes is not None:
            _sum(torch.mul(values, marked, out=other), self.logit, tile)
        if self.logits.shift:
            values.sub_(self.logits.shift)
        values.exp2_()
        self.marks.sift_(tile, values, positive, other)
        if adds:
            _sum(torch.mul(values, marked, out=other), self.positive_sums, tile)
        if summing:
            _sum(torch.sub(values, other, out=other) if adds else values, self.negative_sums, tile)
        return values, slopes

    def backward(
        self, gradients: tuple[Tensor | None, ...], wants_anchors: bool, wants_candidates: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns the gradients of anchors and candidates, None where unwanted; of the anchors alone where both are one.

        Args:
            gradients: [N] of the positives' mean similarity, mean logit and log-sum-exp, and of the negatives' log-sum-exp;
                None means 0.
            wants_anchors: whether the anchors' gradient is wanted.
            wants_candidates: likewise.
        """
        logits = self.logits
        of_similarity, of_logit, of_positive, of_negative = gradients
        slope = 1.0 if logits.scale is None else logits.scale
        at_negative = _share(of_negative, self.negative_sums, slope)
        at_positive = _share(of_positive, self.positive_sums, slope)
        of_logit = None if of_logit is None or logits.scale is not None else of_logit / self._count
        of_similarity = None if of_similarity is None else of_similarity / self._count
        of_anchors: Tensor | None = None
        of_candidates: Tensor | None = None
        wants_candidates &= not logits.mutual
        for tile in self.plan.tiles:
            rows, columns = self._span(tile)
            values, slopes = self._kept.pop(tile) if tile in self._kept else self._exponentials(tile)
            marked, first, second = (self._like(values, number) for number in range(3))
            positive = self.marks.positive(tile, marked)
            factor = self._spread(at_negative, rows, columns, first)
            if positive is not None:
                # Exactly the one or the other where marks are 0 and 1.
                factor.lerp_(self._spread(at_positive, rows, columns, second), positive)
            values.mul_(factor)
            if positive is not None and of_logit is not None:
                values.addcmul_(self._spread(of_logit, rows, columns, second), positive)
            if slopes is not None:
                values.mul_(slopes)
            if positive is not None and of_similarity is not None:
                values.addcmul_(self._spread(of_similarity, rows, columns, second), positive)
            if wants_anchors:
                of_anchors = self._added(of_anchors, gemm.times(values, logits.candidates[columns]), rows, logits.anchors)
            if wants_candidates:
                part = gemm.turned(values, logits.anchors[rows])
                of_candidates = self._added(of_candidates, part, columns, logits.candidates)
        return of_anchors, of_candidates

    def _span(self, tile: Tile) -> tuple[slice, slice]:
        start = self._starts[tile.panel]
        return slice(tile.top, tile.bottom), slice(start + tile.left, start + tile.right)

    def _added(self, whole: Tensor | None, part: Tensor, where: slice, like: Tensor) -> Tensor:
        """Returns a gradient with the part that a tile has in it."""
        if len(self.plan.tiles) == 1:
            return part
        if whole is None:
            whole = torch.zeros_like(like)
        whole[where].add_(part)
        return whole

    def _like(self, tile: Tensor, number: int) -> Tensor:
        return self._scratch[number, : tile.numel()].view(tile.shape)

    def _spread(self, of_rows: Tensor, rows: slice, columns: slice, out: Tensor) -> Tensor:
        """Returns the numbers of the rows all over a tile; where both halves are one, plus those of the columns."""
        if self.logits.mutual:
            return torch.add(of_rows[rows, None], of_rows[None, columns], out=out)
        return out.copy_(of_rows[rows, None])


def _exact(sums: Tensor, unread: Tensor) -> bool:
    """Returns whether sums are neither so small that what they are made of may have underflowed, nor too large."""
    low, high = torch.aminmax(sums.masked_fill(unread, 1.0))
    return low.item() > SMALLEST_SUM and high.item() < torch.finfo(sums.dtype).max


def _share(gradient: Tensor | None, sums: Tensor, slope: Tensor | float) -> Tensor:
    """Returns gradient · slope / sum; some number where nothing was summed, so that no pair is there to use it."""
    if gradient is None:
        return torch.zeros_like(sums)
    return gradient * slope / sums.clamp(min=SMALLEST_SUM)


def _sum(values: Tensor, out: Tensor, tile: Tile) -> None:
    """Adds a tile's sums over its rows; the first tile of a row finds nothing there."""
    rows = out[tile.top : tile.bottom]
    if tile.row_turn:
        rows.add_(values.sum(1))
    else:
        torch.sum(values, 1, out=rows)


class Closed(torch.autograd.Function):
    """What a pass that has run found, with gradient."""

    @staticmethod
    def forward(ctx: Any, run: Several, scale: Tensor | None, *operands: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the positives' similarity, logit and log-sum-exp and the negatives' log-sum-exp, [N] each; no scaled logit.

        Args:
            ctx: of autograd.
            run: that has run.
            scale: the map's own where it is learned, so that its gradient costs O(N·D).
            operands: the anchors [N, D], and the candidates [M, D] where they are others.
        """
        ctx.run = run
        ctx.scale = None if scale is None else scale.detach()
        ctx.set_materialize_grads(False)
        # Kept for what autograd checks: that nobody changed them in place, and that the graph is still there.
        ctx.save_for_backward(*operands)
        shift = run.logits.shift * LN2
        # A row without positives has no such sum, and whoever averages the rows drops it: any finite number does.
        positive, negative = run.positive_sums.clamp(min=SMALLEST_SUM).log_(), run.negative_sums.log()
        if shift:
            positive, negative = positive.add_(shift), negative.add_(shift)
        # Copies: what its own graph held would never be freed.
        logit = run.logit.clone() if run.logits.scale is None else None
        return run.similarity.clone(), logit, positive, negative

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns the gradients of scale, anchors and candidates."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        operands = ctx.saved_tensors
        if all(each is None for each in gradients):
            return (None,) * (2 + len(operands))
        # Tiles are float32 also where the backward pass is called inside an autocast region.
        with torch.autocast(operands[0].device.type, enabled=False):
            return None, *_gradients(ctx.run, ctx.scale, ctx.needs_input_grad[1:], gradients)


def _gradients(
    run: Several, scale: Tensor | None, needed: tuple[bool, ...], gradients: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """Returns what `Closed.backward` does, of scale, anchors and, where they are others, candidates."""
    wants_scale, wants_anchors, *wants_candidates = needed
    unit = None
    if run.logits.reach >= ROOM:
        # Sums as far from 1 as small temperatures make them leave no room in float32 for gradients far from 1 as well.
        unit = torch.stack([each.abs().amax() for each in gradients if each is not None]).amax()
        unit = torch.where(unit > 0, unit, 1.0)
    of_similarity, *others = (None if each is None else each if unit is None else each / unit for each in gradients)
    of_anchors, of_candidates = run.backward((of_similarity, *others), wants_anchors or wants_scale, any(wants_candidates))
    of_scale = None
    if wants_scale and scale is not None and of_anchors is not None:
        # Σ_j G_ij s_ij is the anchor times its own gradient; what came through the positives' similarity has no scale in it.
        along = torch.linalg.vecdot(run.logits.anchors, of_anchors)
        if run.logits.mutual:
            along = along / 2  # a pair of the square is counted from both its ends
        if of_similarity is not None:
            along = along - of_similarity * run.similarity
        of_scale = (along if scale.ndim else along.sum()) / scale
    found = (of_scale, of_anchors if wants_anchors else None, *((of_candidates,) if wants_candidates else ()))
    return found if unit is None else tuple(None if each is None else each * unit for each in found)
