"""The built-in layouts, and the roles that positions alone decide: one positive an anchor.

Shapes: B local pairs, the first of them number ``offset`` of ``total`` global ones; K queue rows, H (``extra``) hard negatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import unread
from tempplug.layouts.base import PairLayout, Views, hard_count, read_blocks
from tempplug.options import Choice, Flag, Text
from tempplug.roles import Pairing, PairRoles, roles_of_masks
from tempplug.term_map import Keys, LeftOut
from tempplug.transforms import shared


def _shared(make: Callable[..., PairRoles]) -> Callable[..., PairRoles]:
    """Returns the function as one that makes the roles of a shape once, with what they count of themselves."""

    def counted(*shape: Any) -> PairRoles:
        roles = make(*shape)
        for name in ("positive_columns", "positive_count", "negative_count", "without_negatives"):
            getattr(roles, name)
        return roles

    return shared(counted)


@shared
def _of_one(size: int, offset: int | None) -> Pairing:
    """Returns the pairing of the rows of one view with themselves, or with their counterpart in the other view."""
    return Pairing(() if offset is None else ((0, size, offset),))


@shared
def _of_both(size: int, offset: int | None, total: int, swapped: bool) -> Pairing:
    """Returns the pairing of the joined rows of two views with themselves, or with their counterpart in the other view."""
    if offset is None:
        return Pairing(())
    # Anchor i of view_b is row size + i of the anchors and total + offset + i of the candidates.
    first, second = (offset + total, offset - size) if swapped else (offset, offset + total - size)
    return Pairing(((0, size, first), (size, 2 * size, second)))


@_shared
def _two_view_roles(size: int, offset: int | None, total: int, extra: int, device: torch.device) -> PairRoles:
    """Returns the roles of [2B, 2·total + extra]: both views against both; view_a's anchors see the hard negatives."""
    return PairRoles(
        anchors=2 * size,
        candidates=2 * total + extra,
        device=device,
        positives=_of_both(size, offset, total, True),
        ignored=_of_both(size, offset, total, False),
        square=offset is not None and size == total,
        extra_start=2 * total if extra else None,
        extra_anchors=size,
    )


@_shared
def _cross_view_roles(
    size: int, offset: int | None, total: int, extra: int, device: torch.device, negatives_start: int = 0
) -> PairRoles:
    """Returns the roles of [B, total + extra]: one view against the other, a queue behind it, and the hard negatives."""
    return PairRoles(
        anchors=size,
        candidates=total + extra,
        device=device,
        positives=_of_one(size, offset),
        negatives_start=negatives_start,
        extra_start=total if extra else None,
        extra_anchors=size,
    )


@_shared
def _same_view_roles(size: int, offset: int | None, total: int, device: torch.device) -> PairRoles:
    """Returns the roles of [B, total]: one view against itself; the pair of a row and itself is no negative."""
    square = offset is not None and size == total
    return PairRoles(anchors=size, candidates=total, device=device, positives=_of_one(size, offset), square=square)


class TwoView(PairLayout):
    """SimCLR's NT-Xent: 2B anchors, each against the other 2G-1 embeddings, same-side ones included."""

    name = "two-view"
    takes = frozenset({"hard_negatives", "hard_negative_mask"})
    rings = True
    joins_views = True
    by_position = True

    def build(self, views: Views) -> list[Block]:
        """Returns the block [2B, 2G (+ H)]."""
        roles = _two_view_roles(views.size, views.place, views.count, hard_count(views), views.device)
        return [self.direction(views, ("view_a", "view_b"), ("view_a", "view_b", "hard_negatives"), roles)]


@dataclass(eq=False, repr=False)
class CrossView(PairLayout):
    """SimCSE's and CLIP's block: view_a's rows against view_b's, positive on the diagonal; and further blocks beside it.

    Args:
        directions: blocks that give a row negatives, ``ab`` first, joined by ``+``: ``ab`` a_i against all b_j and hard
            negatives, ``aa`` a_i against a_j, ``ba`` b_i against a_j, ``bb`` b_i against b_j and hard negatives but its own.
        softmax: ``joint``: one denominator over all blocks (GTE, Qwen3-Embedding), with the positive once in ``ab`` and once in
            ``ba``; ``separate``: the mean over the blocks of each one's loss (CLIP), of ``ab`` and ``ba`` alone.
        hard: anchors that see a hard negative: ``shared``: all, in ``ab`` and ``bb``; ``ab``: all, in ``ab`` alone; ``own``:
            that of its row, in ``ab``, which takes hard_negatives [B, k, D].
        in_batch: whether other rows are negatives at all; false takes ``ab`` alone, with hard negatives.

    Raises:
        ConfigError: an option is out of range, or two of them contradict each other.

    Source: Li et al. 2023 (GTE), section 3; Zhang et al. 2025 (Qwen3 Embedding), section 3; `tempplug.preset` has both.
    """

    name = "cross-view"
    takes = frozenset({"hard_negatives", "hard_negative_mask"})
    rings = True
    by_position = True

    directions: Annotated[str, Text(help="blocks with negatives, such as ab+aa+ba+bb")] = "ab"
    softmax: Annotated[str, Choice(("joint", "separate"), help="over all blocks, or one a block")] = "joint"
    hard: Annotated[str, Choice(("shared", "ab", "own"), help="anchors that see a hard negative")] = "shared"
    in_batch: Annotated[bool, Flag(help="whether other rows are negatives")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        where = self.where("directions", self.directions)
        self.blocks = read_blocks(where, self.directions, "+")
        self.joint = self.softmax == "joint" and len(self.blocks) > 1
        self.takes_scores = set(self.blocks) <= {"ab", "ba"} and self.hard != "own" and self.in_batch
        if self.blocks[0] != "ab":
            raise ConfigError(f"{where} must begin with ab, the block of the positives.")
        if self.softmax == "separate" and not set(self.blocks) <= {"ab", "ba"}:
            raise ConfigError(f"{where} needs softmax=joint: aa and bb hold no positives for a softmax of their own.")
        if not self.in_batch and self.blocks != ("ab",):
            raise ConfigError(f"{where} must be ab where in_batch=false leaves only hard negatives.")

    def build(self, views: Views) -> list[Block]:
        """Returns one block for each of the layout's directions, that of the positives first."""
        makers = {"ab": self._ab, "aa": self._aa, "ba": self._ba, "bb": self._bb}
        return [makers[name](views) for name in self.blocks]

    def _ab(self, views: Views) -> Block:
        size, extra, own = views.size, hard_count(views), self.hard == "own"
        if own and extra and views.hard_rows is None:
            raise ShapeError("hard=own of layout 'cross-view' needs hard_negatives [B, k, D], which belong to rows.")
        if self.in_batch:
            roles = _cross_view_roles(size, views.place, views.count, extra, views.device)
        elif views.place is None:
            return self.of_hard_negatives(views, name="ab", own_hard=own)
        elif extra:
            roles = _cross_view_roles(size, 0, size + extra, 0, views.device, size)
        else:
            raise ShapeError("in_batch=false of layout 'cross-view' needs hard_negatives=: there are no other negatives.")
        candidates = ("view_b", "hard_negatives")
        return self.direction(views, ("view_a",), candidates, roles, name="ab", everyone=self.in_batch, own_hard=own)

    def _aa(self, views: Views) -> Block:
        return self._of_one_view(views, "aa", "view_a")

    def _ba(self, views: Views) -> Block:
        roles = _cross_view_roles(views.size, views.place, views.count, 0, views.device)
        mirrored = views.rows.world == 1 and views.hard_negatives is None and not self.joint
        return self.direction(views, ("view_b",), ("view_a",), roles, name="ba", mirrors_first=mirrored)

    def _bb(self, views: Views) -> Block:
        if self.hard != "shared" or views.hard_negatives is None:
            return self._of_one_view(views, "bb", "view_b")
        roles = _cross_view_roles(views.size, views.place, views.count, hard_count(views), views.device)
        found = self.direction(views, ("view_b",), ("view_b", "hard_negatives"), roles, name="bb", paired=False)
        if views.hard_rows is not None:
            # All documents of a row are the anchor's own; the one that is the anchor itself has no role already.
            of_anchors, of_candidates = (torch.cat([views.numbers(part) for part in parts]) for parts in views.parts_of(found))
            found.excluded = (*found.excluded, LeftOut(Keys(of_anchors, of_candidates)))
        return found

    def _of_one_view(self, views: Views, name: str, view: str) -> Block:
        """Returns the block of one view against itself."""
        roles = _same_view_roles(views.size, views.place, views.count, views.device)
        return self.direction(views, (view,), (view,), roles, name=name, paired=False)


class Queue(PairLayout):
    """MoCo's block: each anchor against its own key and the K rows of a queue shared by all."""

    name = "queue"
    takes = frozenset({"queue", "hard_negatives", "hard_negative_mask"})
    rings = True
    by_position = True

    def build(self, views: Views) -> list[Block]:
        """Returns the block [B, B + K (+ H)], whose first B columns hold the keys and no negatives."""
        if views.view_b is None:
            raise self.lacks_second()
        if views.queue is None:
            raise ShapeError("layout 'queue' needs queue=, the past candidates [K, D].")
        if views.place is None:
            return [self.of_hard_negatives(views)]
        size, queued = views.size, views.queue.shape[0]
        roles = _cross_view_roles(size, 0, size + queued, hard_count(views), views.device, size)
        candidates = ("view_b", "queue", "hard_negatives")
        return [self.direction(views, ("view_a",), candidates, roles, everyone=False)]


class Labels(PairLayout):
    """SupCon's block: every embedding against all others, those of its own class positive."""

    name = "labels"
    takes = frozenset({"hard_negatives", "hard_negative_mask", "labels"})
    rings = True
    one_view = True
    joins_views = True

    def build(self, views: Views) -> list[Block]:
        """Returns the block [B, G (+ H)] of one view, or [2B, 2G (+ H)] of two."""
        if views.labels is None or views.all_labels is None:
            raise ConfigError("layout 'labels' needs labels=, the class of each row of view_a.")
        labels, all_labels = views.labels, views.all_labels
        names: tuple[str, ...] = ("view_a",)
        if views.joined is not None:
            labels, names = torch.cat([labels, labels]), ("view_a", "view_b")
            all_labels = labels if all_labels is views.labels else torch.cat([all_labels, all_labels])
        roles = self.roles(labels, all_labels, views.size, views.place, hard_count(views))
        return [self.direction(views, names, (*names, "hard_negatives"), roles)]

    @staticmethod
    def roles(labels: Tensor, all_labels: Tensor, size: int, offset: int | None, extra: int) -> PairRoles:
        """Returns the roles of one view or two, [B or 2B, G or 2G (+ extra)], where B = ``size``."""
        count, total = labels.shape[0], all_labels.shape[0]
        own = _of_one(size, offset) if count == size else _of_both(size, offset, total // 2, False)
        return PairRoles(
            anchors=count,
            candidates=total + extra,
            device=labels.device,
            ignored=None if offset is None else own,
            square=offset is not None and count == total,
            anchor_labels=labels,
            candidate_labels=torch.cat([all_labels, all_labels.new_zeros(extra)]) if extra else all_labels,
            extra_start=total if extra else None,
            extra_anchors=size,
        )


def _mask(name: str, mask: Tensor | None, wanted: tuple[int, int]) -> Tensor:
    if mask is None:
        raise ShapeError(f"layout 'masks' needs {name}=, a boolean tensor of shape {list(wanted)}.")
    return mask


def _refuse_swapped(roles: PairRoles, negative: Tensor) -> None:
    """Raises `ConfigError` where row i alone is a negative of row i, and all others are its positives."""
    if roles.candidates < 3 or not bool(negative[0, 0]):
        return
    lone = bool((roles.negative_count == 1).all()) and bool(negative.diagonal().all())
    if lone and bool((roles.positive_count == roles.candidates - 1).all()):
        raise ConfigError(
            "negative_mask holds the pairs (i, i) alone, and positive_mask all others, as if they were swapped: True in "
            "positive_mask are pairs that belong together."
        )


class Masks(PairLayout):
    """Roles given outright as two boolean masks, PyGCL's contract; view_a are the anchors, view_b the candidates."""

    name = "masks"
    takes = frozenset({"positive_mask", "negative_mask"})
    gathers = False
    takes_scores = True

    def build(self, views: Views) -> list[Block]:
        """Returns the block [N, M] with the given masks."""
        if views.view_b is None:
            raise self.lacks_second()
        wanted = (views.size, views.view_b.shape[0])
        positive = _mask("positive_mask", views.positive_mask, wanted)
        negative = _mask("negative_mask", views.negative_mask, wanted)
        # Their bytes, because a maximum of bytes is many times faster than `any` of booleans.
        if bool((positive.view(torch.uint8) & negative.view(torch.uint8)).max()):
            raise ConfigError("positive_mask and negative_mask overlap: a pair cannot be both.")
        roles = roles_of_masks(positive, negative)
        if roles.negative_mask is not None and not unread(views.device):
            _refuse_swapped(roles, negative)
        return [self.direction(views, ("view_a",), ("view_b",), roles, everyone=False)]
