"""Classes decide which rows are positives of each other: SupCon."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug import positions
from tempplug.errors import ConfigError
from tempplug.layouts.base import (
    Direction,
    PairLayout,
    Views,
    extra_count,
    given,
    one_uncertainty,
    parts_of_both,
    twice,
    with_extra,
    without_hidden,
)
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
        uncertainty = one_uncertainty(views, 0, self.name)
        labels, all_labels, index = views.labels, views.all_labels, views.index
        if views.joined is None:
            anchors, everyone = given(views.view_a, self.name), given(views.all_a, self.name)
        else:
            anchors, everyone = views.joined, given(views.all_joined, self.name)
            labels, index = torch.cat([labels, labels]), None if views.index is None else twice(views.index)
            all_labels = labels if views.rows.world == 1 else torch.cat([all_labels, all_labels])
            second = one_uncertainty(views, 1, self.name)
            if uncertainty is not None and second is not None:
                uncertainty = torch.cat([uncertainty, second])
        parts = parts_of_both(views)
        hidden, fewer = without_hidden(views, parts, False)
        return [
            Direction(
                anchors=anchors,
                candidates=with_extra(everyone, views)[0],
                roles=self.roles(labels, all_labels, views.size, views.rows.offset, extra_count(views)),
                labels=labels,
                index=index,
                uncertainty=uncertainty,
                parts=parts,
                hidden=hidden,
                fewer=fewer,
            )
        ]

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
