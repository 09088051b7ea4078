"""Closed form for a temperature of every pair (AMCL), τ from a product of rows of its own: two products a tile, no graph.

With s and u the products of unit rows and of φ, and l = (s - β)/τ - β·(D/2)·ln τ, τ = span·sigmoid(-u) + floor,

    ∂l/∂s = 1/τ,    ∂l/∂u = (1/τ)·((s - β)/τ + β·D/2)·span·sigmoid(u)·sigmoid(-u).

Logits spread over hundreds of nats, so rows are summed around their running maximum, and the backward pass takes the softmax
anew from the logits: 2^(l - lse), never above 1. Where candidates are the anchors, the softmax of both rows of a pair gives the
whole gradient in one product each.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.tiles import KEPT, Plan, Shape, Tile, make_plan
from tempplug.roles import Block
from tempplug.strategies.maps import PairTemperatureMap
from tempplug.strategies.tile_forms import LOG2E
from tempplug.types import RowStatistics


def bilinear_statistics(block: Block, logit_map: PairTemperatureMap) -> RowStatistics:
    """Returns the statistics of every row of a block with one positive an anchor.

    Args:
        block: anchors, candidates and their roles.
        logit_map: of this batch.
    """
    roles = block.roles
    if roles.positives is None:
        raise RuntimeError("an anchor may have several positives.")
    columns = roles.positives.columns(torch.arange(roles.anchors, device="cpu"))
    run = Bilinear(block, logit_map, make_plan(Shape.of(roles), False))
    operands: tuple[Tensor, ...] = (block.anchors, logit_map.anchors)
    if not run.mutual:
        operands += (block.candidates, logit_map.candidates)
    with torch.no_grad():
        run.forward(keep=any(each.requires_grad for each in operands))
    negative: Tensor = ClosedBilinear.apply(run, *operands)  # type: ignore[no-untyped-call]
    similarity = torch.linalg.vecdot(block.anchors, block.candidates.index_select(0, columns))
    logit = logit_map.at(slice(None), columns, paired=True).logit(similarity)
    return RowStatistics(logit, similarity, logit, negative, roles.positive_count(), roles.negative_count())


class Bilinear:
    """One pass over a block, and what its backward pass needs.

    Args:
        block: anchors, candidates and roles; every anchor has one positive.
        logit_map: of this batch.
        plan: the tiles; none is mirrored.

    Attributes:
        mutual: whether both halves of a square are one.
        lse: [N] base-2 logarithm of each row's sum, after `forward`; -inf where a row has no negative.
    """

    def __init__(self, block: Block, logit_map: PairTemperatureMap, plan: Plan) -> None:
        self.plan, self._map = plan, logit_map
        self.mutual = block.candidates is block.anchors and logit_map.candidates is logit_map.anchors
        self._lefts = block.anchors.detach(), logit_map.anchors.detach()
        self._rights = self._lefts if self.mutual else (block.candidates.detach(), logit_map.candidates.detach())
        self._weight = 0.5 * logit_map.beta * logit_map.dimension
        self._turned_round = -self._lefts[1]  # so that the product is -u
        self._starts = block.roles.negatives_start, block.roles.candidates - plan.extra_columns
        self._scratch = self._lefts[0].new_empty(plan.largest)
        self._kept: dict[Tile, tuple[Tensor, Tensor, Tensor]] = {}
        self.lse = self._lefts[0].new_empty(0)

    def forward(self, keep: bool) -> None:
        """Computes the sums.

        Args:
            keep: whether a backward pass will follow.
        """
        numbers = sum((tile.bottom - tile.top) * (tile.right - tile.left) for tile in self.plan.tiles)
        keep = keep and 3 * numbers <= KEPT
        anchors = self._lefts[0]
        # The smallest number and not -inf, whose difference to itself is none.
        most = anchors.new_full((len(anchors),), torch.finfo(anchors.dtype).min)
        sums = anchors.new_zeros(len(anchors))
        for tile in self.plan.tiles:
            values = self._logits(tile, slopes=keep)
            if keep:
                self._kept[tile] = values
            rows, logits = slice(tile.top, tile.bottom), values[0]
            highest = torch.maximum(most[rows], logits.amax(1))
            more = torch.sub(logits, highest[:, None], out=self._like(logits)).exp2_().sum(1)
            sums[rows] = sums[rows].mul_(torch.exp2(most[rows] - highest)).add_(more) if tile.row_turn else more
            most[rows] = highest
        self.lse = sums.log2_().add_(most)

    def _logits(self, tile: Tile, slopes: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Returns base-2 logits of a tile, -inf where a pair is no negative, and the slopes in nats along s and u.

        Args:
            tile: which.
            slopes: whether they are wanted; the last one is otherwise anything.
        """
        rows, columns = self._span(tile)
        logits = gemm.outer_in_short_chains(self._lefts[0][rows], self._rights[0][columns])
        along = gemm.outer_in_short_chains(self._turned_round[rows], self._rights[1][columns]).sigmoid_()
        inverse = torch.mul(along, self._map.span).add_(self._map.floor)
        logarithm = torch.log2(inverse, out=self._like(inverse)) if self._weight else None
        logits.sub_(self._map.beta).mul_(inverse.reciprocal_())
        if slopes:
            other = (logits + self._weight).mul_(inverse).mul_(self._map.span)
            along = torch.ops.aten.sigmoid_backward(other, along)
        logits.mul_(LOG2E)
        if logarithm is not None:
            logits.sub_(logarithm, alpha=self._weight)
        if tile.zeroes is not None:
            logits.view(-1).index_fill_(0, tile.zeroes, -torch.inf)
        return logits, inverse, along

    def backward(self, gradient: Tensor, wanted: tuple[bool, ...]) -> list[Tensor | None]:
        """Returns the gradients of anchors, their φ, candidates and theirs; None where unwanted or where both are one.

        Args:
            gradient: [N] of each row's log-sum-exp.
            wanted: which of the four.
        """
        # A row without negatives has no softmax: 2^(-inf) is 0.
        lse = self.lse.masked_fill(self.lse == -torch.inf, torch.inf)
        lefts, rights = wanted[:2], wanted[2:] or (False, False)
        of_lefts = [torch.zeros_like(left) if wants else None for left, wants in zip(self._lefts, lefts, strict=True)]
        of_rights = [torch.zeros_like(right) if wants else None for right, wants in zip(self._rights, rights, strict=True)]
        for tile in self.plan.tiles:
            rows, columns = self._span(tile)
            logits, *slopes = self._kept.pop(tile) if tile in self._kept else self._logits(tile, slopes=True)
            softmax = torch.sub(logits, lse[rows, None], out=self._like(logits)).exp2_().mul_(gradient[rows, None])
            if self.mutual:
                softmax.add_(logits.sub_(lse[None, columns]).exp2_().mul_(gradient[None, columns]))
            for number, slope in enumerate(slopes):
                of_left, of_right = of_lefts[number], of_rights[number]
                along = slope.mul_(softmax)
                if of_left is not None:
                    gemm.times(along, self._rights[number][columns], of_left[rows])
                if of_right is not None:
                    gemm.turned(along, self._lefts[number][rows], of_right[columns])
        return [*of_lefts, *of_rights][: len(wanted)]

    def _span(self, tile: Tile) -> tuple[slice, slice]:
        start = self._starts[tile.panel]
        return slice(tile.top, tile.bottom), slice(start + tile.left, start + tile.right)

    def _like(self, tile: Tensor) -> Tensor:
        return self._scratch[: tile.numel()].view(tile.shape)


class ClosedBilinear(torch.autograd.Function):
    """What a pass that has run found, with gradient."""

    @staticmethod
    def forward(ctx: Any, run: Bilinear, *operands: Tensor) -> Tensor:
        """Returns the negatives' log-sum-exp, [N].

        Args:
            ctx: of autograd.
            run: that has run.
            operands: the anchors and their φ, [N, D], and the candidates and theirs, [M, D], where they are others.
        """
        ctx.run = run
        # Kept for what autograd checks: that nobody changed them in place, and that the graph is still there.
        ctx.save_for_backward(*operands)
        return run.lse * math.log(2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the operands."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        _ = ctx.saved_tensors
        # Tiles are float32 also where the backward pass is called inside an autocast region.
        with torch.autocast(gradients[0].device.type, enabled=False):
            return None, *ctx.run.backward(gradients[0], ctx.needs_input_grad[1:])
