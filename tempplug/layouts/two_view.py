"""Two augmented views, all rows of both against each other: SimCLR, GRACE."""

from __future__ import annotations

from tempplug import positions
from tempplug.layouts.base import Direction, PairLayout, Views, hard_count


class TwoView(PairLayout):
    """SimCLR's NT-Xent: 2B anchors, each against the other 2G-1 embeddings, same-side ones included."""

    name = "two-view"
    takes = frozenset({"hard_negatives", "hard_negative_mask"})
    joins_views = True
    by_position = True

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [2B, 2G (+ H)]."""
        roles = positions.two_view(views.size, views.rows.offset, views.rows.total, hard_count(views), views.device)
        return [self.direction(views, ("view_a", "view_b"), ("view_a", "view_b", "hard_negatives"), roles)]
