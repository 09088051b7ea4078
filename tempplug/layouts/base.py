"""What every layout is made of: the rows of a call, the blocks that it makes of them, and the base of all layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.distributed import Rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.options import Configured
from tempplug.roles import Pairing, PairRoles
from tempplug.term_map import Keys, LeftOut, TermMap


@dataclass(slots=True, kw_only=True)
class Views:
    """The unit embeddings of a call. ``all_*`` hold the rows of every process (the same tensors without gathering), or of one.

    Layouts whose anchors are both views read them as one tensor, ``joined`` [2B, D] (view_a's rows first) and ``all_joined``
    [2G, D], the others one by one.

    Attributes:
        size: B, rows of view_a on this process.
        rows: of all processes.
        precision: dtype of the raw embeddings.
        candidates: rows of view_b, queue and hard negatives in this order, where they are one tensor.
        hard_rows: [H] number of the example that each hard negative belongs to, among those of all processes; None where they
            came without rows, [H, D].
        hard_mask: [H] which hard negatives exist; None for all.
        scores: [N, M] similarities of the caller in place of products of the rows, which then have no dimension.
        row_arguments: other arguments on rows, by their name and that of the embeddings: of this process and of all.
        chunk: of a ring: the process whose rows alone the candidates are; None for all processes.
        hard_sizes: of a ring: how many hard negatives each process has.
        start: number of the example of the first candidate of each view, among those of all processes.
        count: how many candidates each view has.
        place: where the rows of this process begin among the candidates of each view; None where they are not there.
    """

    size: int
    rows: Rows
    device: torch.device
    precision: torch.dtype = torch.float32
    view_a: Tensor | None = None
    all_a: Tensor | None = None
    view_b: Tensor | None = None
    all_b: Tensor | None = None
    candidates: Tensor | None = None
    joined: Tensor | None = None
    all_joined: Tensor | None = None
    queue: Tensor | None = None
    hard_negatives: Tensor | None = None
    hard_rows: Tensor | None = None
    hard_mask: Tensor | None = None
    labels: Tensor | None = None
    all_labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | tuple[Tensor, Tensor] | None = None
    positive_mask: Tensor | None = None
    negative_mask: Tensor | None = None
    scores: Tensor | None = None
    row_arguments: dict[str, dict[str, tuple[Tensor, Tensor]]] = field(default_factory=dict)
    chunk: int | None = None
    hard_sizes: tuple[int, ...] = ()
    start: int = field(init=False)
    count: int = field(init=False)
    place: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.set_rows(self.rows)

    def set_rows(self, rows: Rows) -> None:
        """Sets which rows of all processes are candidates."""
        self.rows = rows
        if self.chunk is None:
            self.start, self.count, self.place = 0, rows.total, rows.offset
        else:
            self.start, self.count = sum(rows.sizes[: self.chunk]), rows.sizes[self.chunk]
            self.place = 0 if self.chunk == rows.rank else None

    def parts_of(self, block: Block) -> tuple[list[Part], list[Part]]:
        """Returns the parts of the anchors and of the candidates of a block."""
        of_anchors, of_candidates = block.arguments
        return [self.part(each, False) for each in of_anchors], [self.part(each, block.everyone) for each in of_candidates]

    def numbers(self, part: Part) -> Tensor:
        """Returns the number of the example of each row of a part, -1 where it belongs to none."""
        if part.name == "hard_negatives" and self.hard_rows is not None:
            return self.hard_rows
        if part.name in ("queue", "hard_negatives"):
            return torch.full((part.size,), -1, device=self.device)
        start = self.start if part.everyone else self.rows.offset
        return torch.arange(start, start + part.size, device=self.device)

    def rows_of(self, name: str, everyone: bool = True) -> Tensor | None:
        """Returns the rows of an argument of the call by its name, those of views of all processes or of this one."""
        if name == "view_a":
            return self.all_a if everyone else self.view_a
        if name == "view_b":
            return self.all_b if everyone else self.view_b
        return self.queue if name == "queue" else self.hard_negatives

    def part(self, name: str, everyone: bool) -> Part:
        """Returns an argument of the call as a part of a block."""
        if name in ("view_a", "view_b"):
            rows = self.view_b if name == "view_b" else None
            return Part(name, self.count if everyone else self.size if rows is None else rows.shape[0], everyone)
        rows = self.rows_of(name)
        return Part(name, 0 if rows is None else rows.shape[0])


class Part(NamedTuple):
    """Rows of one argument of the call among the anchors or candidates of a block; ``everyone``: those of all processes."""

    name: str
    size: int
    everyone: bool = True


class PairLayout(Configured, ABC):
    """Builds the blocks of a call.

    Attributes:
        takes: the optional arguments that this layout reads. ``labels``, ``index`` and ``uncertainty`` it passes on to
            strategies, which declare what they read; an argument that is not read is refused.
        one_view: whether a call may have no view_b.
        joins_views: whether the anchors are the rows of both views, view_a's first.
        by_position: whether sizes alone decide all roles, so that a graph can hold them.
        gathers: whether the layout has a meaning across processes.
        rings: whether `build` takes the candidates of one process at a time, see ``chunk`` of `Views`.
        takes_scores: whether similarities of view_a's rows with candidates are all that it needs.
        blocks: names of the blocks, where there are several kinds.
        joint: whether all blocks of a call belong to the softmax of one row.
    """

    kind: ClassVar[str] = "layout"
    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    one_view: ClassVar[bool] = False
    joins_views: ClassVar[bool] = False
    by_position: ClassVar[bool] = False
    gathers: ClassVar[bool] = True
    rings: ClassVar[bool] = False
    takes_scores: bool = False
    blocks: tuple[str, ...] = ()
    joint: bool = False

    @abstractmethod
    def build(self, views: Views) -> list[Block]:
        """Returns the blocks, that of the positives first."""

    def direction(
        self,
        views: Views,
        anchors: tuple[str, ...],
        candidates: tuple[str, ...],
        roles: PairRoles,
        *,
        everyone: bool = True,
        own_hard: bool = False,
        **options: Any,
    ) -> Block:
        """Returns a block of rows of the call, whose anchors and candidates are given by the names of the arguments.

        Hard negatives, the last candidates, may be absent in the call. With ``everyone`` the candidates among the views are
        those of all processes; with ``own_hard`` an anchor has the hard negatives of its own row alone.

        Raises:
            ShapeError: the call has no view_b, or one uncertainty for the anchors of two views.
        """
        several, extra = len(anchors) > 1, candidates[len(anchors) :]
        if views.hard_negatives is None and "hard_negatives" in extra:
            candidates, extra = candidates[:-1], extra[:-1]
        if several:
            rows, others = views.joined, views.all_joined
        else:
            rows, others = views.rows_of(anchors[0], False), views.rows_of(candidates[0], everyone)
        if rows is None or others is None:
            raise self.lacks_second()
        if extra and views.candidates is not None and candidates[0] == "view_b":
            others = views.candidates  # the same rows, which are one tensor already
        elif extra:
            others = torch.cat([others, *(each for each in map(views.rows_of, extra) if each is not None)])
        labels, index, uncertainty = views.labels, views.index, views.uncertainty
        if uncertainty is not None:
            uncertainty = self._uncertainty(uncertainty, anchors)
        if several:
            if labels is not None:
                labels = torch.cat([labels, labels]) if roles.anchor_labels is None else roles.anchor_labels
            index = None if index is None else torch.cat([index, index])
        # Without gradient, and one tensor where they are one.
        own = rows.detach()
        block = Block(
            rows,
            others,
            (own, own if others is rows else others.detach()),
            roles,
            precision=views.precision,
            labels=labels,
            index=index,
            uncertainty=uncertainty,
            arguments=(anchors, candidates),
            everyone=everyone,
            **options,
        )
        if views.scores is not None:
            block.scores = views.scores if block.name != "ba" else views.scores[:, : views.size].T
        if (own_hard or views.hard_mask is not None) and "hard_negatives" in candidates:
            block.excluded = _excluded(views, block, own_hard)
        return block

    def of_hard_negatives(self, views: Views, **options: Any) -> Block:
        """Returns the block of view_a's rows against hard negatives alone: those of another process."""
        roles = PairRoles(anchors=views.size, candidates=hard_count(views), device=views.device, positives=Pairing(()))
        return self.direction(views, ("view_a",), ("hard_negatives",), roles, everyone=False, **options)

    def lacks_second(self) -> ShapeError:
        """Returns the error for a call without view_b."""
        return ShapeError(f"layout '{self.name}' needs view_b beside view_a.")

    def _uncertainty(self, given: Tensor | tuple[Tensor, Tensor], anchors: tuple[str, ...]) -> Tensor:
        """Returns the uncertainty of the anchors, the rows of the views with these names."""
        if isinstance(given, tuple):
            found = [given[view == "view_b"] for view in anchors]
            return found[0] if len(found) == 1 else torch.cat(found)
        if "view_b" in anchors:
            raise ShapeError(
                f"uncertainty must be a pair (of view_a, of view_b) where layout '{self.name}' has anchors of both."
            )
        return given


def hard_count(views: Views) -> int:
    """Returns how many hard negatives there are."""
    return 0 if views.hard_negatives is None else views.hard_negatives.shape[0]


def _excluded(views: Views, block: Block, own: bool) -> tuple[TermMap, ...]:
    """Returns what hides hard negatives, the last part, that are absent or of another row."""
    of_anchors, (*before, hard) = views.parts_of(block)
    rows = torch.cat([views.numbers(part) for part in of_anchors])
    seen = views.numbers(hard) if own else torch.full((hard.size,), -1, device=views.device)
    there = torch.ones_like(seen, dtype=torch.bool) if views.hard_mask is None else views.hard_mask
    # Behind -1 every anchor sees a candidate, behind -2 none does.
    seen = torch.cat([seen.new_full((sum(part.size for part in before),), -1), seen.masked_fill(~there, -2)])
    return (LeftOut(Keys(rows, seen), equal=False, spared=seen == -1),)


BLOCKS = ("ab", "aa", "ba", "bb")
"""Blocks of the layout ``cross-view``: view_a's rows are anchors in ``ab`` and ``aa``, view_b's in ``ba`` and ``bb``."""


def read_blocks(where: str, written: str, separator: str = "/") -> tuple[str, ...]:
    """Returns the names of blocks in a word such as ``ab/aa``; raises `ConfigError` for another name, or one twice."""
    names = tuple(written.split(separator))
    if not set(names) <= set(BLOCKS) or len(set(names)) < len(names):
        raise ConfigError(f"{where} must be some of {', '.join(BLOCKS)}, each once, joined by '{separator}'.")
    return names
