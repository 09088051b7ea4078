"""The backward pass of a block: gradients of the sums of its rows to those of the rows themselves, and of what a map learns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.forward import EVERY, Pass
from tempplug.engine.sums import Addition, Sums, select
from tempplug.engine.tiles import Tile
from tempplug.engine.workers import in_order

# No sum of exp that is in range is less.
SMALLEST = 1e-30
Pair = tuple[Tensor | None, Tensor | None]


class Total:
    """A gradient [N, D], summed up from products of tiles."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self._sum: Tensor | None = None

    def add(self, rows: slice | None, product: Tensor) -> None:
        """Adds a product to some rows, to all of them where none are named."""
        if rows is None and self._sum is None:
            self._sum = product
            return
        select(self.whole(), rows).add_(product)

    def whole(self) -> Tensor:
        """Returns the gradient, which may be added to."""
        if self._sum is None:
            self._sum = torch.zeros_like(self.like)
        return self._sum


class Share:
    """How the gradient of a row's sum becomes the gradient of each of its summands.

    Args:
        sums: of the rows.
        gradient: [N] of the sums, or of their ``logarithm`` where `Pass.forward` returned that; None means 0.
        scale: of a linear map, whose slopes do not contain it; None of other maps.
        full: whether no sum is 0.

    Attributes:
        gradient: [N] that gradient, times the scale.
        factor: [N] what f' of a pair is multiplied by, for plain sums.
        lse: [N] base-2 logarithm of the sums, for sums relative to the largest logit.
    """

    def __init__(self, sums: Sums, gradient: Tensor | None, scale: Tensor | None, logarithm: bool, full: bool) -> None:
        upstream = torch.zeros_like(sums.sums) if gradient is None else gradient
        self.gradient = upstream if scale is None else upstream * scale
        if sums.most is not None:
            lse = sums.sums.log2().add_(sums.most)
            self.lse = lse.masked_fill_(lse == -math.inf, math.inf)  # a row without summands has no shares
        else:
            total = sums.sums if full else sums.sums.clamp(min=SMALLEST)
            self.factor = self.gradient / total if logarithm else self.gradient


def spread(of_rows: Tensor, of_columns: Tensor, tile: Tile) -> Tensor:
    """Returns the numbers of a tile's rows, [R, 1]; plus those of its columns where these are anchors as well, [R, C]."""
    rows = (of_rows if tile.rows is None else of_rows[tile.rows]).unsqueeze(1)
    if not tile.both:
        return rows
    return rows + (of_columns if tile.columns is None else of_columns[tile.columns])


class Backward:
    """One backward pass; names that begin with ``of_`` are gradients.

    ``gradients`` are those of what `Pass.forward` returned, None for 0; ``wants`` says whether those of anchors, candidates,
    the offset, and each thing that the map learns are wanted.

    Attributes:
        of_offset: the gradient of the offset, after `run`; None where it is not wanted.
        of_similarity: [N] gradient of the positives' similarities, that of their logits included where the map gives its slope.
        of_scaled: [N] gradient of the logits of positives that a linear map scales.
        negatives: share of each negative in the sum of its row.
        columns: share of each negative in the sum of its column, of a mirrored block; otherwise ``negatives``.
        positives: share of each positive in the sum of its row; None where positions give the one positive.
        of_class: [N] gradient of each positive's similarity, added by class sums; None unless labels give the positives.
        in_tiles: [N] the same, added tile by tile; None unless masks give the positives.
        one_set: whether the candidates are the anchors.
        triangle: whether a tile represents its mirror image as well, see `tempplug.engine.tiles.Tiling`.
        scaled: whether the gradient of a linear map's scale is wanted.
        out: the gradients of both factors of each product; None where not wanted, or where both are the same rows.
    """

    of_offset: Tensor | None = None

    def __init__(self, work: Pass, gradients: Sequence[Tensor | None], wants: Sequence[bool]) -> None:
        self.work = work
        self.of_similarity, of_logit, of_positive, of_negative, of_columns, self.of_top = gradients
        self.of_scaled = None
        if of_logit is not None and work.positive_slope is not None:
            of_pairs = of_logit * work.positive_slope
            self.of_similarity = of_pairs if self.of_similarity is None else of_pairs.add_(self.of_similarity)
            self.of_scaled, of_logit = of_logit, None
        roles, scale = work.roles, work.scale
        logarithm, paired = work.wanted.pair_function is None, roles.fewest_positives > 0
        full = roles.without_negatives is None and not work.terms
        self.negatives = self.columns = Share(work.negative, of_negative, scale, logarithm, full)
        if work.columns is not None:
            self.columns = Share(work.columns, of_columns, scale, logarithm, full)
        self.positives = self.of_logit = self.of_each = None
        if work.positive is not None:
            self.positives = Share(work.positive, of_positive, scale, logarithm, paired)
            self.of_logit = None if of_logit is None else of_logit / roles.positive_total
            self.of_each = None if self.of_similarity is None else self.of_similarity / roles.positive_total
        # Labels tell sums of positives without a product of the tile, in which a large summand would cost small ones digits.
        self.of_class, self.in_tiles = None, self.of_each
        if roles.anchor_labels is not None:
            self.of_class, self.in_tiles = self.of_each, None
        of_anchors, of_candidates, _, *of_learned = wants
        self.of_learned: list[Tensor | None] = [None] * len(of_learned)
        (anchors, candidates), *others = work.products
        self.one_set, self.triangle = candidates is anchors, work.tiling.triangle
        self.scaled = scale is not None and bool(self.of_learned)
        # The scale's gradient needs those of anchors and candidates apart.
        first, second = of_anchors or self.scaled, of_candidates or (self.scaled and self.one_set != self.triangle)
        self.out: list[tuple[Total | None, Total | None]] = [
            (Total(anchors) if first else None, Total(candidates) if second else None)
        ]
        for left, right in others:
            self.out.append((Total(left), None if left is right else Total(right)))

    def run(self) -> tuple[list[Pair], list[Tensor | None]]:
        """Returns the gradients of the anchors and candidates of each product, and those of what the map learns."""
        work = self.work
        for additions in in_order(self._products_of, work.tiling.tiles, work.threads):
            for add, rows, addend in additions:
                add(rows, addend)
        out = [(first.whole() if first else None, second.whole() if second else None) for first, second in self.out]
        (anchors, candidates), (of_left, of_right) = work.products[0], out[0]
        if self.scaled and work.scale is not None and of_left is not None:
            self.of_learned[0] = self._of_scale(work.scale, of_left, of_right)
        if self.one_set and of_left is not None and of_right is not None:
            of_left.add_(of_right)
        across = of_left if self.one_set else of_right
        if self.of_class is not None:
            factor = self.of_class.unsqueeze(1)
            if of_left is not None:
                of_left.addcmul_(work.roles.sums_of_class(anchors, candidates), factor)
            if across is not None:
                sums = work.roles.sums_of_anchors(anchors * factor)
                across[: len(sums)].add_(sums)
        elif work.marks is None and self.of_similarity is not None:
            self._add_pairs(self.of_similarity, of_left, across)
        return out, self.of_learned

    def _products_of(self, tile: Tile) -> list[Addition]:
        """Returns what a tile adds to each gradient."""
        work = self.work
        additions: list[Addition] = []
        if tile in work.saved:
            weights, slopes = work.saved.pop(tile)
            positive = None if work.marks is None else work.marks.positive(tile, weights)
        else:
            tile_values = work.tile(tile, summed=False)
            weights, slopes, positive = tile_values.weights, tile_values.slopes, tile_values.positive
            if work.folded and slopes:  # as where they are kept, to the last digit
                weights, slopes = weights.mul_(slopes[0]), ()
        weights = self._of_sums(tile, weights, positive)
        share = None if positive is None or work.marks is None else work.marks.share(tile, positive)
        if work.learns_offset:
            additions.append((self._add_offset, tile.rows, self._counted_once(tile, weights).sum(1)))
        self._add_others(tile, weights, share)
        if work.learned:
            additions.append((self._add_learned, None, self._of_what_is_learned(tile, self._counted_once(tile, weights))))
        for index, (left, right) in enumerate(work.products):
            along, (of_left, of_right) = weights * slopes[index] if slopes else weights, self.out[index]
            if share is not None and self.in_tiles is not None and index == 0:
                along = along.addcmul(spread(self.in_tiles, self.in_tiles, tile), share)
            if work.in_bfloat16:
                along = along.bfloat16()
            if of_left is not None:
                product = gemm.times(along, right if tile.columns is None else right[tile.columns])
                additions.append((of_left.add, tile.rows, product))
            across = of_left if (tile.both and self.triangle) or (self.one_set and of_right is None) else of_right
            if tile.transposed and across is not None:
                inner = along if tile.inner is None else along[:, tile.inner]
                product = gemm.times_transposed(inner, left if tile.rows is None else left[tile.rows])
                additions.append((across.add, tile.outer, product))
        return additions

    def _of_sums(self, tile: Tile, weights: Tensor, positive: Tensor | None) -> Tensor:
        """Returns the gradient of a tile's logits that comes from the sums, written over ``weights`` (f', or base-2 logits)."""
        if self.work.shifted:
            return self._softmaxes(tile, weights, positive)
        if positive is None or self.positives is None:
            return weights.mul_(spread(self.negatives.factor, self.columns.factor, tile))
        # A mark is 0 or 1, so this is exactly one of the two.
        at_negative, at_positive = (
            spread(self.negatives.factor, self.columns.factor, tile),
            spread(self.positives.factor, self.positives.factor, tile),
        )
        return weights.mul_(torch.lerp(at_negative, at_positive, positive))

    def _add_others(self, tile: Tile, weights: Tensor, share: Tensor | None) -> None:
        """Adds the gradients of mean logits and top logits to that of a tile's logits."""
        scale = self.work.scale
        if share is not None and self.of_logit is not None:
            weights.addcmul_(spread(self.of_logit, self.of_logit, tile), share)
        if self.of_top is not None:
            self._add_top(tile, weights, self.of_top if scale is None else self.of_top * scale.reshape(-1, 1))

    def _counted_once(self, tile: Tile, weights: Tensor) -> Tensor:
        """Returns a tile's weights, of pairs that the tile holds both ways round half of each."""
        if tile.inner is None or not (tile.both and self.triangle):
            return weights
        halved = weights.clone()
        halved[:, : tile.inner.start].mul_(0.5)
        return halved

    def _add_offset(self, rows: slice | None, gradient: Tensor) -> None:
        scale = self.work.scale
        if scale is not None:
            gradient = gradient / (select(scale, rows) if scale.ndim else scale)
        self.of_offset = gradient.sum() if self.of_offset is None else self.of_offset + gradient.sum()

    def _softmaxes(self, tile: Tile, logits: Tensor, positive: Tensor | None) -> Tensor:
        """Returns each pair's share in the sum of its row, and of its column if that is an anchor, times their gradients."""
        groups = [(logits, self.negatives, self.columns)]
        if positive is not None and self.positives is not None:
            marked = positive > 0
            at_negatives, at_positives = logits.masked_fill(marked, -math.inf), logits.masked_fill(~marked, -math.inf)
            groups = [(at_negatives, self.negatives, self.columns), (at_positives, self.positives, self.positives)]
        total: Tensor | None = None
        for logit, row, column in groups:
            softmax = (logit - select(row.lse, tile.rows)[:, None]).exp2_().mul_(select(row.gradient, tile.rows)[:, None])
            if tile.both:
                softmax.add_((logit - select(column.lse, tile.columns)).exp2_().mul_(select(column.gradient, tile.columns)))
            total = softmax if total is None else total.add_(softmax)
        return logits if total is None else total

    def _add_top(self, tile: Tile, weights: Tensor, gradient: Tensor) -> None:
        """Adds the gradient of the top logits to that of a tile's logits."""
        if self.work.top is None:
            raise RuntimeError("no top logits were found.")
        start = 0 if tile.columns is None else tile.columns.start
        place = select(self.work.top[2], tile.rows) - start
        inside = (place >= 0) & (place < weights.shape[1])
        weights.scatter_add_(1, place.clamp(0, weights.shape[1] - 1), select(gradient, tile.rows) * inside)

    def _of_what_is_learned(self, tile: Tile, weights: Tensor) -> tuple[Tensor | None, ...]:
        """Returns a tile's gradient of what the map learns, found by autograd."""
        (left, right), logit_map = self.work.factors, self.work.map
        similarity = gemm.outer(select(left, tile.rows), select(right, tile.columns))
        with torch.enable_grad():
            bound = logit_map if logit_map.uniform else logit_map.restrict(tile.rows or EVERY, tile.columns or EVERY)
            return torch.autograd.grad(bound.logit(similarity), self.work.learned, weights, allow_unused=True)

    def _add_learned(self, rows: None, gradients: tuple[Tensor | None, ...]) -> None:
        for number, gradient in enumerate(gradients):
            have = self.of_learned[number]
            self.of_learned[number] = gradient if have is None else have if gradient is None else have + gradient

    def _of_scale(self, scale: Tensor, of_left: Tensor, of_right: Tensor | None) -> Tensor:
        """Returns the gradient of the scale: Σ G_ij s_ij / scale, and Σ_j G_ij s_ij is the anchor times its own gradient."""
        anchors, candidates = self.work.products[0]
        along: Tensor = torch.linalg.vecdot(anchors, of_left)
        if self.triangle:  # a pair of the square is counted from both its ends; with hard negatives', so is every other
            if of_right is not None:
                along = along.sum() + torch.linalg.vecdot(candidates, of_right).sum()
            along = along / 2
        if self.in_tiles is not None and self.of_similarity is not None:  # what came that way has no scale in it
            positives = self.of_similarity * self.work.similarity
            along = along - positives if scale.ndim else along.sum() - positives.sum()
        of_scale = (along if scale.ndim else along.sum()) / scale
        if self.of_scaled is not None:
            positives = self.of_scaled * self.work.similarity
            of_scale = of_scale + (positives if scale.ndim else positives.sum())
        return of_scale

    def _add_pairs(self, gradient: Tensor, of_anchors: Tensor | None, of_candidates: Tensor | None) -> None:
        """Adds the gradient of the positive pairs' similarities to that of their two ends."""
        (anchors, candidates), roles = self.work.products[0], self.work.roles
        if roles.positives is None:
            raise RuntimeError("labels or masks decide which pairs are positives.")
        factor = gradient.unsqueeze(1)
        if of_anchors is not None and of_candidates is of_anchors:
            factor = factor + roles.partners(factor)  # each pair has both its ends among the anchors
        if of_anchors is not None:
            of_anchors.addcmul_(roles.partners(candidates), factor)
        if of_candidates is not None and of_candidates is not of_anchors:
            for start, stop, shift in roles.positives.runs:
                of_candidates[start + shift : stop + shift].addcmul_(anchors[start:stop], factor[start:stop])
