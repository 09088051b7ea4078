"""Which candidate is positive, negative or ignored for which anchor, without an N×M mask where that can be avoided.

Layouts write these records, engines read them. Must not depend on logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class lazy(Generic[T]):
    """`functools.cached_property` without its lock, which no graph of `torch.compile` can hold before Python 3.12."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self._name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, instance: object, owner: type) -> T:
        """Returns the value; Python finds it without this method where it is kept already."""
        value = instance.__dict__[self._name] = self._function(instance)
        return value


@dataclass(frozen=True, slots=True)
class Pairing:
    """One candidate for every anchor, as runs along diagonals, which cost no memory and need no tensor.

    Attributes:
        runs: ``(start, stop, shift)``: anchors ``start`` to ``stop`` (excluded) go with candidate ``i + shift``. The runs
            cover all anchors in order; there are none where no candidate goes with any anchor.

    >>> Pairing(((0, 2, 2), (2, 4, -2))).columns(torch.tensor([0, 1, 2, 3]))
    tensor([2, 3, 0, 1])
    """

    runs: tuple[tuple[int, int, int], ...]

    def columns(self, rows: Tensor) -> Tensor:
        """Returns the candidate of each of these anchors, in the shape of ``rows``."""
        if not self.runs:
            return torch.full_like(rows, -1)
        columns = rows + self.runs[0][2]
        for start, _, shift in self.runs[1:]:
            columns = torch.where(rows >= start, rows + shift, columns)
        return columns


class Shape(NamedTuple):
    """The part of the roles of a block that positions decide, hashable.

    Attributes:
        start: the first candidate that may be a negative.
        behind: the first hard negative that only ``seeing`` anchors have, or that has no label; M where there is none.
        blanks: runs of pairs that are no negatives, as of `Pairing`.
    """

    anchors: int
    candidates: int
    start: int
    behind: int
    seeing: int
    blanks: tuple[tuple[int, int, int], ...]


@dataclass(kw_only=True, eq=False)
class PairRoles:
    """The roles of N anchors × M candidates; a pair that is neither positive nor negative is ignored.

    Attributes:
        anchors: N.
        candidates: M.
        positives: the anchor's only positive; None where labels or masks decide.
        ignored: the candidate that is the anchor itself; None where there is none.
        square: the first N candidates are the anchors themselves, in order.
        negatives_start: columns before it are never negatives (a queue's own keys).
        extra_start: columns from here on are hard negatives of the first ``extra_anchors`` anchors only.
        anchor_labels: [N] and
        candidate_labels: [M] classes: equal means positive, different negative.
        positive_mask: [N, M] boolean and
        negative_mask: [N, M] boolean roles.
        targets: [N, M] how much of an anchor's probability each candidate should have, at least 0: what has some is a positive,
            all others are negatives, and means over the positives are weighted by it. None where all positives count alike.
        total_of_targets: [N] their sum where they are those of one process in a ring, over the candidates of all.
        always_paired: whether every anchor has a positive whatever the labels are: the other view of its row.
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
    targets: Tensor | None = None
    total_of_targets: Tensor | None = None
    always_paired: bool = False

    @lazy
    def shape(self) -> Shape:
        """What positions decide of the pairs."""
        blanks = tuple(run for pairing in (self.positives, self.ignored) if pairing is not None for run in pairing.runs)
        behind = self.candidates if self.extra_start is None else self.extra_start
        if self.extra_anchors == self.anchors and not self.square and self.anchor_labels is None:
            behind = self.candidates
        return Shape(self.anchors, self.candidates, self.negatives_start, behind, self.extra_anchors, blanks)

    def negative(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns whether these pairs are negatives, in the broadcast shape of the two index tensors."""
        return ~self.not_negative(rows, columns)

    def not_negative(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns whether these pairs are no negatives, in the broadcast shape of the two index tensors."""
        conditions = [columns == pairing.columns(rows) for pairing in (self.positives, self.ignored) if pairing is not None]
        if self.negatives_start:
            conditions.append(columns < self.negatives_start)
        if self.anchor_labels is not None:
            conditions.append(self._same_label(rows, columns))
        if self.negative_mask is not None:
            conditions.append(~self.negative_mask[rows, columns])
        if self.targets is not None:
            conditions.append(self.targets[rows, columns] > 0)
        if self.extra_start is not None:
            conditions.append((columns >= self.extra_start) & (rows >= self.extra_anchors))
        return reduce(torch.logical_or, conditions)

    def positive(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns whether these pairs are positives, in the broadcast shape of the two index tensors."""
        if self.positive_mask is not None:
            return self.positive_mask[rows, columns]
        if self.targets is not None:
            return self.targets[rows, columns] > 0
        if self.positives is not None:
            return columns == self.positives.columns(rows)
        same_label = self._same_label(rows, columns)
        return same_label if self.ignored is None else same_label & (columns != self.ignored.columns(rows))

    @lazy
    def positive_columns(self) -> Tensor:
        """The candidate that is each anchor's only positive, [N]; -1 where there are none."""
        if self.positives is None:
            raise RuntimeError("labels or masks decide which pairs are positives.")
        return self.positives.columns(torch.arange(self.anchors, device=self.device))

    def partners(self, candidates: Tensor) -> Tensor:
        """Returns the rows of the candidates that are each anchor's only positive, [N, D]; of a single run as a view."""
        runs = () if self.positives is None else self.positives.runs
        if len(runs) != 1:
            return candidates.index_select(0, self.positive_columns)
        start, stop, shift = runs[0]
        return candidates if stop - start == candidates.shape[0] else candidates[start + shift : stop + shift]

    def positive_similarity(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Returns each anchor's mean product with its positives, by ``targets``, [N] (0 where it has none), detached."""
        if self.positives is not None:
            if not self.positives.runs:
                return anchors.new_zeros(self.anchors)
            return (anchors * self.partners(candidates)).sum(1)
        if self.anchor_labels is not None:
            sums = self.sums_of_class(anchors, candidates)
        else:
            # Bytes become floating point faster than booleans; some rows at a time, so that no square of them is there.
            weights = self.targets if self.positive_mask is None else self.positive_mask.view(torch.uint8)
            sums = torch.cat([some.to(candidates.dtype) @ candidates for some in torch.split(weights, 256)])  # type: ignore[arg-type]
        total: Tensor = torch.linalg.vecdot(anchors, sums)
        return total / self.positive_total

    def mean_over_positives(self, scores: Tensor) -> Tensor:
        """Returns each anchor's mean score over its positives, [N] (0 where it has none), of scores [N, M]."""
        if self.targets is not None:
            total: Tensor = torch.linalg.vecdot(scores, self.targets.to(scores.dtype))
            return total / self.positive_total
        positive = self.positive(*self.tile(slice(None), slice(None)))
        return torch.where(positive, scores, 0.0).sum(1) / self.positive_total

    @lazy
    def positive_count(self) -> Tensor:
        """The number of positives of each anchor, [N]; needs no N×M memory where no masks are given."""
        if self.positives is not None:
            return torch.full((self.anchors,), int(bool(self.positives.runs)), dtype=torch.int64, device=self.device)
        if self.positive_mask is not None:
            return _row_sums(self.positive_mask)
        if self.targets is not None:
            return torch.cat([(some > 0).sum(1) for some in torch.split(self.targets, 256)])
        return self._class_sizes - self._own

    @lazy
    def positive_total(self) -> Tensor:
        """What an anchor's sum over its positives is divided by for their mean, [N]: their targets' sum, else their number."""
        if self.targets is not None:
            total = self.targets.sum(1) if self.total_of_targets is None else self.total_of_targets
            return total.masked_fill(total == 0, 1.0)
        return self.positive_count if self.fewest_positives else self.positive_count.clamp(min=1)

    @lazy
    def negative_count(self) -> Tensor:
        """The number of negatives of each anchor, [N]; needs no N×M memory where no masks are given."""
        if self.negative_mask is not None:
            return _row_sums(self.negative_mask)
        if self.targets is not None:
            return self.candidates - self.positive_count
        end = self.candidates if self.extra_start is None else self.extra_start
        everywhere = end - self.negatives_start
        if self.anchor_labels is not None and self.extra_start is None:
            return everywhere - self._class_sizes
        count = torch.full((self.anchors,), everywhere, dtype=torch.int64, device=self.device)
        for start, stop, shift in self.shape.blanks if self.anchor_labels is None else ():
            start = max(start, self.negatives_start - shift)
            count[start : max(start, stop)] -= 1
        if self.extra_start is not None:
            count[: self.extra_anchors] += self.candidates - self.extra_start
        return count if self.anchor_labels is None else count - self._class_sizes

    def negatives_of(self, row: int) -> int:
        """Returns how many negatives this anchor has, where positions alone decide it, without the device."""
        end = self.candidates if self.extra_start is None or row < self.extra_anchors else self.extra_start
        count = end - self.negatives_start
        for pairing in (self.positives, self.ignored):
            for start, stop, shift in () if pairing is None else pairing.runs:
                count -= start <= row < stop and self.negatives_start <= row + shift
        return count

    @lazy
    def classes(self) -> tuple[Tensor, Tensor]:
        """The classes of anchors [N] and of candidates [M'], numbers below `_most_classes`; hard negatives have none."""
        if self.anchor_labels is None or self.candidate_labels is None:
            raise RuntimeError("these roles hold no labels.")
        alike = self.candidate_labels is self.anchor_labels
        labels = self.anchor_labels
        if not alike:
            labels = torch.cat([labels, self.candidate_labels[: self.extra_start]])
        low, high = torch.aminmax(labels) if labels.is_cpu else (None, None)
        if low is None or high is None or int(low) < 0 or int(high) >= self.candidates:
            # The place of the first equal one among the sorted labels: how many classes there are would wait for a device.
            labels = torch.searchsorted(labels.sort().values, labels)
        return (labels, labels) if alike else (labels[: self.anchors], labels[self.anchors :])

    def sums_of_class(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Returns for each anchor the sum of its positives among the candidates, [N, D], where labels decide which they are."""
        anchor_classes, candidate_classes = self.classes
        sums = candidates.new_zeros(self._most_classes, candidates.shape[1])
        sums = sums.index_add_(0, candidate_classes, candidates[: len(candidate_classes)]).index_select(0, anchor_classes)
        return sums if self.ignored is None else sums.sub_(anchors)  # an anchor is no positive of itself

    def sums_of_anchors(self, anchors: Tensor) -> Tensor:
        """Returns for each candidate with a label the sum of the anchors [N, D] that it is positive to, [M', D]."""
        anchor_classes, candidate_classes = self.classes
        sums = (
            anchors.new_zeros(self._most_classes, anchors.shape[1])
            .index_add_(0, anchor_classes, anchors)
            .index_select(0, candidate_classes)
        )
        for start, stop, shift in () if self.ignored is None else self.ignored.runs:
            sums[start + shift : stop + shift].sub_(anchors[start:stop])
        return sums

    @lazy
    def without_negatives(self) -> Tensor | None:
        """Which anchors have no negative, [N] booleans; None where all are known to have some without asking a device."""
        by_position = self.anchor_labels is None and self.negative_mask is None and self.targets is None
        # Where positions alone decide, the first anchor and the last stand for all.
        if by_position and self.negatives_of(0) and self.negatives_of(self.anchors - 1):
            return None
        if self.device.type == "cpu" and not by_position and self._fewest_negatives > 0:
            return None
        return self.negative_count == 0

    @lazy
    def fewest_positives(self) -> int:
        """The smallest number of positives of an anchor as far as it is known without waiting for the device, else 0."""
        if self.positives is not None:
            return int(bool(self.positives.runs))
        if self.device.type != "cpu":
            return int(self.always_paired)
        if self.anchor_labels is None:
            return int(self.positive_count.min())
        return int(self._class_sizes.min()) - self._own

    @lazy
    def _fewest_negatives(self) -> int:
        """The smallest number of negatives of an anchor; on CUDA, asking waits for the device."""
        if self.anchor_labels is None or self.extra_start is not None:
            return int(self.negative_count.min())
        return self.candidates - self.negatives_start - int(self._class_sizes.max())

    @lazy
    def _class_sizes(self) -> Tensor:
        """How many candidates share the label of each anchor, the anchor itself included."""
        anchors, candidates = self.classes
        if candidates.is_cpu:
            return torch.bincount(candidates, minlength=self.anchors + self.candidates).take(anchors)
        # As `bincount`, which waits for a device.
        counts = candidates.new_zeros(self._most_classes).index_add_(0, candidates, torch.ones_like(candidates))
        return counts.take(anchors)

    @property
    def _most_classes(self) -> int:
        """No class has a number as large as this: M, or N + M where anchors and candidates have labels of their own."""
        return self.candidates + (0 if self.candidate_labels is self.anchor_labels else self.anchors)

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
        # Of 32 bits, which are compared faster.
        row_index = torch.arange(self.anchors, dtype=torch.int32, device=self.device)[rows]
        column_index = torch.arange(self.candidates, dtype=torch.int32, device=self.device)[columns]
        return row_index[:, None], column_index[None, :]


def _row_sums(mask: Tensor) -> Tensor:
    """Returns how many of each row are True, [N]; bytes are summed several times faster than booleans."""
    return mask.view(torch.uint8).sum(1, dtype=torch.int32).long()


def _diagonal(*masks: Tensor) -> Pairing | None:
    """Returns the diagonal that a mask fills, found in its first row, or of two masks the one that neither has; else None."""
    rows, columns = masks[0].shape
    first = masks[0][0] if len(masks) == 1 else ~(masks[0][0] | masks[1][0])
    shift = int(first.view(torch.uint8).argmax())
    if shift + rows > columns:
        return None
    diagonals = [mask.diagonal(shift) for mask in masks]
    complete = diagonals[0].all() if len(masks) == 1 else ~(diagonals[0] | diagonals[1]).any()
    return Pairing(((0, rows, shift),)) if bool(complete) else None


def roles_of_masks(positive: Tensor, negative: Tensor) -> PairRoles:
    """Returns the roles that two disjoint masks [N, M] give, by position where possible: engines are fastest there.

    That is where row i is positive to candidate i, and all others are negatives except, at most, one more diagonal. Masks on
    another device than a CPU stay masks, because reading them would wait for the device.
    """
    roles = PairRoles(
        anchors=positive.shape[0],
        candidates=positive.shape[1],
        device=positive.device,
        positive_mask=positive,
        negative_mask=negative,
    )
    if not positive.is_cpu or int(roles.positive_count.max()) != 1 or int(roles.positive_count.min()) != 1:
        return roles
    pairs = _diagonal(positive)
    if pairs is None:
        return roles
    left_out = roles.anchors * (roles.candidates - 1) - int(roles.negative_count.sum())
    ignored = _diagonal(positive, negative) if left_out == roles.anchors else None
    if left_out and ignored is None:
        return roles
    return PairRoles(anchors=roles.anchors, candidates=roles.candidates, device=roles.device, positives=pairs, ignored=ignored)
