"""The built-in layouts, and the roles that positions alone decide: one positive an anchor.

Shapes: B local pairs, the first of them number ``offset`` of ``total`` global ones; K queue rows, H (``extra``) hard negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import check_row_integers, refuse_overlap
from tempplug.layouts.base import BlockPlan, PairLayout, Sizes, Views, plan_of_hard_negatives, read_blocks
from tempplug.options import Choice, Flag, Text
from tempplug.roles import Pairing, PairRoles, roles_of_masks
from tempplug.targets import roles_of_targets

_BY_VALUES = "directions=ab, or ab+ba and softmax=separate, hard=shared or ab, and in_batch=true"


def _counted(roles: PairRoles) -> PairRoles:
    """Returns roles that positions decide, with what they count of themselves."""
    for name in ("positive_columns", "positive_count", "negative_count", "without_negatives"):
        getattr(roles, name)
    return roles


def _of_one(size: int, offset: int | None) -> Pairing:
    """Returns the pairing of the rows of one view with themselves, or with their counterpart in the other view."""
    return Pairing(() if offset is None else ((0, size, offset),))


def _of_both(size: int, offset: int | None, total: int, swapped: bool) -> Pairing:
    """Returns the pairing of the joined rows of two views with themselves, or with their counterpart in the other view."""
    if offset is None:
        return Pairing(())
    # Anchor i of view_b is row size + i of the anchors and total + offset + i of the candidates.
    first, second = (offset + total, offset - size) if swapped else (offset, offset + total - size)
    return Pairing(((0, size, first), (size, 2 * size, second)))


def _roles(sizes: Sizes, total: int, extra: int, offset: int | None, negatives_start: int = 0) -> PairRoles:
    """Returns the roles of [B, total + extra]: one view against the other, a queue behind it, and the hard negatives."""
    return _counted(
        PairRoles(
            anchors=sizes.rows,
            candidates=total + extra,
            device=sizes.device,
            positives=_of_one(sizes.rows, offset),
            negatives_start=negatives_start,
            extra_start=total if extra else None,
            extra_anchors=sizes.rows,
        )
    )


def _hard(sizes: Sizes) -> tuple[str, ...]:
    """Returns the name of the hard negatives, where the call has some."""
    return ("hard_negatives",) if sizes.hard else ()


def _past(sizes: Sizes) -> tuple[str, ...]:
    """Returns the name of the queue, where the call has one; in a ring, it counts beside the candidates of its own process."""
    return ("queue",) if sizes.queue and sizes.place is not None else ()


class TwoView(PairLayout):
    """SimCLR's NT-Xent: 2B anchors, each against the other 2G-1 embeddings, same-side ones included."""

    name = "two-view"
    takes = frozenset({"hard_negatives", "hard_negative_mask"})
    rings = True
    joins_views = True
    by_position = True

    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the block [2B, 2G (+ H)]: both views against both; view_a's anchors see the hard negatives."""
        if not sizes.two_views:
            raise self.lacks_second()
        size, place, total = sizes.rows, sizes.place, sizes.candidates
        roles = PairRoles(
            anchors=2 * size,
            candidates=2 * total + sizes.hard,
            device=sizes.device,
            positives=_of_both(size, place, total, True),
            ignored=_of_both(size, place, total, False),
            square=place is not None and size == total,
            extra_start=2 * total if sizes.hard else None,
            extra_anchors=size,
        )
        return (BlockPlan(("view_a", "view_b"), ("view_a", "view_b", *_hard(sizes)), _counted(roles)),)


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
        positives: ``row``: the candidate of the anchor's row; ``keys``: all candidates with its key. The call passes ``keys=``,
            [B] integers of both views, or a dictionary as of ``same-key``, if need be with those of queue and hard negatives.

    A queue of past candidates [K, D], where the call has one, gives the anchors of ``ab`` and ``bb`` further negatives.

    Raises:
        ConfigError: an option is out of range, or two of them contradict each other.

    Source: Li et al. 2023 (GTE), section 3; Zhang et al. 2025 (Qwen3 Embedding), section 3; `tempplug.preset` has both.
    """

    name = "cross-view"
    takes = frozenset({"queue", "hard_negatives", "hard_negative_mask", "targets"})
    rings = True
    by_position = True

    directions: Annotated[str, Text(help="blocks with negatives, such as ab+aa+ba+bb")] = "ab"
    softmax: Annotated[str, Choice(("joint", "separate"), help="over all blocks, or one a block")] = "joint"
    hard: Annotated[str, Choice(("shared", "ab", "own"), help="anchors that see a hard negative")] = "shared"
    in_batch: Annotated[bool, Flag(help="whether other rows are negatives")] = True

    positives: Annotated[str, Choice(("row", "keys"), help="candidates of the anchor's row, or with its key")] = "row"

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
        if self.positives == "keys":
            if not self.takes_scores or self.joint:
                raise ConfigError(f"{self.where('positives', 'keys')} needs {_BY_VALUES}, not '{self.spec()}'.")
            self.by_position, self.row_arguments = False, frozenset({"keys"})

    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns one block for each of the layout's directions, that of the positives first."""
        if not sizes.two_views:
            raise self.lacks_second()
        if sizes.targets or self.positives == "keys":
            return self._by_values(sizes)
        makers = {"ab": self._ab, "aa": self._of_one_view, "ba": self._ba, "bb": self._bb}
        return tuple(makers[name](sizes, name) for name in self.blocks)

    def _by_values(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the block of each direction; the values of ``targets`` or ``keys`` decide its roles."""
        if not self.takes_scores or self.joint or (sizes.targets and self.positives == "keys"):
            raise ConfigError(
                f"targets= needs layout 'cross-view' with {_BY_VALUES}, and positives=row, not '{self.spec()}': scores of each "
                "row's own candidates are for from_scores(scores, targets=...)."
            )
        plans = (("view_a",), ("view_b", *_past(sizes), *_hard(sizes))), (("view_b",), ("view_a",))
        return tuple(BlockPlan(*of_block, None, name) for name, of_block in zip(self.blocks, plans, strict=False))

    def roles(self, views: Views, plan: BlockPlan) -> PairRoles:
        """Returns the roles that the targets or keys of a call give."""
        sizes = [views.part(name, True).size for name in plan.candidates]
        if views.targets is not None:
            if views.chunk is None:
                return roles_of_targets(views.targets[plan.name], sum(sizes))
            behind = views.rows.total + views.sizes().queue  # where the hard negatives of the first process begin
            starts = {"queue": views.rows.total, "hard_negatives": behind + sum(views.hard_sizes[: views.chunk])}
            spans = [(starts.get(name, views.start), size) for name, size in zip(plan.candidates, sizes, strict=True)]
            width = behind + sum(views.hard_sizes) if plan.name == "ab" else views.rows.total
            return roles_of_targets(views.targets[plan.name], width, spans)
        keys = views.row_arguments.get("keys", {})
        if not {"view_a", "view_b"} <= keys.keys():
            raise ConfigError(f"{self.where('positives', 'keys')} needs keys= of both views, an integer a row.")
        anchors, count = check_row_integers("keys", keys[plan.anchors[0]][0]), sum(sizes)
        other = (anchors.min() - 1).expand(count)  # which no anchor has
        candidates = [
            keys[name][1] if name in keys else other[:size] for name, size in zip(plan.candidates, sizes, strict=True)
        ]
        return PairRoles(
            anchors=len(anchors),
            candidates=count,
            device=views.device,
            anchor_labels=anchors,
            candidate_labels=torch.cat(candidates),
        )

    def _ab(self, sizes: Sizes, name: str) -> BlockPlan:
        own_hard = self.hard == "own"
        if own_hard and sizes.hard and not sizes.owned:
            raise ShapeError("hard=own of layout 'cross-view' needs hard_negatives [B, k, D], which belong to rows.")
        if sizes.queue and not self.in_batch:
            raise ShapeError("in_batch=false of layout 'cross-view' takes no queue=: layout 'queue' does.")
        queue = _past(sizes)
        if self.in_batch:
            roles = _roles(sizes, sizes.candidates + sizes.queue * len(queue), sizes.hard, sizes.place)
        elif sizes.place is None:
            return plan_of_hard_negatives(sizes, name, own_hard)
        elif sizes.hard:
            roles = _roles(sizes, sizes.rows + sizes.hard, 0, 0, negatives_start=sizes.rows)
        else:
            raise ShapeError("in_batch=false of layout 'cross-view' needs hard_negatives=: there are no other negatives.")
        candidates = ("view_b", *queue, *_hard(sizes))
        return BlockPlan(("view_a",), candidates, roles, name, everyone=self.in_batch, own_hard=own_hard)

    def _ba(self, sizes: Sizes, name: str) -> BlockPlan:
        roles = _roles(sizes, sizes.candidates, 0, sizes.place)
        mirrored = sizes.one_process and not sizes.hard and not sizes.queue and not self.joint
        return BlockPlan(("view_b",), ("view_a",), roles, name, mirrors_first=mirrored)

    def _bb(self, sizes: Sizes, name: str) -> BlockPlan:
        queue, hard = _past(sizes), _hard(sizes) if self.hard == "shared" else ()
        if not queue and not hard:
            return self._of_one_view(sizes, name)
        roles = _roles(sizes, sizes.candidates + sizes.queue * len(queue), sizes.hard * len(hard), sizes.place)
        # All documents of a row are the anchor's own; the one that is the anchor itself has no role already.
        excludes_own = sizes.owned and bool(hard)
        return BlockPlan(("view_b",), ("view_b", *queue, *hard), roles, name, paired=False, excludes_own=excludes_own)

    @staticmethod
    def _of_one_view(sizes: Sizes, name: str) -> BlockPlan:
        """Returns the block of one view against itself; the pair of a row and itself is no negative."""
        size, total, place = sizes.rows, sizes.candidates, sizes.place
        square, self_pairs = place is not None and size == total, _of_one(size, place)
        roles = PairRoles(anchors=size, candidates=total, device=sizes.device, positives=self_pairs, square=square)
        view = ("view_a" if name == "aa" else "view_b",)
        return BlockPlan(view, view, _counted(roles), name, paired=False)


class Queue(PairLayout):
    """MoCo's block: each anchor against its own key and the K rows of a queue shared by all."""

    name = "queue"
    takes = frozenset({"queue", "hard_negatives", "hard_negative_mask"})
    rings = True
    by_position = True

    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the block [B, B + K (+ H)], whose first B columns hold the keys and no negatives."""
        if not sizes.two_views:
            raise self.lacks_second()
        if not sizes.queue:
            raise ShapeError("layout 'queue' needs queue=, the past candidates [K, D].")
        if sizes.place is None:
            return (plan_of_hard_negatives(sizes),)
        roles = _roles(sizes, sizes.rows + sizes.queue, sizes.hard, 0, negatives_start=sizes.rows)
        return (BlockPlan(("view_a",), ("view_b", "queue", *_hard(sizes)), roles, everyone=False),)


class Labels(PairLayout):
    """SupCon's block: every embedding against all others, those of its own class positive."""

    name = "labels"
    takes = frozenset({"hard_negatives", "hard_negative_mask", "labels"})
    rings = True
    one_view = True
    joins_views = True

    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the block [B, G (+ H)] of one view, or [2B, 2G (+ H)] of two."""
        names = ("view_a", "view_b") if sizes.two_views else ("view_a",)
        return (BlockPlan(names, (*names, *_hard(sizes)), None),)

    def roles(self, views: Views, plan: BlockPlan) -> PairRoles:
        """Returns the roles that equal labels give."""
        if views.labels is None or views.all_labels is None:
            raise ConfigError("layout 'labels' needs labels=, the class of each row of view_a.")
        labels, all_labels, sizes = views.labels, views.all_labels, views.sizes()
        if sizes.two_views:
            labels = torch.cat([labels, labels])
            all_labels = labels if all_labels is views.labels else torch.cat([all_labels, all_labels])
        return self.roles_of(labels, all_labels, sizes.rows, sizes.place, sizes.hard)

    @staticmethod
    def roles_of(labels: Tensor, all_labels: Tensor, size: int, offset: int | None, extra: int) -> PairRoles:
        """Returns the roles of one view or two, [B or 2B, G or 2G (+ extra)], where B = ``size``."""
        count, total = labels.shape[0], all_labels.shape[0]
        self_pairs = _of_one(size, offset) if count == size else _of_both(size, offset, total // 2, False)
        return PairRoles(
            anchors=count,
            candidates=total + extra,
            device=labels.device,
            ignored=None if offset is None else self_pairs,
            square=offset is not None and count == total,
            always_paired=offset is not None and count > size,
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

    def plan(self, sizes: Sizes) -> tuple[BlockPlan, ...]:
        """Returns the block [N, M]."""
        if not sizes.two_views:
            raise self.lacks_second()
        return (BlockPlan(("view_a",), ("view_b",), None, everyone=False),)

    def roles(self, views: Views, plan: BlockPlan) -> PairRoles:
        """Returns the roles of the given masks."""
        wanted = (views.size, views.part("view_b", False).size)
        positive = _mask("positive_mask", views.positive_mask, wanted)
        negative = _mask("negative_mask", views.negative_mask, wanted)
        if not positive.is_cpu:  # where the first call of a kind alone reads them, see `tempplug.call.read`
            return roles_of_masks(positive, negative)
        refuse_overlap(positive, negative)
        roles = roles_of_masks(positive, negative)
        if roles.negative_mask is not None:
            _refuse_swapped(roles, negative)
        return roles
