"""One block of similarities: anchors against candidates. A layout makes it, a call completes it, and an engine works on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from tempplug.embeddings import Selection
from tempplug.logit_map import LogitMap
from tempplug.roles import PairRoles
from tempplug.term_map import Keys, TermMap
from tempplug.types import Auxiliary, Batch, RowStatistics

# Set by the call, before anything reads them.
NO_TENSOR, NO_MAP, NO_BATCH = cast("Tensor", None), cast("LogitMap", None), cast("Batch", None)


@dataclass(slots=True, kw_only=True)
class Pairs:
    """One block of anchors × candidates, as a term sees it. Nothing here carries gradient.

    Attributes:
        anchors: [N, D] unit rows.
        candidates: [M, D] unit rows, of all processes.
        positive_similarity: [N] mean cosine similarity of each anchor and its positives.
        row_of_anchors: [N] number of the example that each anchor belongs to, among those of all processes.
        row_of_candidates: [M] likewise; -1 for candidates that belong to no example, such as those of a queue.
        hard: [M] which candidates are hard negatives; None where there are none.
        owned: whether hard negatives belong to examples, as those of shape [B, k, D] do.
        whole: whether the candidates are all that the anchors have. With ``gather="ring"`` they are those of one process, and
            ``main`` holds the positives among this process's own candidates: all of them, unless labels give the positives.
        of_anchors: returns an argument of the call that describes rows, by its name: [N, ...] of the anchors.
        of_candidates: the same of the candidates, [M, ...]; with ``of_row=True`` hard negatives [B, k, D] have the value of
            their row of view_a, unless the call gave theirs.
        main: the block that holds the positives of these anchors; None where it is this one.
    """

    anchors: Tensor
    candidates: Tensor
    roles: PairRoles
    positive_similarity: Tensor
    row_of_anchors: Tensor
    row_of_candidates: Tensor
    hard: Tensor | None = None
    owned: bool = True
    whole: bool = True
    of_anchors: Callable[..., Tensor]
    of_candidates: Callable[..., Tensor]
    main: Pairs | None = None

    def own(self) -> Keys:
        """Returns keys that are equal where a candidate belongs to the anchor's example: its positive, its hard negatives."""
        return Keys(self.row_of_anchors, self.row_of_candidates)


@dataclass(slots=True)
class Block:
    """One block of similarities, with all that a call knows of it.

    A layout sets the fields up to ``excluded``, and the call ``positive_similarity`` and the others before an engine sees the
    block.

    Attributes:
        of_anchors: [N, D] unit rows, at least float32.
        of_candidates: [M, D] unit rows; the same selection as ``of_anchors`` where the block is the square of one set.
        positive_similarity: [N] mean similarity of each anchor and its positives, without gradient.
        precision: of the raw embeddings; a GPU's matrix units need not keep more.
        scores: [N, M] similarities where the caller gives them; None where they are products of the rows.
        labels: [N] of the anchors, where the call has them, as the next two.
        index: [N].
        uncertainty: [N].
        name: of the block, of `tempplug.layouts.base.BLOCKS`; empty in layouts that have one kind of block.
        arguments: names of the arguments of the call whose rows are the anchors, and the candidates, in order.
        everyone: whether candidates among the views are those of all processes.
        paired: whether the block holds the positives of its anchors.
        mirrors_first: whether the block is the transpose of the call's first one: the same pairs the other way round.
        excluded: leaves out pairs that are negatives by ``roles``.
        keeps: whether an engine may keep what it found of each pair for the backward pass.
        alone: whether no other block of the call reads the rows, so that an engine may find the gradients of the raw ones.
        logit_map: of the strategy.
        batch: that the strategy saw.
        must_observe: whether the strategy still has to observe the batch.
        terms: of its negatives, without what the layout hides.
        pairs: what terms see of the block; None without terms.
        statistics: of the rows, without gradient, for the record; None where those of another block hold them.
    """

    of_anchors: Selection
    of_candidates: Selection
    roles: PairRoles
    positive_similarity: Tensor = NO_TENSOR
    precision: torch.dtype = torch.float32
    scores: Tensor | None = None
    labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | None = None
    name: str = ""
    arguments: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    everyone: bool = True
    paired: bool = True
    mirrors_first: bool = False
    excluded: tuple[TermMap, ...] = ()
    keeps: bool = True
    alone: bool = False
    logit_map: LogitMap = NO_MAP
    batch: Batch = NO_BATCH
    must_observe: bool = False
    terms: tuple[TermMap, ...] = ()
    pairs: Pairs | None = None
    statistics: RowStatistics | None = None

    @property
    def anchors(self) -> Tensor:
        """[N, D] unit rows with their graph."""
        return self.of_anchors.rows

    @property
    def candidates(self) -> Tensor:
        """[M, D] unit rows with their graph; the same tensor as ``anchors`` where the block is the square of one set."""
        return self.of_candidates.rows

    @property
    def detached(self) -> tuple[Tensor, Tensor]:
        """Anchors and candidates without gradient, one tensor where they are one."""
        return self.of_anchors.detached, self.of_candidates.detached

    def mirrored(self) -> Block:
        """Returns the transposed block: the candidates as anchors of the same pairs."""
        return Block(self.of_candidates, self.of_anchors, self.roles, self.positive_similarity, self.precision)

    def for_record(self, statistics: RowStatistics | None) -> Block:
        """Drops all that holds a graph, which the record of the call does not read; returns the block."""
        for rows in (self.of_anchors, self.of_candidates):
            rows.units = rows.graph = None
        self.batch, self.pairs, self.uncertainty = NO_BATCH, None, None
        if self.scores is not None:
            self.scores = self.scores.detach()
        self.logit_map = self.logit_map.detached()
        self.statistics = None if statistics is None else statistics.detached()
        return self

    def similarity(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns the similarities of pairs, [P]."""
        if self.scores is not None:
            return self.scores[rows, columns]
        return (self.anchors[rows] * self.candidates[columns]).sum(1)

    def term(self, terms: tuple[TermMap, ...], rows: Tensor, columns: Tensor, similarity: Tensor, paired: bool) -> Tensor:
        """Returns the sum of some terms of pairs, in the shape of their similarities."""
        total = torch.zeros_like(similarity)
        for term_map in terms:
            total = total + term_map.restrict(rows, columns, paired).term(similarity)
        return total


class BatchOfBlock(Batch):
    """What a strategy may read of a block; the graph of the rows is made where it reads them.

    ``similarity`` [G] holds the mean over each anchor's positives, 0 where it has none. ``paired`` [G] says which anchors have
    a positive (None: all); only `positive_similarity` selects these, because a selection waits for a device.
    """

    def __init__(self, block: Block, similarity: Tensor, paired: Tensor | None, rows_of_view_a: int) -> None:
        self._block, self._similarity, self._paired = block, similarity, paired
        self.of_view_a = rows_of_view_a if block.arguments[0][0] == "view_a" else 0
        self.labels, self.index, self.uncertainty, self.groups = block.labels, block.index, block.uncertainty, None

    @property
    def positive_similarity(self) -> Tensor:  # type: ignore[override]
        """As of `tempplug.Batch`; a single 0 where no anchor has a positive."""
        if self._paired is None:
            return self._similarity
        of_paired = self._similarity[self._paired]
        return of_paired if of_paired.numel() else self._similarity.new_zeros(1)

    @property
    def mean_positive_similarity(self) -> Tensor:
        """As of `tempplug.Batch`."""
        if self._paired is None:
            return self._similarity.mean()
        return self._similarity.sum() / self._paired.sum().clamp(min=1)

    @property
    def device(self) -> torch.device:
        """As of `tempplug.Batch`."""
        return self._similarity.device

    @property
    def dtype(self) -> torch.dtype:
        """As of `tempplug.Batch`."""
        return self._similarity.dtype

    @property
    def anchors(self) -> Tensor | None:  # type: ignore[override]
        """As of `tempplug.Batch`."""
        return None if self._block.scores is not None else self._block.anchors

    @property
    def candidates(self) -> Tensor | None:  # type: ignore[override]
        """As of `tempplug.Batch`."""
        return None if self._block.scores is not None else self._block.candidates


class AuxiliaryOfBlock(Auxiliary):
    """What an objective may read of a block."""

    def __init__(self, batch: Batch, second: RowStatistics | None, logit_map: LogitMap) -> None:
        self._batch, self.second, self.logit_map, self.observed = batch, second, logit_map, None

    @property
    def positive_similarity(self) -> Tensor:  # type: ignore[override]
        """As of `tempplug.Auxiliary`."""
        return self._batch.positive_similarity
