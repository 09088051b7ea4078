"""The base of every term on negatives: what engines know of it.

A term is added to the logit of a negative and has no gradient. ``-inf`` leaves the pair out, ln w gives it the weight w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

Rows = slice | Tensor


class TermMap(ABC):
    """A term of every pair of a block, element by element on any tile; it must not know which pairs are negatives.

    Attributes:
        bound: the largest value in nats, ``inf`` where it is not known.
        symmetric: whether the term of (i, j) is that of (j, i), so that half of a square matrix is enough, and one pass for a
            block and its transpose; of both at once, engines refuse a term that is not.
    """

    bound: float = float("inf")
    symmetric: bool = False

    @abstractmethod
    def term(self, similarity: Tensor) -> Tensor:
        """Returns what is added to the logits, in nats, broadcastable to the shape of ``similarity``, which is only read."""

    def at(self, rows: Rows, columns: Rows) -> TermMap:
        """Returns the term bound to a tile; itself unless overridden.

        Args:
            rows: anchors of the tile.
            columns: candidates of the tile.
        """
        return self
