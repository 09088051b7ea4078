"""The forward pass of a block: tiles of logits to the sums of its rows.

Sums of exp are taken as they are while no logit is large, and around the largest logit of each row otherwise: both are exact,
the former has fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.engine import gemm, workers
from tempplug.engine.sums import LARGEST_LOGIT, LN2, Addition, Sums, select
from tempplug.engine.tiles import Marks, Tile, make_tiling
from tempplug.engine.workers import in_order
from tempplug.logit_map import LOG2E, LogitMap
from tempplug.pair_functions import PairFunction
from tempplug.roles import PairRoles
from tempplug.strategies.maps import ScaleMap
from tempplug.term_map import TermMap, WeightMap
from tempplug.types import Wanted

# Numbers that a pass keeps for its backward pass, 64 MiB in float32; of larger blocks the tiles are computed again.
KEPT = 16 << 20
# The same on a GPU, 1 GiB in float32.
GPU_KEPT = 256 << 20
EVERY = slice(None)


def at_positives(logit_map: LogitMap, roles: PairRoles) -> LogitMap:
    """Returns the map for similarities [N] of each anchor with its positive; with itself where it has several."""
    if logit_map.uniform:
        return logit_map
    rows = torch.arange(roles.anchors, device=roles.device)
    return logit_map.restrict(rows, rows if roles.positives is None else roles.positive_columns, paired=True)


def mixed(pair: PairFunction, logit: Tensor, share: Tensor, summed: bool = True, weighed: bool = True) -> tuple[Tensor, Tensor]:
    """Returns t·f(-l) + (1 - t)·f(l) of pairs with the share t, if ``summed``, and the derivative, if ``weighed``; else l."""
    opposite = -logit.masked_fill(share == 0, 0.0)  # a term may make the logit of a negative -inf
    value = torch.lerp(pair.value(logit), pair.value(opposite), share) if summed else logit
    return value, torch.lerp(pair.slope(logit), -pair.slope(opposite), share) if weighed else value


@dataclass(slots=True)
class Values:
    """What a tile [R, C] holds.

    Attributes:
        similarity: overwritten unless more than sums is wanted.
        logit: in nats, where they were computed.
        values: the summands, 0 where a pair has no role; with `Pass.shifted` base-2 logits, -inf without a role.
        weights: f' of each pair; with `Pass.shifted` the same logits.
        slopes: of the logits along each product.
        positive: 1 for positives and 0 for others; None where positions decide it.
        left_in: 1 for negatives that no term leaves out and 0 for others, where these are counted.
    """

    similarity: Tensor
    logit: Tensor | None
    values: Tensor
    weights: Tensor
    slopes: tuple[Tensor, ...]
    positive: Tensor | None
    left_in: Tensor | None = None


class Pass:
    """The forward pass of one block, and what its backward pass needs of it.

    ``learned`` carries gradient in the map; ``offset`` [] is added to all logits before the pair function. For the other
    arguments see `tiled_statistics`.

    Attributes:
        mean: [N] softmax-weighted mean similarity of the negatives, after `forward`, where it is wanted.
        count: [N] how many negatives no term leaves out, after `forward`; None where it is not wanted or there are no terms.
        products: rows whose products the map reads; the first are anchors and candidates, whose product is the similarity.
        in_bfloat16: whether products have factors in bfloat16, as the embeddings had.
        factors: what gives the similarities when multiplied.
        scale: of a linear map, whose gradient needs no tile; None of other maps.
        positive_slope: dl/ds of each row's positives, after `forward`, where it returns their logits; [] or [N].
        learned: what carries gradient in other maps: autograd finds their gradients tile by tile.
        marks: of positives given by labels or masks; None where positions give the one positive of each row.
        safe: whether sums of exp cannot overflow; otherwise `forward` checks the sums.
        shifted: whether sums are relative to the largest logit of each row, see `Sums`.
        needs_logits: whether logits themselves are wanted, and not their exponentials alone.
        folded: whether the slope is already multiplied into the weights that are kept.
        keeps: whether the backward pass finds weights and slopes of all tiles in ``saved``, and does not compute them again.
    """

    mean: Tensor | None = None
    positive_slope: Tensor | None = None
    count: Sums | None = None

    def __init__(
        self,
        block: Block,
        logit_map: LogitMap,
        learned: tuple[Tensor, ...],
        mirrored: bool,
        wanted: Wanted,
        terms: Sequence[TermMap],
        offset: Tensor | None,
    ) -> None:
        self.roles = roles = block.roles
        self.map, self.wanted, self.terms, self.mirrored = logit_map, wanted, terms, mirrored
        self.pair = wanted.pair_function
        self.learns_offset = offset is not None and offset.requires_grad
        self.offset = None if offset is None else offset.detach()
        rows = block.of_anchors.detached, block.of_candidates.detached
        anchors = rows[0]
        self.products = [rows]
        for left, right in logit_map.products:
            detached = left.detach()
            self.products.append((detached, detached if right is left else right.detach()))
        self.in_bfloat16 = gemm.in_bfloat16(anchors, block.precision)
        self.factors = gemm.split(rows) if self.in_bfloat16 else rows
        self.scale = logit_map.scale.detach() if isinstance(logit_map, ScaleMap) and logit_map.linear else None
        self.learned = () if self.scale is not None or logit_map.products else learned
        half = roles.square and logit_map.symmetric and not wanted.needs_pairs
        for term in terms:
            half = half and term.symmetric
        self.tiling = make_tiling(roles.shape, half, mirrored, anchors.device)
        self.marks = None if roles.positives is not None else Marks(roles, anchors.dtype)
        self.similarity = block.positive_similarity
        bound = logit_map.bound
        self.safe = self.pair is not None or (bound <= LARGEST_LOGIT and not terms)
        self.shifted = not self.safe and (not anchors.is_cpu or LARGEST_LOGIT < bound < math.inf)
        self.saved: dict[Tile, tuple[Tensor, tuple[Tensor, ...]]] = {}
        worth = anchors.is_cpu and self.tiling.pairs >= workers.WORTH_THREADS
        self.threads = torch.get_num_threads() if worth else 1

    def forward(self, keep: bool) -> tuple[Tensor | None, ...]:
        """Returns positive similarity, logit and sum, negative sum, that of the columns, [N] each, and top logits [N, k].

        ``keep`` says whether a backward pass will follow.
        """
        anchors, candidates = self.products[0]
        several = self.marks is not None
        self.negative = Sums(anchors.shape[0], anchors, self.shifted)
        self.positive = Sums(anchors.shape[0], anchors, self.shifted) if several else None
        self.columns = Sums(candidates.shape[0], anchors, self.shifted) if self.mirrored else None
        self.count = Sums(anchors.shape[0], anchors, False) if self.wanted.negative_count and self.terms else None
        self.logit = anchors.new_zeros(anchors.shape[0]) if several and not self.map.linear else None
        self.top: tuple[Tensor, Tensor, Tensor] | None = None
        self.needs_logits = self.shifted or self.wanted.needs_pairs or self.logit is not None
        # A single slope is multiplied into the weights that are kept, unless something needs the weights without it.
        needs_weights = several or self.shifted or self.learned or self.wanted.top or self.learns_offset
        self.folded = not (needs_weights or len(self.products) > 1)
        slopes = 0 if self.map.linear or self.folded else len(self.products)
        self.keeps = keep and self.tiling.pairs * (1 + slopes) <= (KEPT if anchors.is_cpu else GPU_KEPT)
        for additions in in_order(self._sums_of, self.tiling.tiles, self.threads):
            for add, rows, addend in additions:
                add(rows, addend)
        if not (self.safe or self.shifted):
            sums = [accumulator for accumulator in (self.negative, self.positive, self.columns) if accumulator is not None]
            if not all(accumulator.exact() for accumulator in sums):
                self.shifted, self.saved = True, {}
                return self.forward(keep)
        if self.wanted.negative_similarity:
            self.mean = self._mean_similarity()
        return self._results()

    def _sums_of(self, tile: Tile) -> list[Addition]:
        """Returns what a tile adds to each sum, and keeps what the backward pass needs of it."""
        tile_values, of_negatives = self.tile(tile, weighed=self.keeps), None
        additions: list[Addition] = []
        if tile_values.positive is not None and self.positive is not None:
            of_positives, of_negatives = self._parts(tile_values)
            self._add(additions, tile, self.positive, of_positives)
            if self.logit is not None and tile_values.logit is not None:
                # A term may make the logit of a negative -inf.
                logits = torch.where(tile_values.positive > 0, tile_values.logit, 0.0)
                if self.roles.targets is not None and self.marks is not None:
                    logits.mul_(self.marks.share(tile, tile_values.positive))
                additions.append((self._add_logits, tile.rows, logits.sum(1)))
                if tile.both and tile.transposed:
                    additions.append((self._add_logits, tile.outer, logits[:, tile.inner or EVERY].sum(0)))
        self._add(additions, tile, self.negative, tile_values.values if of_negatives is None else of_negatives, self.columns)
        if self.count is not None and tile_values.left_in is not None:
            self._add(additions, tile, self.count, tile_values.left_in)
        if self.wanted.top:
            additions.append((self._note_top, tile, tile_values))
        if self.keeps:
            if self.folded and tile_values.slopes:
                tile_values.weights, tile_values.slopes = tile_values.weights.mul_(tile_values.slopes[0]), ()
            self.saved[tile] = tile_values.weights, tile_values.slopes
        return additions

    @staticmethod
    def _add(additions: list[Addition], tile: Tile, sums: Sums, values: Tensor, of_columns: Sums | None = None) -> None:
        """Adds what a tile adds to the sums of its rows, and of its columns where these are anchors as well."""
        additions.append((sums.add, tile.rows, sums.of_tile(values, 1)))
        if tile.both and tile.transposed:
            across = values if tile.inner is None else values[:, tile.inner]
            additions.append(((of_columns or sums).add, tile.outer, sums.of_tile(across, 0)))

    def _add_logits(self, rows: slice | None, sums: Tensor) -> None:
        if self.logit is not None:
            select(self.logit, rows).add_(sums)

    def tile(self, tile: Tile, *, summed: bool = True, weighed: bool = True) -> Values:
        """Returns what a tile holds; of a pair function the values if ``summed``, and the weights if ``weighed``."""
        similarity = self._product(tile)
        bound = self.map if self.map.uniform else self.map.restrict(tile.rows or EVERY, tile.columns or EVERY)
        positive = None if self.marks is None else self.marks.positive(tile, similarity)
        terms, weights = self._terms_of(tile, similarity) if self.terms else ((), ())
        share = None if positive is None or self.marks is None else self.marks.share(tile, positive)
        tile_values = self._values(bound, similarity, positive, share, terms, summed, weighed)
        for weight in weights:
            tile_values.values.mul_(weight if positive is None else torch.lerp(weight, torch.ones_like(weight), positive))
        fill = -math.inf if self.shifted else 0.0
        self._blank_(tile_values.values, tile, fill)
        if tile_values.weights is not tile_values.values:
            self._blank_(tile_values.weights, tile, fill)
        if self.count is not None and summed:
            tile_values.left_in = self._left_in(tile_values, tile, terms, weights)
        return tile_values

    def _values(
        self,
        bound: LogitMap,
        similarity: Tensor,
        positive: Tensor | None,
        share: Tensor | None,
        terms: Sequence[Tensor],
        summed: bool,
        weighed: bool,
    ) -> Values:
        """Returns the summands of a tile before any is weighed or left out."""
        if self.pair is None and not (terms or self.needs_logits):
            values, *slopes = bound.exponential_and_slopes_(similarity)
            values = values.contiguous()
            return Values(similarity, None, values, values, tuple(slopes), positive)
        tile_values = self._from_logits(bound, similarity, positive, terms)
        if self.pair is not None and self.offset is not None:
            self._apply_(self.pair, self.offset, tile_values, share, summed, weighed)
        elif not self.shifted:
            tile_values.values.exp2_()
        return tile_values

    def _product(self, tile: Tile) -> Tensor:
        """Returns the similarities of a tile."""
        left, right = self.factors
        outer = gemm.outer if self.marks is None and len(self.products) == 1 else gemm.outer_in_short_chains
        return outer(left if tile.rows is None else left[tile.rows], right if tile.columns is None else right[tile.columns])

    def _left_in(self, tile_values: Values, tile: Tile, terms: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
        """Returns 1 for negatives of a tile that no term leaves out and 0 for other pairs."""
        left_in = torch.ones_like(tile_values.values) if tile_values.positive is None else 1 - tile_values.positive
        for mask in (*(weight > 0 for weight in weights), *(term > -math.inf for term in terms)):
            left_in.mul_(mask)
        self._blank_(left_in, tile, 0.0)
        return left_in

    def _terms_of(self, tile: Tile, similarity: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Returns what is added to the logits of a tile, and what its exponentials are multiplied by."""
        added: list[Tensor] = []
        weights: list[Tensor] = []
        for term in self.terms:
            of_tile = term.restrict(tile.rows or EVERY, tile.columns or EVERY)
            if isinstance(of_tile, WeightMap) and not (self.shifted or self.pair):
                weights.append(of_tile.weight(similarity))
            else:
                added.append(of_tile.term(similarity))
        return added, weights

    def _from_logits(self, bound: LogitMap, similarity: Tensor, positive: Tensor | None, terms: Sequence[Tensor]) -> Values:
        """Returns base-2 logits of a tile with its terms, as values and as weights."""
        # A term may be the similarity itself.
        values, *slopes = bound.logit_and_slopes_(similarity.clone() if self.wanted.needs_pairs or terms else similarity)
        values = values.contiguous()
        for term in terms:
            # Of a single positive, whose place is blank later, it does not matter.
            values.add_(term if positive is None else torch.where(positive > 0, 0.0, term), alpha=LOG2E)
        logit = values * LN2 if self.wanted.top or self.logit is not None else None
        return Values(similarity, logit, values, values, tuple(slopes), positive)

    @staticmethod
    def _apply_(
        pair: PairFunction, offset: Tensor, tile_values: Values, share: Tensor | None, summed: bool, weighed: bool
    ) -> None:
        """Puts f of logits in the place of base-2 logits, and f' in that of weights; of positives f(-l), by their share t."""
        shifted = torch.add(offset, tile_values.values, alpha=LN2, out=tile_values.values)
        if share is not None and share is not tile_values.positive:
            tile_values.values, tile_values.weights = mixed(pair, shifted, share, summed, weighed)
            return
        sign = None if tile_values.positive is None else tile_values.positive.mul(-2).add_(1)
        if sign is not None:
            shifted.mul_(sign)
        tile_values.values = pair.value(shifted).contiguous() if summed else shifted
        tile_values.weights = pair.slope(shifted).contiguous() if weighed else tile_values.values
        if sign is not None and weighed:
            tile_values.weights = tile_values.weights * sign

    def _blank_(self, numbers: Tensor, tile: Tile, value: float) -> None:
        """Writes a value over the pairs of a tile that have no role, or whose role positions decide."""
        if self.marks is not None:
            self.marks.blank_(numbers, tile, value)
        elif tile.blank is not None:
            numbers.view(-1).index_fill_(0, tile.blank, value)

    def _parts(self, tile_values: Values) -> tuple[Tensor, Tensor]:
        """Returns the values of positives and those of negatives, nothing elsewhere."""
        values, positive = tile_values.values, tile_values.positive
        if positive is None:
            raise RuntimeError("positions decide which pairs are positives.")
        if self.shifted:
            marked = positive > 0
            return values.masked_fill(~marked, -math.inf), values.masked_fill(marked, -math.inf)
        of_positives = values * positive
        return of_positives, values - of_positives

    def _note_top(self, tile: Tile, tile_values: Values) -> None:
        """Puts the most similar negatives of a tile among those of the tiles before."""
        rows = select(torch.arange(self.roles.anchors, device=self.similarity.device), tile.rows)
        start = 0 if tile.columns is None else tile.columns.start
        logit, similarity = tile_values.logit, tile_values.similarity
        if logit is None:
            raise RuntimeError("a pass with top logits has logits.")
        columns = torch.arange(start, start + logit.shape[1], device=logit.device)
        similarity = similarity.masked_fill(~self.roles.negative(rows[:, None], columns), -math.inf)
        wanted = min(self.wanted.top, self.roles.candidates - self.roles.negatives_start)
        if self.top is None:
            count = self.roles.anchors
            filled = similarity.new_full((count, wanted), -math.inf)
            self.top = filled, filled.clone(), torch.full((count, wanted), -1, device=logit.device)
        have = [select(tensor, tile.rows) for tensor in self.top]
        both = [torch.cat(pair, 1) for pair in zip(have, (similarity, logit, columns.expand_as(logit)), strict=True)]
        order = both[0].topk(wanted, 1).indices
        for whole, joined in zip(have, both, strict=True):
            whole.copy_(joined.gather(1, order))

    def _mean_similarity(self) -> Tensor:
        """Returns the softmax-weighted mean similarity of each row's negatives, [N]."""
        mean, lse = torch.zeros_like(self.negative.sums), self.negative.result(True)
        lse.masked_fill_(lse == -math.inf, math.inf)  # a row without negatives has no shares
        for tile in self.tiling.tiles:
            tile_values = self.tile(tile)
            values = tile_values.values if tile_values.positive is None else self._parts(tile_values)[1]
            row_lse = select(lse, tile.rows)[:, None]
            softmax = (values - row_lse / LN2).exp2_() if self.shifted else values * torch.exp(-row_lse)
            select(mean, tile.rows).add_(softmax.mul_(tile_values.similarity).sum(1))
        return mean

    def _results(self) -> tuple[Tensor | None, ...]:
        """Returns what `forward` does."""
        logit = None if self.logit is None else self.logit / self.roles.positive_total
        if self.scale is not None:
            logit, self.positive_slope = self.similarity * self.scale, self.scale
        elif self.roles.fewest_positives and self.marks is None and not (self.learned or self.map.products):
            # One evaluation gives both; autograd through the map would have another for the gradient.
            logit, self.positive_slope = at_positives(self.map, self.roles).logit_and_slopes_(self.similarity.clone())
            logit = logit * LN2
        logarithm = self.pair is None
        positive = None if self.positive is None else self.positive.result(logarithm)
        negative = self.negative.result(logarithm)
        columns = None if self.columns is None else self.columns.result(logarithm)
        # A copy, because a result that its own graph holds is not freed before the next collection.
        top = None if self.top is None else self.top[1].clone()
        return self.similarity.view_as(self.similarity), logit, positive, negative, columns, top
