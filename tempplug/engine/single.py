"""A block with one positive an anchor that fits one tile: row statistics and gradients in closed form, in place.

Small batches feel every operation, so nothing here is done twice: one product gives all similarities, the map turns them into
exponentials and those into weights W where they lie. With a_i the gradient of row i's sum, that of a similarity is

- G_ij = W_ij · a_i for rows alone;
- G_ij = W_ij · (a_i + b_j) where the columns are anchors as well: those of the other direction, or the rows themselves;

dU = G·U and Gᵀ·U, to which the positive pairs add theirs. It must not know strategies or objectives.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from tempplug.claims import holds
from tempplug.engine import gemm
from tempplug.engine.raw import LARGEST, RawBlock
from tempplug.engine.stream import exact
from tempplug.precision import number
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import ClosedForm, RowStatistics

# Pairs of the largest tile that is multiplied by 1 and 0: what multiplies is at hand in a call anyway, what puts zeroes is not.
MULTIPLIED = 1 << 14
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
        blanks: rows and columns of blocks that hold none.
        sizes: rows of each tensor of embeddings.
        ones: [N] positives of each anchor.
        counts: [N] negatives of each anchor.
        kept: [N, M] 1 for negatives and 0 for all others; None of tiles of more than `MULTIPLIED` pairs.
    """

    roles: PairRoles
    mirrored: bool
    rows: Tensor
    partners: Tensor
    gaps: Tensor
    blanks: tuple[tuple[slice, slice], ...]
    sizes: tuple[int, ...]
    ones: Tensor
    counts: Tensor
    kept: Tensor | None


def find_places(roles: PairRoles, mirrored: bool, sizes: tuple[int, ...]) -> Places | None:
    """Returns where the roles are; None where the block is no single tile, or an anchor misses its positive or negatives.

    None also where the candidates are others and row i's positive is not candidate i, which the tile takes for granted.

    Args:
        roles: of the block.
        mirrored: see `Places`.
        sizes: see `Places`.
    """
    pairs = roles.anchors * roles.candidates
    if roles.positives is None or roles.lonely is not None or pairs > LARGEST:
        return None
    if not roles.square and roles.positives.runs != ((0, roles.anchors, 0),):
        return None  # partners would not be the first candidates
    rows = torch.arange(roles.anchors, device="cpu")
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
        blanks=tuple(blanks),
        sizes=sizes,
        ones=roles.positive_count(),
        counts=roles.negative_count(),
        kept=roles.negative(*roles.tile(slice(None), slice(None))).float() if pairs <= MULTIPLIED else None,
    )


class SingleTile(RawBlock):
    """The tile of one call, and what its backward pass needs.

    Args:
        places: of the roles.
        raw: as of `RawBlock`.
    """

    _values: Tensor | None = None

    def __init__(self, places: Places, raw: Sequence[Tensor]) -> None:
        roles = places.roles
        super().__init__(roles, places.sizes, raw)
        self.places, self.mirrored = places, places.mirrored
        if not self.ordinary:
            return
        # Apart from the product, in which the one large summand would cost the small ones their last digits; so below.
        if roles.square:
            self.partners = self.unit.index_select(0, places.partners)
        else:
            self.partners = self.candidates if roles.candidates == roles.anchors else self.candidates[: roles.anchors]
        self.positive_similarity = torch.linalg.vecdot(self.anchors, self.partners)

    def copy(self) -> SingleTile:
        """Returns a tile of the same similarities, for another map; to be made before `read`."""
        twin = copy.copy(self)
        self._values = gemm.outer(self.anchors, self.candidates)
        twin._values = self._values.clone()
        return twin

    def read(self, logit_map: LogitMap) -> bool:
        """Computes the statistics; returns whether that was possible, and exact."""
        places, similarity = self.places, self.positive_similarity
        form = logit_map.tile_form(places.roles.candidates, similarity.dtype)
        if form is None:
            return False
        self.form = form
        self._values = values = self._exponentials(self._values)
        self.sums = [values.sum(1), values.sum(0)] if places.mirrored else [values.sum(1)]
        if not form.straight:
            self.sums = [form.total(sums, places.counts) for sums in self.sums]
        # Of moderate logits no sum can have lost anything; NaN is not moderate.
        if not (form.reach < SAFE or all(map(exact, self.sums))):
            return False
        self.uniform = logit_map.uniform and logit_map.symmetric
        self._pairs = logit_map if logit_map.uniform else logit_map.at(places.rows, places.partners, paired=True)
        logit = self._pairs.logit(similarity)
        self.statistics = []
        for sums in self.sums:
            lse = form.logarithm(sums)
            self.statistics.append(RowStatistics(logit, similarity, logit, lse, places.ones, places.counts))
        return True

    def _exponentials(self, values: Tensor | None = None) -> Tensor:
        """Returns u, 0 where a pair is no negative, in the place of the similarities where those are there already."""
        form, places = self.form, self.places
        if values is None:
            values = gemm.outer(self.anchors, self.candidates)
        self._scratch = torch.empty_like(values) if form.scratch else values
        form.scale_(values)
        form.exponentiate_(values, self._scratch)
        if places.kept is not None:
            return values.mul_(places.kept)
        values.view(-1).index_fill_(0, places.gaps, 0)
        for rows, columns in places.blanks:
            values[rows, columns] = 0
        return values

    def gradients(
        self, shares: int, factor: Tensor, weight: Tensor | None, scale: Tensor | None, last: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of the first raw rows, and of the scale; see `RawBlock`."""
        form, values = self.form, self._values
        if values is None:  # a second backward pass
            values = self._exponentials()
        self._values = None  # overwritten below
        if not form.straight:
            form.weigh_(values, self._scratch)
        slope = form.slope / shares
        if form.constant and not isinstance(slope, Tensor):
            slope = number(slope, values.dtype)
        of_rows, pull = _shares(self.closed[0], self.sums[0], slope, weight)
        of_columns = None
        if self.mirrored:
            of_columns, other_pull = _shares(self.closed[1], self.sums[1], slope, weight)
            pull = pull + other_pull
        if not form.straight:
            pull = pull * (self._pairs.slope(self.positive_similarity) / form.slope)
        if self.places.roles.square:
            of_unit, along = self._of_square(values, of_rows, pull, scale is not None, last)
        else:
            of_unit, along = self._of_others(values, of_rows, of_columns, pull, last), None
        of_raw, radial = self._of_raw(of_unit, factor)
        if scale is None:
            return of_raw, None
        if along is None:  # where one product holds both ends of every pair, each is there twice
            along = (radial / 2 if self.places.roles.square else radial[: self.anchors.shape[0]]).squeeze(1)
        return of_raw, (along if scale.ndim else along.sum()) * factor / scale

    def _of_square(self, values: Tensor, own: Tensor, pull: Tensor, scaled: bool, last: int) -> tuple[Tensor, Tensor | None]:
        """Returns the gradient of the first rows of U where the anchors are candidates, and what of it is the scale's.

        Args:
            values: [N, M] W, overwritten.
            own: [N] a.
            pull: [N] minus the gradients of the similarities of the positive pairs.
            scaled: whether the part of each anchor's own row along U is wanted, [N]; None says it is half of all along U.
            last: how many rows.
        """
        unit, anchors = self.unit, self.anchors
        count, rows, along = own.shape[0], own.unsqueeze(1), None
        alone = unit.shape[0] == count
        # With hard negatives, the gradient along U counts some pairs from both ends and some from one.
        turns = self.uniform and (alone or not scaled)
        if not turns:
            values.mul_(rows)
        elif alone:
            values.mul_(rows + own)
        else:
            values[:, :count].mul_(rows + own)
            values[:, count:].mul_(rows)
        both = pull + pull.index_select(0, self.places.partners)  # each positive pair has both its ends among the anchors
        if turns and last == count:
            of_unit = of_anchors = gemm.times(values, unit)
        else:
            of_unit = unit.new_empty(last, unit.shape[1])
            of_anchors = of_unit[:count]
            gemm.times(values, unit, of_anchors, True)
            if not turns:
                if scaled:
                    along = torch.linalg.vecdot(anchors, of_anchors).sub_(pull * self.positive_similarity)
                gemm.turned(values[:, :count], anchors, of_anchors)
            if last > count:
                gemm.turned(values[:, count:last], anchors, of_unit[count:], True)
        of_anchors.addcmul_(self.partners, both.unsqueeze(1), value=-1)
        return of_unit, along

    def _of_others(self, values: Tensor, of_rows: Tensor, of_columns: Tensor | None, pull: Tensor, last: int) -> Tensor:
        """Returns the gradient of the first rows of U where the candidates are others; a and b, else as `_of_square`."""
        anchors, rows, pull = self.anchors, of_rows.unsqueeze(1), pull.unsqueeze(1)
        count, wanted = anchors.shape[0], last - anchors.shape[0]
        values.mul_(rows if of_columns is None else rows + of_columns)
        if not wanted:
            return gemm.times(values, self.candidates).addcmul_(self.partners, pull, value=-1)
        of_unit = anchors.new_empty(last, anchors.shape[1])
        of_anchors, of_others = of_unit.split_with_sizes((count, wanted))
        gemm.times(values, self.candidates, of_anchors, True).addcmul_(self.partners, pull, value=-1)
        gemm.turned(values if wanted == values.shape[1] else values[:, :wanted], anchors, of_others, True)
        (of_others if wanted == count else of_others[:count]).addcmul_(anchors, pull, value=-1)
        return of_unit


def _shares(closed: ClosedForm, sums: Tensor, slope: Tensor | float, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns a of a direction, and minus the gradients of its positive pairs' similarities, [N] each."""
    _, of_lse, of_logit = closed
    if weight is not None:
        of_lse = of_lse * weight
    pull = of_lse * slope
    of_sums = pull / sums
    if of_logit is not None:
        pull = (of_logit if weight is None else of_logit * weight) * -slope
    return of_sums, pull


@cache
def has_form(kind: type[LogitMap]) -> bool:
    """Returns whether a class of maps has an in-place form that no subclass has made untrue by another logit or slope."""
    return kind.tile_form is not LogitMap.tile_form and holds(kind, "tile_form", "logit", "slope")
