"""One view against the other: SimCSE, CLIP, GTE; further blocks give a row more negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from tempplug import positions
from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts.base import Direction, PairLayout, Views, hard_count
from tempplug.negatives.base import Keys, LeftOut, read_blocks
from tempplug.options import Choice, Flag, Text


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
        if self.blocks[0] != "ab":
            raise ConfigError(f"{where} must begin with ab, the block of the positives.")
        if self.softmax == "separate" and not set(self.blocks) <= {"ab", "ba"}:
            raise ConfigError(f"{where} needs softmax=joint: aa and bb hold no positives for a softmax of their own.")
        if not self.in_batch and self.blocks != ("ab",):
            raise ConfigError(f"{where} must be ab where in_batch=false leaves only hard negatives.")

    def build(self, views: Views) -> list[Direction]:
        """Returns one block for each of the layout's directions, that of the positives first."""
        makers = {"ab": self._ab, "aa": self._aa, "ba": self._ba, "bb": self._bb}
        return [makers[name](views) for name in self.blocks]

    def refuse_scores(self) -> bool:
        """Returns whether similarities within a view are needed, or hard negatives that belong to rows."""
        return not set(self.blocks) <= {"ab", "ba"} or self.hard == "own" or not self.in_batch

    def _ab(self, views: Views) -> Direction:
        size, rows, extra, own = views.size, views.rows, hard_count(views), self.hard == "own"
        if own and extra and views.hard_rows is None:
            raise ShapeError("hard=own of layout 'cross-view' needs hard_negatives [B, k, D], which belong to rows.")
        if self.in_batch:
            roles = positions.cross_view(size, rows.offset, rows.total, extra, views.device)
        elif extra:
            roles = positions.queue(size, extra, 0, views.device)
        else:
            raise ShapeError("in_batch=false of layout 'cross-view' needs hard_negatives=: there are no other negatives.")
        candidates = ("view_b", "hard_negatives")
        return self.direction(views, ("view_a",), candidates, roles, name="ab", everyone=self.in_batch, own_hard=own)

    def _aa(self, views: Views) -> Direction:
        return self._of_one_view(views, "aa", "view_a")

    def _ba(self, views: Views) -> Direction:
        rows = views.rows
        roles = positions.cross_view(views.size, rows.offset, rows.total, 0, views.device)
        mirrored = rows.world == 1 and views.hard_negatives is None and not self.joint
        return self.direction(views, ("view_b",), ("view_a",), roles, name="ba", mirrored=mirrored)

    def _bb(self, views: Views) -> Direction:
        if self.hard != "shared" or views.hard_negatives is None:
            return self._of_one_view(views, "bb", "view_b")
        size, rows = views.size, views.rows
        roles = positions.cross_view(size, rows.offset, rows.total, hard_count(views), views.device)
        found = self.direction(views, ("view_b",), ("view_b", "hard_negatives"), roles, name="bb", paired=False)
        if views.hard_rows is not None:
            # All documents of a row are the anchor's own; the one that is the anchor itself has no role already.
            of_anchors, of_candidates = (torch.cat([views.numbers(part) for part in parts]) for parts in found.parts(views))
            found.hidden = (*found.hidden, LeftOut(Keys(of_anchors, of_candidates)))
            own = views.hard_rows if views.hard_mask is None else views.hard_rows[views.hard_mask]
            fewer = torch.bincount(own, minlength=rows.total)[rows.offset : rows.offset + size]
            found.fewer = fewer if found.fewer is None else fewer + found.fewer
        return found

    def _of_one_view(self, views: Views, name: str, view: str) -> Direction:
        """Returns the block of one view against itself."""
        roles = positions.same_view(views.size, views.rows.offset, views.rows.total, views.device)
        return self.direction(views, (view,), (view,), roles, name=name, paired=False)
