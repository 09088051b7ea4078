"""A block that fits one tile: from raw embeddings to row statistics and gradients in closed form, in place, in one function.

Small batches feel every operation, so nothing here is done twice: views are normalised as one matrix U, the anchors being its
first rows and the candidates its last; one product gives all similarities, the map turns them into exponentials and those into
weights W where they lie. With a_i the gradient of row i's sum, that of a similarity is

- G_ij = W_ij · a_i for rows alone;
- G_ij = W_ij · (a_i + b_j) where the columns are anchors as well: those of the other direction, or the rows themselves;

dU = G·U and Gᵀ·U, to which the positive pairs add theirs; its part along U is what normalisation takes away, and what a learned
scale has for a gradient. It must not know strategies or objectives.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.claims import holds
from tempplug.embeddings import ordinary
from tempplug.engine import gemm
from tempplug.engine.stream import exact
from tempplug.precision import at_least_float32, plain_precision
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import ClosedForm, Reduction, RowStatistics

# Numbers of the largest single tile, 4 MB in float32.
LARGEST = 1 << 20
# Of x/‖x‖ in one pass over memory: that of weights with a gain, here of unit rows with a gain of 1/‖x‖.
_normalised_backward = torch.ops.aten._weight_norm_interface_backward.default
# Sums of logits within this many powers of two need no look at whether they are exact.
SAFE = 90.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where in a single tile the roles are; made once for each shape.

    Attributes:
        roles: of the block, every anchor with one positive and at least one negative.
        mirrored: whether the columns are anchors of the other direction.
        rows: [N] numbers of the anchors.
        partners: [N] column of each anchor's positive: of a square another anchor's, else the anchors' numbers themselves.
        gaps: positions of single pairs that are no negatives.
        nothing: as many zeroes.
        blanks: rows and columns of blocks that hold none.
        ends: number of the first row behind each tensor of embeddings.
        ones: [N] positives of each anchor.
        counts: [N] negatives of each anchor.
        gain: see `gains`.
    """

    roles: PairRoles
    mirrored: bool
    rows: Tensor
    partners: Tensor
    gaps: Tensor
    nothing: Tensor
    blanks: tuple[tuple[slice, slice], ...]
    ends: tuple[int, ...]
    ones: Tensor
    counts: Tensor
    gain: Tensor

    def gains(self, rows: Tensor) -> Tensor:
        """Returns a 1 for each of all rows, [N (+ M), 1], of their precision."""
        return self.gain if self.gain.dtype == rows.dtype else self.gain.to(rows)


def find_places(roles: PairRoles, mirrored: bool, ends: tuple[int, ...]) -> Places | None:
    """Returns where the roles are; None where the block is no single tile, or an anchor misses its positive or negatives.

    None also where the candidates are others and row i's positive is not candidate i, which the tile takes for granted.

    Args:
        roles: of the block.
        mirrored: see `Places`.
        ends: see `Places`.
    """
    if roles.positives is None or roles.lonely is not None or roles.anchors * roles.candidates > LARGEST:
        return None
    if not roles.square and roles.positives.runs != ((0, roles.anchors, 0),):
        return None  # partners would not be the first candidates
    rows = torch.arange(roles.anchors)
    pairings = [each for each in (roles.positives, roles.ignored) if each is not None]
    blanks = [(slice(None), slice(0, roles.negatives_start))] if roles.negatives_start else []
    if roles.extra_start is not None and roles.extra_anchors < roles.anchors:
        blanks.append((slice(roles.extra_anchors, None), slice(roles.extra_start, None)))
    gaps = torch.cat([rows * roles.candidates + each.columns(rows) for each in pairings])
    return Places(
        roles=roles,
        mirrored=mirrored,
        rows=rows,
        partners=roles.positives.columns(rows),
        gaps=gaps,
        nothing=torch.zeros(gaps.shape),
        blanks=tuple(blanks),
        ends=ends,
        ones=roles.positive_count(),
        counts=roles.negative_count(),
        gain=torch.ones(ends[-1], 1),
    )


class SingleTile:
    """The block of one call, and what its backward pass needs.

    Args:
        places: of the roles.
        raw: [B, D] embeddings of one floating-point type: those of the anchors first, then the other candidates.

    Attributes:
        ordinary: whether all norms are numbers of an ordinary size; else nothing else is there.
        unit: [N (+ M), D] unit rows of everything.
        positive_similarity: [N].
        statistics: of the rows, and of the columns where they are anchors, after `read`.
        closed: row losses of each direction and their derivatives: for whoever knows the objective to add.
    """

    __slots__ = (
        "_pairs",
        "_scratch",
        "_values",
        "anchors",
        "candidates",
        "closed",
        "dtype",
        "form",
        "norm",
        "ordinary",
        "partners",
        "places",
        "positive_similarity",
        "statistics",
        "sums",
        "uniform",
        "unit",
    )

    def __init__(self, places: Places, raw: Sequence[Tensor]) -> None:
        self.places = places
        self.closed: list[ClosedForm] = []
        self.dtype = raw[0].dtype
        wide = at_least_float32(torch.cat([each.detach() for each in raw]))
        self.norm = norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        self.ordinary = ordinary(norm)
        if not self.ordinary:
            return
        self.unit = unit = wide.div_(norm)
        count, others = places.roles.anchors, places.roles.candidates
        self.anchors = unit if count == unit.shape[0] else unit[:count]
        self.candidates = unit if others == unit.shape[0] else unit[-others:]
        self._values: Tensor | None = gemm.outer(self.anchors, self.candidates)
        # Apart from the product, in which the one large summand would cost the small ones their last digits; so below.
        square = places.roles.square
        self.partners = unit.index_select(0, places.partners) if square else self.candidates[:count]
        self.positive_similarity = torch.linalg.vecdot(self.anchors, self.partners)

    @property
    def row_losses(self) -> Tensor:
        """Row losses, [N]: their mean over the directions."""
        first, *others = self.closed
        return (first[0] + others[0][0]) / 2 if others else first[0]

    def copy(self) -> SingleTile:
        """Returns a tile of the same similarities, for another map; to be made before `read`."""
        twin = copy.copy(self)
        twin._values = None if self._values is None else self._values.clone()
        return twin

    def read(self, logit_map: LogitMap) -> bool:
        """Computes the statistics; returns whether that was possible, and exact.

        Args:
            logit_map: of this batch, without gradient, of a class that `has_form`.
        """
        places, values, similarity = self.places, self._values, self.positive_similarity
        form = None if values is None else logit_map.tile_form(places.roles.candidates, values.dtype)
        if form is None or values is None:
            return False
        self.form = form
        self._scratch = torch.empty_like(values) if form.scratch else values
        self._exponentiate_(values)
        self.sums = [form.total(values.sum(1), places.counts)]
        if places.mirrored:
            self.sums.append(form.total(values.sum(0), places.counts))
        # Of moderate logits no sum can have lost anything; NaN is not moderate.
        if not (form.reach < SAFE or all(map(exact, self.sums))):
            return False
        self.uniform = logit_map.uniform and logit_map.symmetric
        self._pairs = logit_map if logit_map.uniform else logit_map.at(places.rows, places.partners, paired=True)
        logit = self._pairs.logit(similarity)
        self.statistics = [
            RowStatistics(logit, similarity, logit, form.logarithm(sums), places.ones, places.counts) for sums in self.sums
        ]
        return True

    def _exponentiate_(self, values: Tensor) -> None:
        scale = self.form.operand_scale
        if isinstance(scale, Tensor):
            values.mul_(scale[:, None])
        elif scale != 1:
            values.mul_(scale)
        self.form.exponentiate_(values, self._scratch)
        values.put_(self.places.gaps, self.places.nothing if values.dtype == torch.float32 else self.places.nothing.to(values))
        for rows, columns in self.places.blanks:
            values[rows, columns] = 0

    def _weights(self) -> Tensor:
        """Returns W, which whoever asks may overwrite."""
        values, self._values = self._values, None
        if values is None:  # a second backward pass
            values = gemm.outer(self.anchors, self.candidates)
            self._exponentiate_(values)
        self.form.weigh_(values, self._scratch)
        return values

    def _of_similarities(self, shares: int, weight: Tensor | None, turns: bool) -> tuple[Tensor, Tensor]:
        """Returns G [N, M], 0 at the positive pairs, and minus their gradients [N]; for the arguments see `gradients`."""
        form, count = self.form, self.anchors.shape[0]
        slope = form.slope / shares
        coefficients, pulls = [], []
        for (_, of_lse, of_logit), sums in zip(self.closed, self.sums, strict=True):
            if weight is not None:
                of_lse = of_lse * weight
            pull = of_lse * slope
            coefficients.append(pull / sums)
            if of_logit is not None:
                pull = of_logit * -slope if weight is None else of_logit * weight * -slope
            pulls.append(pull)
        pull = pulls[0] if len(pulls) == 1 else pulls[0] + pulls[1]
        if not form.straight:
            pull = pull * (self._pairs.slope(self.positive_similarity) / form.slope)
        values, rows = self._weights(), coefficients[0].unsqueeze(1)
        if not turns:
            values.mul_(rows + coefficients[1] if len(coefficients) > 1 else rows)
        elif values.shape[1] == count:
            values.mul_(rows + coefficients[0])
        else:
            values[:, :count].mul_(rows + coefficients[0])
            values[:, count:].mul_(rows)
        return values, pull

    def gradients(
        self,
        shares: int,
        factor: Tensor,
        weight: Tensor | None,
        scale: Tensor | None,
        last: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of the first raw rows, [last, D], and of the scale where one is given.

        Args:
            shares: what all gradients are divided by.
            factor: [], what they are multiplied by.
            weight: [N] gradient of each row's loss in units of ``factor``; None where all are 1.
            scale: the map's own where it is learned.
            last: rows of U whose gradient is wanted.
        """
        places, unit, norm, anchors, candidates = self.places, self.unit, self.norm, self.anchors, self.candidates
        everything, count = len(unit), len(anchors)
        first = everything - len(candidates)
        # With hard negatives, the gradient along U counts some pairs from both ends and some from one.
        turns = places.roles.square and self.uniform and (scale is None or everything == count)
        values, pull = self._of_similarities(shares, weight, turns)
        along = None
        if last == count and (turns or first):
            of_unit = of_anchors = gemm.times(values, candidates)
        else:
            of_unit = unit.new_empty(last, unit.shape[1])
            of_anchors = of_unit[:count]
            gemm.times(values, candidates, of_anchors, fresh=True)
            if first == 0 and not turns:
                if scale is not None:
                    along = torch.linalg.vecdot(anchors, of_anchors).sub_(pull * self.positive_similarity)
                gemm.turned(values[:, :count], anchors, of_anchors)
        if first == 0:  # each pair has both its ends among the anchors
            pull = pull + pull.take(places.partners)
        pull = pull.unsqueeze(1)
        of_anchors.addcmul_(self.partners, pull, value=-1)
        if last > count:
            columns = values if first == count and last == everything else values[:, count - first : last - first]
            of_others = of_unit[count:]
            gemm.turned(columns, anchors, of_others, fresh=True)
            if first:
                (of_others if last - count == count else of_others[:count]).addcmul_(anchors, pull, value=-1)
        ones = places.gains(unit)
        if last < everything:
            unit, norm, ones = unit[:last], norm[:last], ones[:last]
        of_raw, radial = _normalised_backward(of_unit, unit, factor / norm, ones, 0)
        if scale is None:
            return of_raw, None
        if along is None:
            along = radial.squeeze(1) / 2 if turns else radial[:count, 0]
        return of_raw, (along if scale.ndim else along.sum()) * factor / scale


def has_form(kind: type[LogitMap]) -> bool:
    """Returns whether a class of maps has an in-place form that no subclass has made untrue by another logit or slope."""
    return kind.tile_form is not LogitMap.tile_form and holds(kind, "tile_form", "logit", "slope")


class Closed(torch.autograd.Function):
    """The losses of a tile's rows, reduced, with their gradient in closed form."""

    @staticmethod
    def forward(ctx: Any, tile: SingleTile, reduction: Reduction, scale: Tensor | None, *raw: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            ctx: of autograd.
            tile: that was read, and whose losses are there.
            reduction: of the losses.
            scale: the map's own where it is learned.
            raw: as the tile's.
        """
        losses = tile.row_losses
        ctx.tile, ctx.scale = tile, None if scale is None else scale.detach()
        ctx.shares = len(tile.closed) * (losses.shape[0] if reduction == "mean" else 1)
        # Kept for what autograd checks: that the graph is still there.
        ctx.save_for_backward(tile.unit)
        if reduction == "mean":
            return losses.mean()
        return losses.sum() if reduction == "sum" else losses.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of scale and embeddings."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        if torch.is_autocast_enabled("cpu"):
            with plain_precision("cpu"):
                return Closed.backward(ctx, *gradients)
        _, (factor,), tile = ctx.saved_tensors, gradients, ctx.tile
        weight, ends = None, tile.places.ends
        if factor.ndim:
            # In units of the largest, because small temperatures leave no room in float32 for gradients far from 1.
            largest = factor.abs().amax()
            largest = torch.where(largest > 0, largest, 1.0)
            factor, weight = largest, factor / largest
        wants_scale, *needed = ctx.needs_input_grad[2:]
        last = ends[-1]
        if not needed[-1]:
            last = max([tile.anchors.shape[0], *(end for end, wanted in zip(ends, needed, strict=True) if wanted)])
        of_raw, of_scale = tile.gradients(ctx.shares, factor, weight, ctx.scale if wants_scale else None, last)
        if of_raw.dtype is not tile.dtype:
            of_raw = of_raw.to(tile.dtype)
        parts, start = [], 0
        for end, wanted in zip(ends, needed, strict=True):
            parts.append(of_raw[start:end] if wanted else None)
            start = end
        return None, None, of_scale, *parts
