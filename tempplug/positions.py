"""Roles that positions alone decide: one positive an anchor, in the layouts of one or two views and of a queue.

Shapes as in `tempplug.layouts`: B local pairs, the first of them number ``offset`` of ``total`` global ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tempplug.roles import Pairing, PairRoles
from tempplug.transforms import shared

CPU = torch.device("cpu")


def _shared(make: Callable[..., PairRoles]) -> Callable[..., PairRoles]:
    """Returns the function as one that makes the roles of a shape once, with what they count of themselves."""

    def counted(*shape: Any) -> PairRoles:
        roles = make(*shape)
        roles.positive_count(), roles.negative_count(), roles.without_negatives
        return roles

    return shared(counted)


@shared
def of_both(size: int, offset: int, total: int, swapped: bool) -> Pairing:
    """Returns the pairing of the joined rows of two views with themselves, or with their counterpart in the other view."""
    # Anchor i of view_b is row size + i of the anchors and total + offset + i of the candidates.
    first, second = (offset + total, offset - size) if swapped else (offset, offset + total - size)
    return Pairing(((0, size, first), (size, 2 * size, second)))


@_shared
def two_view(size: int, offset: int, total: int, extra: int, device: torch.device = CPU) -> PairRoles:
    """Returns the roles of [2B, 2·total + extra]: both views against both; view_a's anchors see the hard negatives."""
    return PairRoles(
        anchors=2 * size,
        candidates=2 * total + extra,
        device=device,
        positives=of_both(size, offset, total, True),
        ignored=of_both(size, offset, total, False),
        square=size == total,
        extra_start=2 * total if extra else None,
        extra_anchors=size,
    )


@_shared
def cross_view(size: int, offset: int, total: int, extra: int, device: torch.device = CPU) -> PairRoles:
    """Returns the roles of [B, total + extra]: one view against the other and the hard negatives."""
    return PairRoles(
        anchors=size,
        candidates=total + extra,
        device=device,
        positives=Pairing(((0, size, offset),)),
        extra_start=total if extra else None,
        extra_anchors=size,
    )


@_shared
def same_view(size: int, offset: int, total: int, device: torch.device = CPU) -> PairRoles:
    """Returns the roles of [B, total]: one view against itself; the pair of a row and itself is no negative."""
    return PairRoles(
        anchors=size, candidates=total, device=device, positives=Pairing(((0, size, offset),)), square=size == total
    )


@_shared
def queue(size: int, queued: int, extra: int, device: torch.device = CPU) -> PairRoles:
    """Returns the roles of [B, B + queued + extra]: one view against its own keys, a queue and the hard negatives."""
    return PairRoles(
        anchors=size,
        candidates=size + queued + extra,
        device=device,
        positives=Pairing(((0, size, 0),)),
        negatives_start=size,
        extra_start=size + queued if extra else None,
        extra_anchors=size,
    )
