"""Labels and masks of a small batch, from raw embeddings to the loss: what `several` computes between two normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.engine.raw import RawBlock
from tempplug.engine.several import Several, row_statistics
from tempplug.engine.tile_logits import logits_of
from tempplug.precision import number
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap


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
        self.statistics = [row_statistics(self.roles, logit_map, *run.found())]
        return True

    def gradients(
        self, shares: int, factor: Tensor, weight: Tensor | None, scale: Tensor | None, last: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of the first raw rows, and of the scale; see `RawBlock`."""
        run, count = self.run, self.roles.anchors
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
