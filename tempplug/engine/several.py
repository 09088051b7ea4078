"""Closed forms for labels and masks: statistics and gradient of a tile from one similarity and one exponential.

With E_ij = exp(l_ij), the sums P_i of E over the positives of row i and Q_i over its negatives, and n_i positives, the gradient
of a logit is

    E_ij · ∂loss/∂ln P_i / P_i + ∂loss/∂l⁺_i / n_i   at a positive,
    E_ij · ∂loss/∂ln Q_i / Q_i                       at a negative,

times the map's slope that of a similarity. Where candidates are the anchors and the map is symmetric, G_ij + G_ji comes from
the same E, so that one product gives the whole gradient. Positives and negatives are summed apart: no sum is a difference.
Small batches go from raw embeddings to the loss at once (`several_positives`), others from statistics to autograd's graph.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.marks import marks_of
from tempplug.engine.stream import ROOM, SMALLEST_SUM
from tempplug.engine.tile_logits import TileLogits, logits_of
from tempplug.engine.tiles import Plan, Shape, Tile, make_plan, part, span
from tempplug.roles import Block, PairRoles
from tempplug.strategies.maps import LogitMap
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
    logits = logits_of(block.anchors, block.candidates, logit_map)
    if logits is None:
        return None
    run = Several(roles, logits.anchors, logits.candidates, block.positive_similarity)
    scale = next(iter(logit_map.tensors()), None)
    operands = (block.anchors,) if logits.mutual else (block.anchors, block.candidates)
    needs_gradient = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (scale, *operands))
    run.logits = logits
    with torch.no_grad():
        if not run.forward(keep=needs_gradient):
            return None
    return row_statistics(roles, logit_map, *Closed.apply(run, scale, *operands))  # type: ignore[no-untyped-call]


def row_statistics(
    roles: PairRoles, logit_map: LogitMap, similarity: Tensor, logit: Tensor | None, positive: Tensor, negative: Tensor
) -> RowStatistics:
    """Returns the statistics of every row; arguments as `Several` has them, logits of maps that are a scale None."""
    if logit is None:
        logit = logit_map.logit(similarity)
    counts = roles.positive_count()
    if roles.positive_range[0] <= 1:
        # One positive's log-sum-exp is its logit, to the last digit: a loss without negatives is 0.
        positive = torch.where(counts == 1, logit, positive)
    return RowStatistics(logit, similarity, positive, negative, counts, roles.negative_count())


class Several:
    """One pass over a block, and what its backward pass needs.

    Args:
        roles: of the pairs.
        anchors: [N, D] unit rows.
        candidates: [M, D] unit rows; the same tensor where they are the anchors.
        similarity: [N] mean similarity of the positives; None where the products that they come from are to be kept.

    Attributes:
        similarity: [N] mean similarity of the positives.
        logits: of the tiles, to be set before `forward`.
        logit: [N] mean logit of the positives in nats, after `forward`; 0 where the map is a scale.
        positive_sums: [N] P, in units of 2^shift, likewise.
        negative_sums: [N] Q likewise.
    """

    logits: TileLogits

    def __init__(self, roles: PairRoles, anchors: Tensor, candidates: Tensor, similarity: Tensor | None = None) -> None:
        self.marks, self.plan = marks_of(roles, anchors.dtype), make_plan(Shape.of(roles), False)
        self._tiles = [(tile, *_spans(tile, roles, self.plan)) for tile in self.plan.tiles]
        self._products: dict[Tile, Tensor] = {}
        self._kept: dict[Tile, tuple[Tensor, Tensor | None]] = {}
        self._scratches: dict[torch.Size, tuple[Tensor, ...]] = {}
        self._marked: tuple[Tile | None, Tensor | None] = None, None
        self._roles = roles
        self._count = roles.positive_count().to(anchors.dtype)
        if roles.positive_range[0] == 0:
            self._count.clamp_(min=1)
        self.logit = self.positive_sums = self.negative_sums = mean = anchors.new_empty(0)
        if similarity is None:
            for tile, rows, columns in self._tiles:
                product = self._products[tile] = gemm.outer_in_short_chains(part(anchors, rows), part(candidates, columns))
                _, other, _ = self._likes(product)
                positive = self._positive(tile, rows, columns, product)
                if positive is not None:
                    mean = self._sum(mean, torch.mul(product, positive, out=other), tile, rows)
            mean.div_(self._count)
        self.similarity = mean if similarity is None else similarity

    def forward(self, keep: bool) -> bool:
        """Computes the sums; returns whether they are exact.

        Args:
            keep: whether a backward pass will follow.
        """
        for tile, rows, columns in self._tiles:
            values = self._exponentials(tile, rows, columns, summing=True)
            if keep and self.plan.keep:
                self._kept[tile] = values
        if not self.positive_sums.shape[0]:  # no tile holds a positive
            self.logit, self.positive_sums = self.negative_sums.new_zeros(2, self._roles.anchors).unbind()
        if self.logits.scale is None:
            self.logit.div_(self._count).mul_(LN2)
        roles, safe = self._roles, self.logits.reach < SAFE
        if not (safe and roles.positive_range[0]):
            # A row without positives has no such sum, and whoever averages the rows drops it: any finite number does.
            self.positive_sums.clamp_(min=SMALLEST_SUM)
        if safe:
            return True
        return _exact(self.negative_sums, roles.negative_count() == 0) and _exact(
            self.positive_sums, roles.positive_count() <= 1
        )

    def found(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Returns the positives' similarity, logit (of a scale None) and log-sum-exp, the negatives' log-sum-exp, [N] each."""
        shift = self.logits.shift * LN2
        positive, negative = self.positive_sums.log(), self.negative_sums.log()
        if shift:
            positive, negative = positive.add_(shift), negative.add_(shift)
        return self.similarity, self.logit if self.logits.scale is None else None, positive, negative

    def _exponentials(
        self, tile: Tile, rows: slice | None, columns: slice | None, summing: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Returns E of a tile, 0 where a pair has no role here, and the slopes."""
        product = self._products.pop(tile) if tile in self._products else self.logits.similarities(rows, columns)
        (_, other, _), positive = self._likes(product), self._positive(tile, rows, columns, product)
        values, slopes = self.logits.bend(product, rows)
        if summing and positive is not None and slopes is not None:
            self.logit = self._sum(self.logit, torch.mul(values, positive, out=other), tile, rows)
        if self.logits.shift:
            values.sub_(self.logits.shift)
        values.exp2_()
        self.marks.sift_(tile, values, positive, other)
        if summing:
            negatives = values
            if positive is not None:
                self.positive_sums = self._sum(self.positive_sums, torch.mul(values, positive, out=other), tile, rows)
                negatives = torch.sub(values, other, out=other)
            self.negative_sums = self._sum(self.negative_sums, negatives, tile, rows)
        return values, slopes

    def backward(self, gradients: tuple[Tensor | None, ...], wants_candidates: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of anchors and, where they are wanted and others, of candidates.

        Args:
            gradients: [N] of the positives' mean similarity, mean logit and log-sum-exp, and of the negatives' log-sum-exp;
                None means 0.
            wants_candidates: whether their gradient is wanted.
        """
        logits = self.logits
        of_similarity, of_logit, of_positive, of_negative = gradients
        slope = 1.0 if logits.scale is None else logits.scale
        # Some number where nothing was summed: no pair is there to use it.
        negative_sums = self.negative_sums if self._roles.fewest_negatives else self.negative_sums.clamp(min=SMALLEST_SUM)
        at_negative = _share(of_negative, negative_sums, slope)
        at_positive = _share(of_positive, self.positive_sums, slope)
        of_logit = None if of_logit is None or logits.scale is not None else of_logit / self._count
        of_similarity = None if of_similarity is None else of_similarity / self._count
        of_anchors: Tensor | None = None
        of_candidates: Tensor | None = None
        for tile, rows, columns in self._tiles:
            values, slopes = self._kept.pop(tile) if tile in self._kept else self._exponentials(tile, rows, columns)
            (_, first, second), positive = self._likes(values), self._positive(tile, rows, columns, values)
            factor = self._spread(at_negative, rows, columns, first)
            if positive is not None:
                # Exactly the one or the other where marks are 0 and 1.
                torch.lerp(factor, self._spread(at_positive, rows, columns, second), positive, out=first)
                factor = first
            values.mul_(factor)
            if positive is not None and of_logit is not None:
                values.addcmul_(self._spread(of_logit, rows, columns, second), positive)
            if slopes is not None:
                values.mul_(slopes)
            if positive is not None and of_similarity is not None:
                values.addcmul_(self._spread(of_similarity, rows, columns, second), positive)
            product = gemm.times_in_short_chains(values, part(logits.candidates, columns))
            of_anchors = _added(of_anchors, product, rows, logits.anchors)
            if wants_candidates and not logits.mutual:
                product = gemm.turned(values, part(logits.anchors, rows))
                of_candidates = _added(of_candidates, product, columns, logits.candidates)
        if of_anchors is None:
            raise RuntimeError("a plan has tiles.")
        return of_anchors, of_candidates

    def _sum(self, whole: Tensor, values: Tensor, tile: Tile, rows: slice | None) -> Tensor:
        """Returns the sums of all rows [N], those of a tile added; the first tile finds nothing there."""
        if rows is None and not tile.row_turn:
            return values.sum(1)
        if not whole.shape[0]:
            whole = values.new_zeros(self._roles.anchors)
        part(whole, rows).add_(values.sum(1))
        return whole

    def _likes(self, tile: Tensor) -> tuple[Tensor, ...]:
        """Returns three tiles of this shape, of any content; the first is for who is positive."""
        found = self._scratches.get(tile.shape)
        if found is None:
            # One by one: glibc hands back to the system what is large, and small batches would pay for fresh pages.
            found = torch.empty_like(tile), torch.empty_like(tile), torch.empty_like(tile)
            self._scratches[tile.shape] = found
        return found

    def _positive(self, tile: Tile, rows: slice | None, columns: slice | None, values: Tensor) -> Tensor | None:
        """Returns 1 where a pair of a tile is positive and 0 elsewhere, None where there is none, until the next tile's."""
        marked, positive = self._marked
        if marked is not tile:
            positive = self.marks.positive(tile, rows, columns, self._likes(values)[0])
            self._marked = tile, positive
        return positive

    def _spread(self, of_rows: Tensor, rows: slice | None, columns: slice | None, out: Tensor) -> Tensor:
        """Returns the numbers of the rows, [R, 1]; where both halves are one, plus those of the columns, in ``out`` [R, C]."""
        of_rows_alone = part(of_rows, rows).unsqueeze(1)
        return torch.add(of_rows_alone, part(of_rows, columns), out=out) if self.logits.mutual else of_rows_alone


def _spans(tile: Tile, roles: PairRoles, plan: Plan) -> tuple[slice | None, slice | None]:
    """Returns the anchors and the candidates of a tile."""
    start = roles.candidates - plan.extra_columns if tile.panel else roles.negatives_start
    return span(tile.top, tile.bottom, roles.anchors), span(start + tile.left, start + tile.right, roles.candidates)


def _added(whole: Tensor | None, product: Tensor, where: slice | None, like: Tensor) -> Tensor:
    """Returns a gradient with what a tile has in it; the first that covers all of it is the gradient."""
    if whole is None:
        if product.shape[0] == like.shape[0]:
            return product
        whole = torch.zeros_like(like)
    part(whole, where).add_(product)
    return whole


def _exact(sums: Tensor, unread: Tensor) -> bool:
    """Returns whether sums are neither so small that what they are made of may have underflowed, nor too large."""
    low, high = torch.aminmax(sums.masked_fill(unread, 1.0))
    return low.item() > SMALLEST_SUM and high.item() < torch.finfo(sums.dtype).max


def _share(gradient: Tensor | None, sums: Tensor, slope: Tensor | float) -> Tensor:
    """Returns gradient · slope / sum."""
    if gradient is None:
        return torch.zeros_like(sums)
    return gradient * slope / sums


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
        similarity, logit, positive, negative = run.found()
        # Copies: what its own graph held would never be freed.
        return similarity.clone(), None if logit is None else logit.clone(), positive, negative

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
    logits = run.logits
    of_anchors, of_candidates = run.backward((of_similarity, *others), any(wants_candidates))
    of_scale = None
    if wants_scale and scale is not None:
        # Σ_j G_ij s_ij is the anchor times its own gradient; what came through the positives' similarity has no scale in it.
        along = torch.linalg.vecdot(logits.anchors, of_anchors)
        if logits.mutual:
            along = along / 2  # a pair of the square is counted from both its ends
        if of_similarity is not None:
            along = along - of_similarity * run.similarity
        of_scale = (along if scale.ndim else along.sum()) / scale
    found = (of_scale, of_anchors if wants_anchors else None, *((of_candidates,) if wants_candidates else ()))
    return found if unit is None else tuple(None if each is None else each * unit for each in found)
