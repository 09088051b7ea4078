"""Two augmented views, all rows of both against each other: SimCLR, GRACE."""

from __future__ import annotations

import torch

from tempplug import positions
from tempplug.layouts.base import (
    Direction,
    PairLayout,
    Views,
    lacks_second,
    one_uncertainty,
    parts_of_both,
    twice,
    without_hidden,
)


class TwoView(PairLayout):
    """SimCLR's NT-Xent: 2B anchors, each against the other 2G-1 embeddings, same-side ones included."""

    name = "two-view"
    takes = frozenset({"hard_negatives", "hard_negative_mask"})
    joins_views = True
    by_position = True

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [2B, 2G (+ H)]."""
        anchors, candidates, hard = views.joined, views.all_joined, views.hard_negatives
        if anchors is None or candidates is None:
            raise lacks_second(self.name)
        uncertainty = None
        if views.uncertainty is not None:
            pair = [one_uncertainty(views, position, self.name) for position in (0, 1)]
            uncertainty = torch.cat([each for each in pair if each is not None])
        extra = 0 if hard is None else hard.shape[0]
        parts = parts_of_both(views)
        hidden, fewer = without_hidden(views, parts, False)
        return [
            Direction(
                anchors=anchors,
                candidates=candidates if hard is None else torch.cat([candidates, hard]),
                roles=positions.two_view(views.size, views.rows.offset, views.rows.total, extra, views.device),
                labels=None if views.labels is None else twice(views.labels),
                index=None if views.index is None else twice(views.index),
                uncertainty=uncertainty,
                parts=parts,
                hidden=hidden,
                fewer=fewer,
            )
        ]
