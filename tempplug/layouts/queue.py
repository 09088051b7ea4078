"""An anchor against its own key and a queue of past ones: MoCo."""

from __future__ import annotations

import torch

from tempplug import positions
from tempplug.errors import ShapeError
from tempplug.layouts.base import (
    Direction,
    PairLayout,
    Part,
    Views,
    extra_count,
    given,
    hard_part,
    one_uncertainty,
    with_extra,
    without_hidden,
)


class Queue(PairLayout):
    """MoCo's block: each anchor against its own key and the K rows of a queue shared by all."""

    name = "queue"
    takes = frozenset({"queue", "hard_negatives", "hard_negative_mask"})
    by_position = True

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [B, B + K (+ H)], whose first B columns hold the keys and no negatives."""
        view_a, view_b = given(views.view_a, self.name), given(views.view_b, self.name)
        if views.queue is None:
            raise ShapeError("layout 'queue' needs queue=, the past candidates [K, D].")
        candidates = views.candidates
        if candidates is None:
            candidates, _ = with_extra(torch.cat([view_b, views.queue]), views)
        keys, queue = Part("view_b", views.size, False), Part("queue", views.queue.shape[0])
        parts = (Part("view_a", views.size, False),), (keys, queue, *hard_part(views))
        hidden, fewer = without_hidden(views, parts, False)
        return [
            Direction(
                anchors=view_a,
                candidates=candidates,
                roles=positions.queue(view_b.shape[0], views.queue.shape[0], extra_count(views), candidates.device),
                labels=views.labels,
                index=views.index,
                uncertainty=one_uncertainty(views, 0, self.name),
                parts=parts,
                hidden=hidden,
                fewer=fewer,
            )
        ]
