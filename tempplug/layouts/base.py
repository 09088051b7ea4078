"""What every layout is made of: the rows of a call, the blocks that it makes of them, and the base of all layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from tempplug.distributed import Rows
from tempplug.errors import ShapeError
from tempplug.negatives.base import Keys, LeftOut, TermMap
from tempplug.options import Configured
from tempplug.roles import PairRoles


@dataclass(slots=True, kw_only=True)
class Views:
    """The unit embeddings of a call. ``all_*`` hold the rows of every process (the same tensors without gathering).

    Layouts whose anchors are both views get them as one tensor, ``joined`` [2B, D] (view_a's rows first) and ``all_joined``
    [2G, D], the others one by one.

    Attributes:
        candidates: rows of view_b, queue and hard negatives, one behind the other, where they are one tensor.
        size: B, rows of view_a on this process.
        rows: how those of all processes lie.
        device: of everything.
        precision: dtype of the raw embeddings.
        hard_rows: [H] number of the example that each hard negative belongs to, among those of all processes; None where they
            came without rows, [H, D].
        hard_mask: [H] which hard negatives there are; None for all.
        scores: [N, M] similarities of the caller, in place of those of the rows, which then have no dimension; None without.
        row_arguments: what else the call gave of rows, by the name of the argument and of the embeddings: of this process's
            rows and of all processes'.
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

    def numbers(self, part: Part) -> Tensor:
        """Returns the number of the example of each row of a part, -1 where it belongs to none."""
        if part.name == "hard_negatives" and self.hard_rows is not None:
            return self.hard_rows
        if part.name in ("queue", "hard_negatives"):
            return torch.full((part.size,), -1, device=self.device)
        start = 0 if part.everyone else self.rows.offset
        return torch.arange(start, start + part.size, device=self.device)

    def scores_of(self, block: str) -> Tensor | None:
        """Returns the caller's similarities of a block by its name, None where the call gave rows."""
        return self.scores if self.scores is None or block != "ba" else self.scores[:, : self.size].T


class Part(NamedTuple):
    """Rows of one argument of the call among the anchors or the candidates of a block.

    Attributes:
        name: of the argument: ``view_a``, ``view_b``, ``queue`` or ``hard_negatives``.
        size: how many rows.
        everyone: whether they are those of all processes.
    """

    name: str
    size: int
    everyone: bool = True


@dataclass(slots=True, kw_only=True)
class Direction:
    """One block of similarities: anchors [N, D] against candidates [M, D], their roles, and what is known per anchor.

    Attributes:
        name: of the block, of `tempplug.negatives.base.BLOCKS`; empty in layouts that have one kind of block.
        parts: of the anchors and of the candidates, in order.
        paired: whether the block holds the positives of its anchors.
        mirrored: whether the block is the transpose of the call's first one: the same pairs the other way round.
        hidden: what leaves out pairs that ``roles`` take for negatives.
        fewer: [N] or [] how many of each anchor's negatives that leaves out; None for none.
    """

    anchors: Tensor
    candidates: Tensor
    roles: PairRoles
    labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | None = None
    name: str = ""
    parts: tuple[tuple[Part, ...], tuple[Part, ...]] = ((), ())
    paired: bool = True
    mirrored: bool = False
    hidden: tuple[TermMap, ...] = ()
    fewer: Tensor | None = None

    def bare(self) -> tuple[Tensor, Tensor]:
        """Returns anchors and candidates without gradient."""
        anchors = self.anchors.detach()
        return anchors, anchors if self.candidates is self.anchors else self.candidates.detach()


class PairLayout(Configured, ABC):
    """Builds the directions of a call.

    Attributes:
        name: as in spec strings.
        takes: the optional arguments of the loss that this layout reads. ``labels``, ``index`` and ``uncertainty`` it hands
            on to strategies, which declare what they read; an argument that is not read is refused.
        one_view: whether a call without view_b makes sense.
        joins_views: whether the anchors are the rows of both views, one behind the other.
        by_position: whether sizes alone decide all roles, so that a graph can hold them.
        blocks: names of the blocks, where there are several kinds.
        joint: whether all blocks of a call belong to the softmax of one row.
    """

    kind: ClassVar[str] = "layout"
    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    one_view: ClassVar[bool] = False
    joins_views: ClassVar[bool] = False
    by_position: ClassVar[bool] = False
    blocks: tuple[str, ...] = ()
    joint: bool = False

    @abstractmethod
    def build(self, views: Views) -> list[Direction]:
        """Returns one direction, or both of a symmetric layout."""

    def refuse_gather(self) -> bool:
        """Returns whether the layout has no meaning across processes."""
        return False

    def refuse_scores(self) -> bool:
        """Returns whether the layout needs other similarities than those of view_a's rows with candidates."""
        return True


def twice(values: Tensor | None) -> Tensor | None:
    """Returns the values of both views' rows where those of one serve both."""
    return None if values is None else torch.cat([values, values])


def with_extra(candidates: Tensor, views: Views) -> tuple[Tensor, int | None]:
    """Returns the candidates with the hard negatives behind them, and where those begin."""
    if views.hard_negatives is None:
        return candidates, None
    return torch.cat([candidates, views.hard_negatives]), candidates.shape[0]


def extra_count(views: Views) -> int:
    """Returns how many hard negatives there are."""
    return 0 if views.hard_negatives is None else views.hard_negatives.shape[0]


def hard_part(views: Views) -> tuple[Part, ...]:
    """Returns the part of the hard negatives, where there are any."""
    return () if views.hard_negatives is None else (Part("hard_negatives", views.hard_negatives.shape[0]),)


def parts_of_both(views: Views) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Returns the parts of both views, or of the only one, against the same of all processes and the hard negatives."""
    size, total = views.size, views.rows.total
    if views.joined is None:
        return (Part("view_a", size, False),), (Part("view_a", total), *hard_part(views))
    own = Part("view_a", size, False), Part("view_b", size, False)
    return own, (Part("view_a", total), Part("view_b", total), *hard_part(views))


def without_hidden(
    views: Views, parts: tuple[tuple[Part, ...], tuple[Part, ...]], own: bool
) -> tuple[tuple[TermMap, ...], Tensor | None]:
    """Returns what hides hard negatives that are absent or of another row, and how many of each anchor it hides.

    Args:
        views: of the call.
        parts: of anchors and candidates.
        own: whether an anchor sees the hard negatives of its own row alone.
    """
    if views.hard_negatives is None or not (own or views.hard_mask is not None):
        return (), None
    *before, hard = parts[1]
    rows = torch.cat([views.numbers(part) for part in parts[0]])
    seen = views.numbers(hard) if own else torch.full((hard.size,), -1, device=views.device)
    there = torch.ones_like(seen, dtype=torch.bool) if views.hard_mask is None else views.hard_mask
    # Behind -1 every anchor sees a candidate, behind -2 none does.
    seen = torch.cat([seen.new_full((sum(part.size for part in before),), -1), seen.masked_fill(~there, -2)])
    fewer = hard.size - (torch.bincount(seen[seen >= 0], minlength=views.rows.total)[rows] if own else there.sum())
    if len(rows) > views.size:  # view_a's anchors see hard negatives, view_b's do not
        fewer = torch.cat([fewer.expand(views.size), fewer.new_zeros(views.size)])
    return (LeftOut(Keys(rows, seen), equal=False, spared=seen == -1),), fewer


def lacks_second(name: str) -> ShapeError:
    """Returns the error for a call without view_b."""
    return ShapeError(f"layout '{name}' needs view_b beside view_a.")


def given(tensor: Tensor | None, name: str) -> Tensor:
    """Returns the rows, which a call without view_b lacks."""
    if tensor is None:
        raise lacks_second(name)
    return tensor


def one_uncertainty(views: Views, position: int, name: str) -> Tensor | None:
    """Returns the uncertainty of view_a's anchors, or with position 1 of view_b's."""
    if isinstance(views.uncertainty, tuple):
        return views.uncertainty[position]
    if position == 1 and views.uncertainty is not None:
        raise ShapeError(f"uncertainty must be a pair (of view_a, of view_b) where layout '{name}' has anchors of both.")
    return views.uncertainty
