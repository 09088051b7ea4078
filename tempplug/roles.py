"""Which candidate is positive, negative or ignored for which anchor, without an N×M mask where that can be avoided.

Layouts write these records, engines read them. Nothing here knows a similarity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRoles:
    """The roles of N anchors × M candidates; a pair that is neither positive nor negative is ignored.

    Attributes:
        anchors: N.
        candidates: M.
        device: where index tensors live.
        positive_index: [N] column of the anchor's only positive; None where labels or masks say it.
        ignored_index: [N] column that is the anchor itself; None where there is none.
        negatives_start: columns before it are never negatives (a queue's own keys).
        extra_start: columns from here on are hard negatives, seen by the first ``extra_anchors`` anchors only.
        extra_anchors: how many anchors see them.
        anchor_labels: [N] and
        candidate_labels: [M] classes: equal means positive, different negative.
        positive_mask: [N, M] boolean and
        negative_mask: [N, M] boolean roles.
    """

    anchors: int
    candidates: int
    device: torch.device
    positive_index: Tensor | None = None
    ignored_index: Tensor | None = None
    negatives_start: int = 0
    extra_start: int | None = None
    extra_anchors: int = 0
    anchor_labels: Tensor | None = None
    candidate_labels: Tensor | None = None
    positive_mask: Tensor | None = None
    negative_mask: Tensor | None = None

    def negative(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns whether these pairs are negatives, in the broadcast shape of the two index tensors."""
        found = columns >= self.negatives_start
        if self.positive_index is not None:
            found = found & (columns != self.positive_index[rows])
        if self.ignored_index is not None:
            found = found & (columns != self.ignored_index[rows])
        if self.anchor_labels is not None:
            found = found & ~self._same_label(rows, columns)
        if self.negative_mask is not None:
            found = found & self.negative_mask[rows, columns]
        if self.extra_start is not None:
            found = found & ((columns < self.extra_start) | (rows < self.extra_anchors))
        return found

    def positive(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns whether these pairs are positives, in the broadcast shape of the two index tensors."""
        if self.positive_mask is not None:
            return self.positive_mask[rows, columns]
        if self.positive_index is not None:
            return columns == self.positive_index[rows]
        found = self._same_label(rows, columns)
        return found if self.ignored_index is None else found & (columns != self.ignored_index[rows])

    def _same_label(self, rows: Tensor, columns: Tensor) -> Tensor:
        if self.anchor_labels is None or self.candidate_labels is None:
            raise RuntimeError("these roles hold no labels.")
        same = self.anchor_labels[rows] == self.candidate_labels[columns]
        return same if self.extra_start is None else same & (columns < self.extra_start)

    def tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """Returns the index tensors [R, 1] and [1, C] of a tile, for `negative` and `positive`."""
        row_index = torch.arange(self.anchors, device=self.device)[rows]
        column_index = torch.arange(self.candidates, device=self.device)[columns]
        return row_index[:, None], column_index[None, :]
