"""Who is positive in a tile, and who counts at all, as numbers 1 and 0: arithmetic on them is fast, on booleans it is not.

A tile's marks are made when it is worked on and forgotten with it. Nothing here knows a logit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from tempplug.engine.tiles import Tile, part
from tempplug.roles import PairRoles


class Marks(ABC):
    """The roles of a block, a tile at a time."""

    @abstractmethod
    def positive(self, tile: Tile, rows: slice | None, columns: slice | None, out: Tensor) -> Tensor | None:
        """Returns ``out`` with 1 where a pair is positive and 0 elsewhere; None where the tile holds no positive.

        Args:
            tile: where.
            rows: its anchors, as `span` says them.
            columns: its candidates, likewise.
            out: [R, C] of any content.
        """

    def sift_(self, tile: Tile, values: Tensor, positive: Tensor | None, scratch: Tensor) -> None:
        """Makes the values of pairs 0 that are neither positive nor negative.

        Args:
            tile: where.
            values: [R, C], overwritten.
            positive: what `positive` returned for this tile.
            scratch: [R, C] of any content.
        """
        if tile.zeroes is not None:
            values.view(-1).index_fill_(0, tile.zeroes, 0)


class ByLabel(Marks):
    """Of classes: comparing their numbers gives marks in one pass; no mask is kept.

    Args:
        roles: with labels.
        dtype: of the tiles.
    """

    def __init__(self, roles: PairRoles, dtype: torch.dtype) -> None:
        # Numbers from 0, so that they are exact in any floating-point type up to 16 million rows.
        anchors, candidates = roles.classes()
        self.anchors = anchors.to(dtype)
        self.candidates = self.anchors if candidates is anchors else candidates.to(dtype)

    def positive(self, tile: Tile, rows: slice | None, columns: slice | None, out: Tensor) -> Tensor | None:
        """Returns 1 where classes are equal; an anchor is not its own positive, and hard negatives have no class."""
        if tile.panel:
            return None
        torch.eq(part(self.anchors, rows).unsqueeze(1), part(self.candidates, columns), out=out)
        if tile.zeroes is not None:
            out.view(-1).index_fill_(0, tile.zeroes, 0)
        return out


class ByMask(Marks):
    """Of two masks, read tile by tile.

    Args:
        roles: with masks.
    """

    def __init__(self, roles: PairRoles) -> None:
        if roles.positive_mask is None or roles.negative_mask is None:
            raise RuntimeError("these roles hold no masks.")
        # Bytes become floating-point numbers five times faster than booleans.
        self.positives, self.negatives = roles.positive_mask.view(torch.uint8), roles.negative_mask.view(torch.uint8)

    def positive(self, tile: Tile, rows: slice | None, columns: slice | None, out: Tensor) -> Tensor | None:
        """Returns the positives' mask."""
        mask = self.positives[tile.top : tile.bottom, tile.left : tile.right]
        return out.copy_(mask) if bool(mask.any()) else None

    def sift_(self, tile: Tile, values: Tensor, positive: Tensor | None, scratch: Tensor) -> None:
        """Multiplies by the sum of both masks."""
        scratch.copy_(self.negatives[tile.top : tile.bottom, tile.left : tile.right])
        values.mul_(scratch if positive is None else scratch.add_(positive))


def marks_of(roles: PairRoles, dtype: torch.dtype) -> Marks:
    """Returns the marks of these roles.

    Args:
        roles: of the block.
        dtype: of the tiles.
    """
    return ByLabel(roles, dtype) if roles.positive_mask is None else ByMask(roles)
