"""Which candidate is positive, negative or ignored for which anchor, without an N×M mask where that can be avoided.

Layouts write these records, engines read them. Nothing here knows a logit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tempplug.once import once


@dataclass(frozen=True, slots=True)
class Pairing:
    """One candidate for every anchor, as runs along diagonals: it costs no memory, and engines need not look into tensors.

    Attributes:
        runs: ``(start, stop, shift)``: anchors ``start`` to ``stop`` (excluded) go with candidate ``i + shift``. The runs
            cover all anchors in order.

    >>> Pairing(((0, 2, 2), (2, 4, -2))).columns(torch.tensor([0, 1, 2, 3]))
    tensor([2, 3, 0, 1])
    """

    runs: tuple[tuple[int, int, int], ...]

    def columns(self, rows: Tensor) -> Tensor:
        """Returns the candidate of each of these anchors, in the shape of ``rows``."""
        columns = rows + self.runs[0][2]
        for start, _, shift in self.runs[1:]:
            columns = torch.where(rows >= start, rows + shift, columns)
        return columns


@dataclass(kw_only=True, eq=False)
class PairRoles:
    """The roles of N anchors × M candidates; a pair that is neither positive nor negative is ignored.

    Attributes:
        anchors: N.
        candidates: M.
        device: where index tensors live.
        positives: the anchor's only positive; None where labels or masks say it.
        ignored: the candidate that is the anchor itself; None where there is none.
        square: the first N candidates are the anchors themselves, in order.
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
    positives: Pairing | None = None
    ignored: Pairing | None = None
    square: bool = False
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
        for pairing in (self.positives, self.ignored):
            if pairing is not None:
                found = found & (columns != pairing.columns(rows))
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
        if self.positives is not None:
            return columns == self.positives.columns(rows)
        found = self._same_label(rows, columns)
        return found if self.ignored is None else found & (columns != self.ignored.columns(rows))

    def positive_count(self) -> Tensor:
        """Returns the number of positives of each anchor, [N]; needs no N×M memory where no masks are given."""
        return self._positive_count

    def negative_count(self) -> Tensor:
        """Returns the number of negatives of each anchor, [N]; needs no N×M memory where no masks are given."""
        return self._negative_count

    @once
    def positive_range(self) -> tuple[int, int]:
        """The smallest and the largest number of positives of an anchor; on CUDA, asking waits for the device."""
        if self.positives is None and self.positive_mask is None:
            least, most = self._class_size_range
            return least - self._own, most - self._own
        return _range(self.positive_count())

    @once
    def fewest_negatives(self) -> int:
        """The smallest number of negatives of an anchor; on CUDA, asking waits for the device."""
        if self.anchor_labels is None or self.extra_start is not None:
            return int(self.negative_count().min())
        return self.candidates - self.negatives_start - self._class_size_range[1]

    @once
    def _positive_count(self) -> Tensor:
        if self.positives is not None:
            return torch.ones(self.anchors, dtype=torch.int64, device=self.device)
        if self.positive_mask is not None:
            return _row_sums(self.positive_mask)
        return self._class_sizes - self._own

    @once
    def _negative_count(self) -> Tensor:
        if self.negative_mask is not None:
            return _row_sums(self.negative_mask)
        end = self.candidates if self.extra_start is None else self.extra_start
        everywhere = end - self.negatives_start
        if self.anchor_labels is not None and self.extra_start is None:
            return everywhere - self._class_sizes
        somewhere: list[tuple[int, int, int]] = []
        for pairing in (self.positives, self.ignored):
            if pairing is None or self.anchor_labels is not None:
                continue
            if all(start + shift >= self.negatives_start for start, _, shift in pairing.runs):
                everywhere -= 1
            else:
                somewhere += pairing.runs
        count = torch.full((self.anchors,), everywhere, dtype=torch.int64, device=self.device)
        for start, stop, shift in somewhere:
            start = max(start, self.negatives_start - shift)
            count[start : max(start, stop)] -= 1
        if self.extra_start is not None:
            count[: self.extra_anchors] += self.candidates - self.extra_start
        return count if self.anchor_labels is None else count - self._class_sizes

    def negatives_of(self, row: int) -> int:
        """Returns how many negatives this anchor has, where positions alone decide it; asks nothing of the device."""
        end = self.candidates if self.extra_start is None or row < self.extra_anchors else self.extra_start
        count = end - self.negatives_start
        for pairing in (self.positives, self.ignored):
            for start, stop, shift in () if pairing is None else pairing.runs:
                count -= start <= row < stop and self.negatives_start <= row + shift
        return count

    def classes(self) -> tuple[Tensor, Tensor]:
        """Returns the classes of anchors [N] and of candidates [M'], numbers from 0 to M; hard negatives have none."""
        return self._classes

    @once
    def _classes(self) -> tuple[Tensor, Tensor]:
        if self.anchor_labels is None or self.candidate_labels is None:
            raise RuntimeError("these roles hold no labels.")
        alike = self.candidate_labels is self.anchor_labels
        labels = self.anchor_labels
        if not alike:
            labels = torch.cat([labels, self.candidate_labels[: self.extra_start]])
        low, high = torch.aminmax(labels)
        if int(low) < 0 or int(high) >= self.candidates:
            _, labels = torch.unique(labels, return_inverse=True)
        return (labels, labels) if alike else (labels[: self.anchors], labels[self.anchors :])

    @once
    def lonely(self) -> Tensor | None:
        """Which anchors have no negative, [N] booleans; None where positions say that all have some."""
        by_position = self.anchor_labels is None and self.negative_mask is None
        # Where positions alone decide, the first anchor and the last stand for all.
        if by_position and self.negatives_of(0) and self.negatives_of(self.anchors - 1):
            return None
        return self.negative_count() == 0

    @once
    def _class_sizes(self) -> Tensor:
        """How many candidates share the label of each anchor, the anchor itself included."""
        anchors, candidates = self._classes
        return torch.bincount(candidates, minlength=self.anchors + self.candidates).take(anchors)

    @once
    def _class_size_range(self) -> tuple[int, int]:
        return _range(self._class_sizes)

    @property
    def _own(self) -> int:
        """How many of its class an anchor is not positive to: itself, where it is among the candidates."""
        return 0 if self.ignored is None else 1

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


def _range(counts: Tensor) -> tuple[int, int]:
    least, most = torch.aminmax(counts)
    return int(least), int(most)


def _row_sums(mask: Tensor) -> Tensor:
    """Returns how many of each row are True, [N]; bytes are summed several times faster than booleans."""
    return mask.view(torch.uint8).sum(1, dtype=torch.int32).long()


def _diagonal(*masks: Tensor) -> Pairing | None:
    """Returns the diagonal of a mask that holds True in every row, the first one by its first row; None where it does not.

    Of two masks it is the diagonal that neither of them has.
    """
    rows, columns = masks[0].shape
    first = masks[0][0] if len(masks) == 1 else ~(masks[0][0] | masks[1][0])
    shift = int(first.view(torch.uint8).argmax())
    if shift + rows > columns:
        return None
    diagonals = [mask.diagonal(shift) for mask in masks]
    complete = diagonals[0].all() if len(masks) == 1 else ~(diagonals[0] | diagonals[1]).any()
    return Pairing(((0, rows, shift),)) if bool(complete) else None


def roles_of_masks(positive: Tensor, negative: Tensor) -> PairRoles:
    """Returns the roles that two masks say, by position where both are diagonals: engines are fastest there.

    So it is where row i is positive to candidate i, and all others are negatives but, at most, one more diagonal.

    Args:
        positive: [N, M] boolean.
        negative: [N, M] boolean, True nowhere where ``positive`` is.
    """
    roles = PairRoles(
        anchors=positive.shape[0],
        candidates=positive.shape[1],
        device=positive.device,
        positive_mask=positive,
        negative_mask=negative,
    )
    own = _diagonal(positive)
    if own is None or int(roles.positive_count().sum()) != roles.anchors:
        return roles
    left_out = roles.anchors * (roles.candidates - 1) - int(roles.negative_count().sum())
    ignored = _diagonal(positive, negative) if left_out == roles.anchors else None
    if left_out and ignored is None:
        return roles
    return PairRoles(anchors=roles.anchors, candidates=roles.candidates, device=roles.device, positives=own, ignored=ignored)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of similarities, all that an engine needs beside the logit map.

    Attributes:
        anchors: [N, D] unit rows, at least float32.
        candidates: [M, D] unit rows; the same tensor as ``anchors`` where the block is the square of one set.
        roles: of the N×M pairs.
        positive_similarity: [N] mean similarity of each anchor and its positives, without gradient.
        precision: of the raw embeddings, which is as much as a GPU's matrix units need to keep of them.
    """

    anchors: Tensor
    candidates: Tensor
    roles: PairRoles
    positive_similarity: Tensor
    precision: torch.dtype

    def mirrored(self) -> Block:
        """Returns the transposed block: the candidates as anchors of the same pairs."""
        return replace(self, anchors=self.candidates, candidates=self.anchors)
