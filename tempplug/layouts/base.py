"""What every layout is made of: the rows of a call, the blocks that it makes of them, and the base of all layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from tempplug.block import NO_TENSOR, Block
from tempplug.distributed import Rows
from tempplug.embeddings import Selection, UnitRows
from tempplug.errors import ConfigError, ShapeError
from tempplug.options import Configured
from tempplug.roles import Pairing, PairRoles
from tempplug.term_map import Keys, LeftOut, TermMap
from tempplug.transforms import shared


class Sizes(NamedTuple):
    """What the blocks of a call depend on beside its layout.

    Attributes:
        rows: B, of view_a on this process.
        candidates: how many each view has.
        place: where the rows of this process begin among the candidates of each view; None where they are not there.
        hard: how many hard negatives there are.
        owned: whether they belong to rows of view_a.
        queue: K.
        two_views: whether the call has view_b.
        targets: whether the call says which candidates are positives, and how much, by ``targets``.
        one_process: whether the candidates are those of one process, which has no others.
    """

    rows: int
    candidates: int
    place: int | None
    hard: int
    owned: bool
    queue: int
    two_views: bool
    one_process: bool
    device: torch.device
    targets: bool = False


@dataclass(slots=True)
class Views:
    """The unit embeddings of a call, and what describes their rows.

    Attributes:
        own: rows of this process.
        everyone: rows of every process (the same object without gathering), or of one.
        rows: how those of view_a are distributed over the processes.
        precision: dtype of the raw embeddings.
        plan: the blocks of the call as far as sizes decide them; None where other processes take part.
        hard_rows: [H] number of the example that each hard negative belongs to, among those of all processes; None where they
            came without rows, [H, D].
        hard_mask: [H] which hard negatives exist; None for all.
        targets: [N, M] of each block, by its name.
        scores: [N, M] similarities of the caller in place of products of the rows, which then have no dimension.
        row_arguments: other arguments on rows, by their name and that of the embeddings: of this process and of all.
        chunk: of a ring: the process whose rows alone the candidates are; None for all processes.
        hard_sizes: of a ring: how many hard negatives each process has.
    """

    own: UnitRows
    everyone: UnitRows
    rows: Rows
    device: torch.device
    precision: torch.dtype = torch.float32
    plan: tuple[BlockPlan, ...] | None = None
    hard_rows: Tensor | None = None
    hard_mask: Tensor | None = None
    labels: Tensor | None = None
    all_labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | tuple[Tensor, Tensor] | None = None
    positive_mask: Tensor | None = None
    negative_mask: Tensor | None = None
    targets: Mapping[str, Tensor] | None = None
    scores: Tensor | None = None
    row_arguments: dict[str, dict[str, tuple[Tensor, Tensor]]] = field(default_factory=dict)
    chunk: int | None = None
    hard_sizes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """B, rows of view_a on this process."""
        return self.rows.sizes[self.rows.rank]

    @property
    def start(self) -> int:
        """The number of the example of the first candidate of each view, among those of all processes."""
        return 0 if self.chunk is None else sum(self.rows.sizes[: self.chunk])

    def sizes(self) -> Sizes:
        """Returns what the blocks of the call depend on."""
        rows, chunk, spans = self.rows, self.chunk, self.everyone.order.spans
        count, place = (rows.total, rows.offset) if chunk is None else (rows.sizes[chunk], 0 if chunk == rows.rank else None)
        hard, queue = (spans[name][1] - spans[name][0] if name in spans else 0 for name in ("hard_negatives", "queue"))
        two, alone = "view_b" in self.own.order.spans, rows.world == 1
        owned, targets = self.hard_rows is not None, self.targets is not None
        return Sizes(self.size, count, place, hard, owned, queue, two, alone, self.device, targets)

    def parts_of(self, block: Block) -> tuple[list[Part], list[Part]]:
        """Returns the parts of the anchors and of the candidates of a block."""
        of_anchors, of_candidates = block.arguments
        return [self.part(name, False) for name in of_anchors], [self.part(name, block.everyone) for name in of_candidates]

    def numbers(self, part: Part) -> Tensor:
        """Returns the number of the example of each row of a part, -1 where it belongs to none."""
        if part.name == "hard_negatives" and self.hard_rows is not None:
            return self.hard_rows
        if part.name in ("queue", "hard_negatives"):
            return torch.full((part.size,), -1, device=self.device)
        start = self.start if part.everyone else self.rows.offset
        return torch.arange(start, start + part.size, device=self.device)

    def unit_rows(self, name: str, everyone: bool) -> UnitRows:
        """Returns where the rows of an argument lie: those of views of all processes or of this one."""
        return self.everyone if everyone or name in ("queue", "hard_negatives") else self.own

    def part(self, name: str, everyone: bool) -> Part:
        """Returns an argument of the call as a part of a block."""
        start, stop = self.unit_rows(name, everyone).order.spans[name]
        return Part(name, stop - start, everyone or name not in ("view_a", "view_b"))

    def select(self, names: tuple[str, ...], everyone: bool) -> Selection:
        """Returns the rows of some arguments, one behind the other."""
        units = self.everyone if everyone else self.own
        # a queue lies between the views and the hard negatives, also where a block of a ring leaves it out
        parted = "queue" in units.order.spans and "queue" not in names and names[-1] == "hard_negatives" and len(names) > 1
        if not parted and (units is self.everyone or not {"queue", "hard_negatives"} & {*names}):
            return Selection(units, units.order.spans[names])
        lying = [(self.unit_rows(name, everyone), name) for name in names]
        return Selection(None, rows=torch.cat([unit_rows.rows(*unit_rows.order.spans[name]) for unit_rows, name in lying]))


class Part(NamedTuple):
    """Rows of one argument of the call among the anchors or candidates of a block; ``everyone``: those of all processes."""

    name: str
    size: int
    everyone: bool = True


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A block as far as the sizes of a call decide it.

    Attributes:
        anchors: names of the arguments whose rows are the anchors.
        candidates: names of those whose rows are the candidates, in the order of the call's rows.
        roles: which pairs are positives and negatives; None where values decide it, see `PairLayout.roles`.
        own_hard: whether an anchor has the hard negatives of its own row alone.
        excludes_own: whether no candidate of an anchor's own example is its negative.

    The other fields are as of `Block`.
    """

    anchors: tuple[str, ...]
    candidates: tuple[str, ...]
    roles: PairRoles | None
    name: str = ""
    everyone: bool = True
    own_hard: bool = False
    paired: bool = True
    mirrors_first: bool = False
    excludes_own: bool = False


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
        row_arguments: names of arguments on rows that decide its roles, such as ``keys``.
        blocks: names of the blocks, where there are several kinds.
        joint: whether all blocks of a call belong to the softmax of one row.
    """

    kind: ClassVar[str] = "layout"
    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    one_view: ClassVar[bool] = False
    joins_views: ClassVar[bool] = False
    by_position: bool = False
    gathers: ClassVar[bool] = True
    rings: ClassVar[bool] = False
    takes_scores: bool = False
    row_arguments: frozenset[str] = frozenset()
    blocks: tuple[str, ...] = ()
    joint: bool = False

    @abstractmethod
    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the blocks of calls of these sizes, that of the positives first.

        Raises:
            ShapeError: the call lacks rows that the layout needs.
        """

    def roles(self, views: Views, plan: BlockPlan) -> PairRoles:
        """Returns the roles of a block whose plan holds none: those that values of the call decide."""
        raise NotImplementedError(f"{type(self).__name__} must implement roles(views, plan), or plan the roles of every block.")

    def build(self, views: Views) -> list[Block]:
        """Returns the blocks, that of the positives first."""
        blocks = []
        for block_plan in views.plan or plan_of(self, views.sizes()):
            blocks.append(self._block(views, block_plan))
        return blocks

    def _block(self, views: Views, plan: BlockPlan) -> Block:
        """Returns a planned block of the rows of the call; raises for one uncertainty for the anchors of two views."""
        anchors, candidates = plan.anchors, plan.candidates
        roles = self.roles(views, plan) if plan.roles is None else plan.roles
        local, everyone = views.own, views.everyone
        of_anchors = of_candidates = Selection(local, local.order.spans[anchors])
        if anchors != candidates or (local is not everyone and plan.everyone):
            of_candidates = views.select(candidates, plan.everyone)
        labels, index, uncertainty = views.labels, views.index, views.uncertainty
        if uncertainty is not None:
            uncertainty = self._uncertainty(uncertainty, anchors)
        if len(anchors) > 1:
            if labels is not None:
                labels = torch.cat([labels, labels]) if roles.anchor_labels is None else roles.anchor_labels
            index = None if index is None else torch.cat([index, index])
        block = Block(
            of_anchors,
            of_candidates,
            roles,
            NO_TENSOR,
            views.precision,
            views.scores,
            labels,
            index,
            uncertainty,
            plan.name,
            (anchors, candidates),
            plan.everyone,
            plan.paired,
            plan.mirrors_first,
        )
        if views.scores is not None and plan.name == "ba":
            block.scores = views.scores[:, : views.size].T
        if (plan.own_hard or views.hard_mask is not None) and "hard_negatives" in candidates:
            block.excluded = _excluded(views, block, plan.own_hard)
        if plan.excludes_own:
            of_rows, of_columns = (torch.cat([views.numbers(part) for part in parts]) for parts in views.parts_of(block))
            block.excluded = (*block.excluded, LeftOut(Keys(of_rows, of_columns)))
        return block

    def lacks_second(self) -> ShapeError:
        """Returns the error for a call without view_b."""
        return ShapeError(f"layout '{self.name}' needs view_b beside view_a; scores in place of embeddings go to from_scores.")

    def _uncertainty(self, uncertainty: Tensor | tuple[Tensor, Tensor], anchors: tuple[str, ...]) -> Tensor:
        """Returns the uncertainty of the anchors, the rows of the views with these names."""
        if isinstance(uncertainty, tuple):
            of_views = [uncertainty[view == "view_b"] for view in anchors]
            return of_views[0] if len(of_views) == 1 else torch.cat(of_views)
        if "view_b" in anchors:
            raise ShapeError(
                f"uncertainty must be a pair (of view_a, of view_b) where layout '{self.name}' has anchors of both."
            )
        return uncertainty


@shared
def plan_of(layout: PairLayout, sizes: Sizes) -> tuple[BlockPlan, ...]:
    """Returns the plan of a layout for calls of these sizes; raises as `PairLayout.plan`."""
    return layout.plan(sizes)


def plan_of_hard_negatives(sizes: Sizes, name: str = "", own_hard: bool = False) -> BlockPlan:
    """Returns the block of view_a's rows against hard negatives alone: those of another process."""
    roles = PairRoles(anchors=sizes.rows, candidates=sizes.hard, device=sizes.device, positives=Pairing(()))
    return BlockPlan(("view_a",), ("hard_negatives",), roles, name, everyone=False, own_hard=own_hard)


def _excluded(views: Views, block: Block, own_hard: bool) -> tuple[TermMap, ...]:
    """Returns what hides hard negatives, the last part, that are absent or of another row."""
    of_anchors, (*before, hard) = views.parts_of(block)
    rows = torch.cat([views.numbers(part) for part in of_anchors])
    seen = views.numbers(hard) if own_hard else torch.full((hard.size,), -1, device=views.device)
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
