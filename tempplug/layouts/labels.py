"""Classes decide which rows are positives of each other: SupCon."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug import positions
from tempplug.errors import ConfigError
from tempplug.layouts.base import Direction, PairLayout, Views, hard_count
from tempplug.roles import Pairing, PairRoles


class Labels(PairLayout):
    """SupCon's block: every embedding against all others, those of its own class positive."""

    name = "labels"
    takes = frozenset({"hard_negatives", "hard_negative_mask", "labels"})
    one_view = True
    joins_views = True

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [B, G (+ H)] of one view, or [2B, 2G (+ H)] of two."""
        if views.labels is None or views.all_labels is None:
            raise ConfigError("layout 'labels' needs labels=, the class of each row of view_a.")
        labels, all_labels = views.labels, views.all_labels
        names: tuple[str, ...] = ("view_a",)
        if views.joined is not None:
            labels, names = torch.cat([labels, labels]), ("view_a", "view_b")
            all_labels = labels if views.rows.world == 1 else torch.cat([all_labels, all_labels])
        roles = self.roles(labels, all_labels, views.size, views.rows.offset, hard_count(views))
        return [self.direction(views, names, (*names, "hard_negatives"), roles)]

    @staticmethod
    def roles(labels: Tensor, all_labels: Tensor, size: int, offset: int, extra: int) -> PairRoles:
        """Returns the roles of one view or two, [B or 2B, G or 2G (+ extra)].

        Args:
            labels: of the anchors.
            all_labels: of all processes' anchors; the same tensor where there is one process.
            size: B, how many anchors of view_a there are.
            offset: number of the first of them in all processes'.
            extra: hard negatives, which the anchors of view_a see.
        """
        count, total = labels.shape[0], all_labels.shape[0]
        both = positions.of_both(size, offset, total // 2, False)
        return PairRoles(
            anchors=count,
            candidates=total + extra,
            device=labels.device,
            ignored=Pairing(((0, size, offset),)) if count == size else both,
            square=count == total,
            anchor_labels=labels,
            candidate_labels=torch.cat([all_labels, all_labels.new_zeros(extra)]) if extra else all_labels,
            extra_start=total if extra else None,
            extra_anchors=size,
        )
