"""An anchor against its own key and a queue of past ones: MoCo."""

from __future__ import annotations

from tempplug import positions
from tempplug.errors import ShapeError
from tempplug.layouts.base import Direction, PairLayout, Views, hard_count


class Queue(PairLayout):
    """MoCo's block: each anchor against its own key and the K rows of a queue shared by all."""

    name = "queue"
    takes = frozenset({"queue", "hard_negatives", "hard_negative_mask"})
    by_position = True

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [B, B + K (+ H)], whose first B columns hold the keys and no negatives."""
        if views.view_b is None:
            raise self.lacks_second()
        if views.queue is None:
            raise ShapeError("layout 'queue' needs queue=, the past candidates [K, D].")
        roles = positions.queue(views.size, views.queue.shape[0], hard_count(views), views.device)
        candidates = ("view_b", "queue", "hard_negatives")
        return [self.direction(views, ("view_a",), candidates, roles, everyone=False)]
