"""Closed forms for labels and masks: statistics and gradient of a tile from one similarity and one exponential.

With E_ij = exp(l_ij), the sums P_i of E over the positives of row i and Q_i over its negatives, and n_i positives, the gradient
of a logit is

    E_ij · ∂loss/∂ln P_i / P_i + ∂loss/∂l⁺_i / n_i   at a positive,
    E_ij · ∂loss/∂ln Q_i / Q_i                       at a negative,

times the map's slope that of a similarity. Where candidates are the anchors and the map is symmetric, G_ij + G_ji comes from
the same E, so that one product gives the whole gradient. Positives and negatives are summed apart: no sum is a difference.
Small batches go from raw embeddings to the loss at once (`SeveralPositives`), others from statistics to autograd's graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.marks import marks_of
from tempplug.engine.raw import RawBlock
from tempplug.engine.stream import ROOM, SMALLEST_SUM
from tempplug.engine.tile_logits import TileLogits, logits_of
from tempplug.engine.tiles import Plan, Shape, Tile, make_plan, part, span
from tempplug.precision import number
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
    run.rounded = block.rounded
    scale = next(iter(logit_map.tensors()), None)
    operands = (block.anchors,) if logits.mutual else (block.anchors, block.candidates)
    needs_gradient = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (scale, *operands))
    run.logits = logits
    with torch.no_grad():
        if not run.forward(keep=needs_gradient):
            return None
    return _row_statistics(roles, logit_map, *Closed.apply(run, scale, *operands))  # type: ignore[no-untyped-call]


def _row_statistics(
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


class SeveralPositives(RawBlock):
    """A block with labels or masks of one call, and what its backward pass needs.

    Args:
        roles: of the pairs, at most `LARGEST`; every anchor has a negative, some have a positive.
        sizes: as of `RawBlock`.
        raw: as of `RawBlock`.
    """

    __slots__ = ("run",)

    def __init__(self, roles: PairRoles, sizes: tuple[int, ...], raw: Sequence[Tensor]) -> None:
        super().__init__(roles, sizes, raw)
        if not self.ordinary:
            return
        self.run = Several(roles, self.anchors, self.candidates)
        self.positive_similarity = self.run.similarity
        self.counted = None if roles.positive_range[0] else roles.positive_count() > 0

    def read(self, logit_map: LogitMap) -> bool:
        """Computes the statistics; returns whether that was possible, and exact."""
        run = self.run
        logits = logits_of(self.anchors, self.candidates, logit_map)
        if logits is None:
            return False
        run.logits = logits
        if not run.forward(keep=True):
            return False
        self.statistics = [_row_statistics(self.roles, logit_map, *run.found())]
        return True

    def gradients(
        self, shares: int, factor: Tensor, weight: Tensor | None, scale: Tensor | None, last: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of the first raw rows, and of the scale; see `RawBlock`."""
        run, count = self.run, self.roles.anchors
        run.rounded = self.rounded
        first = self.unit.shape[0] - self.roles.candidates
        ((_, of_negative, of_logit),) = self.closed
        if weight is not None:
            of_negative, of_logit = of_negative * weight, None if of_logit is None else of_logit * weight
        of_positive = None
        if of_logit is None:
            of_logit = -of_negative
        else:  # a constant added to all logits of a row changes no loss of several positives: the three add up to 0
            of_positive = (of_negative + of_logit).neg_()
        slope, factor = run.logits.scale, factor / number(shares, factor.dtype)
        of_pairs = (None, of_logit) if slope is None else (of_logit * slope, None)
        of_anchors, of_candidates = run.backward((*of_pairs, of_positive, of_negative), last > count or first == 0)
        along, of_unit = None, of_anchors
        if of_candidates is not None and first == 0:
            along = torch.linalg.vecdot(self.anchors, of_anchors) if scale is not None else None
            of_candidates[:count].add_(of_anchors)
            of_unit = of_candidates[:last]
        elif of_candidates is not None:
            of_unit = torch.cat([of_anchors, of_candidates[: last - count]])
        of_raw, radial = self._of_raw(of_unit, factor)
        if scale is None:
            return of_raw, None
        if along is None:  # of both halves in one, each pair is counted from both its ends
            along = radial.squeeze(1) / 2 if run.logits.mutual else radial[:count, 0]
        return of_raw, (along if scale.ndim else along.sum()) * factor / scale


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
        rounded: whether products of the gradient may round their operands, to be set before `backward`.
        logit: [N] mean logit of the positives in nats, after `forward`; 0 where the map is a scale.
        positive_sums: [N] P, in units of 2^shift, likewise.
        negative_sums: [N] Q likewise.
    """

    logits: TileLogits
    rounded: bool = False

    def __init__(self, roles: PairRoles, anchors: Tensor, candidates: Tensor, similarity: Tensor | None = None) -> None:
        self.marks, self.plan = marks_of(roles, anchors.dtype), make_plan(Shape.of(roles), False)
        self._tiles = [(tile, *_spans(tile, roles, self.plan)) for tile in self.plan.tiles]
        self._scratch = anchors.new_empty(3, self.plan.largest)
        self._products: dict[Tile, Tensor] = {}
        self._kept: dict[Tile, tuple[Tensor, Tensor | None]] = {}
        self._scratches: dict[torch.Size, tuple[Tensor, ...]] = {}
        self._marked: tuple[Tile | None, Tensor | None] = None, None
        self._roles = roles
        self._count = roles.positive_count().to(anchors.dtype)
        if roles.positive_range[0] == 0:
            self._count.clamp_(min=1)
        self.logit, self.positive_sums, self.negative_sums, mean = anchors.new_zeros(4, roles.anchors).unbind()
        self.similarity = mean if similarity is None else similarity
        if similarity is None:
            for tile, rows, columns in self._tiles:
                product = self._products[tile] = gemm.outer_in_short_chains(part(anchors, rows), part(candidates, columns))
                _, other, _ = self._likes(product)
                positive = self._positive(tile, rows, columns, product)
                if positive is not None:
                    _sum(torch.mul(product, positive, out=other), mean, tile, rows)
            mean.div_(self._count)

    def forward(self, keep: bool) -> bool:
        """Computes the sums; returns whether they are exact.

        Args:
            keep: whether a backward pass will follow.
        """
        for tile, rows, columns in self._tiles:
            values = self._exponentials(tile, rows, columns, summing=True)
            if keep and self.plan.keep:
                self._kept[tile] = values
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
            _sum(torch.mul(values, positive, out=other), self.logit, tile, rows)
        if self.logits.shift:
            values.sub_(self.logits.shift)
        values.exp2_()
        self.marks.sift_(tile, values, positive, other)
        if summing:
            negatives = values
            if positive is not None:
                _sum(torch.mul(values, positive, out=other), self.positive_sums, tile, rows)
                negatives = torch.sub(values, other, out=other)
            _sum(negatives, self.negative_sums, tile, rows)
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
        times, turned = gemm.of_gradients(self.rounded)
        along_rows = gemm.times_in_short_chains if times is gemm.times else times
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
            product = along_rows(values, part(logits.candidates, columns))
            of_anchors = _added(of_anchors, product, rows, logits.anchors)
            if wants_candidates and not logits.mutual:
                product = turned(values, part(logits.anchors, rows))
                of_candidates = _added(of_candidates, product, columns, logits.candidates)
        if of_anchors is None:
            raise RuntimeError("a plan has tiles.")
        return of_anchors, of_candidates

    def _likes(self, tile: Tensor) -> tuple[Tensor, ...]:
        """Returns three tiles of this shape, of any content; the first is for who is positive."""
        shape = tile.shape
        found = self._scratches.get(shape)
        if found is None:
            scratch = self._scratch if tile.numel() == self.plan.largest else self._scratch[:, : tile.numel()]
            found = self._scratches[shape] = scratch.view(3, *shape).unbind()
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


def _sum(values: Tensor, out: Tensor, tile: Tile, rows: slice | None) -> None:
    """Adds a tile's sums over its rows; the first tile of a row finds nothing there."""
    if tile.row_turn:
        part(out, rows).add_(values.sum(1))
    else:
        torch.sum(values, 1, out=part(out, rows))


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
