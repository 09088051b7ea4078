"""Terms on negatives as engines see them: what is added to the logit of a pair, element by element.

A term has no gradient. ``-inf`` leaves the pair out, ln w gives it the weight w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.renamed import follow
from tempplug.transforms import transformed

Rows = slice | Tensor
RENAMED = {"at": "restrict"}


@dataclass(frozen=True, slots=True)
class Keys:
    """One integer for each anchor [N] and candidate [M], for terms on pairs with equal ones; [R, 1] and [C] bound to a tile."""

    of_anchors: Tensor
    of_candidates: Tensor

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> Keys:
        """Returns the keys of a tile or of index pairs; arguments as of `TermMap.restrict`."""
        keys = self.of_anchors[rows]
        return Keys(keys if paired else keys[:, None], self.of_candidates[columns])

    def equal(self, like: Tensor, other: bool = False) -> Tensor:
        """Returns 1 where the keys of a pair are equal (``other``: different) and 0 elsewhere, as a tensor like ``like``."""
        return marks(torch.ne if other else torch.eq, self.of_anchors, self.of_candidates, like)


def marks(compare: Callable[..., Tensor], left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Returns 1 where a comparison of torch holds and 0 elsewhere, in the shape and type of ``like``."""
    if transformed():
        return compare(left, right).to(like.dtype)
    return compare(left, right, out=torch.empty_like(like))  # several times faster than booleans


class TermMap(ABC):
    """A term of every pair of a block, element by element on any tile; which pairs are negatives does not matter here.

    Attributes:
        bound: the largest value in nats, ``inf`` where it is not known.
        symmetric: whether the term of (i, j) is that of (j, i), so that half of a square matrix is enough, and one pass for a
            block and its transpose; engines refuse a term that is not for both at once.
    """

    bound: float = float("inf")
    symmetric: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        follow(cls, RENAMED)

    @abstractmethod
    def term(self, similarity: Tensor) -> Tensor:
        """Returns what is added to the logits, in nats, broadcastable to the shape of ``similarity``, which is only read."""

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term bound to a tile or to index pairs; itself unless overridden; arguments as of `LogitMap.restrict`."""
        return self


class WeightMap(TermMap):
    """A term ln w of a weight w >= 0: sums of exp are multiplied by w, which is faster than a logarithm and an addition."""

    @abstractmethod
    def weight(self, similarity: Tensor) -> Tensor:
        """Returns w, broadcastable to the shape of ``similarity``, which is only read; 0 leaves a pair out."""

    def term(self, similarity: Tensor) -> Tensor:
        """Returns ln w."""
        return self.weight(similarity).log()


class LeftOut(WeightMap):
    """Leaves out pairs of equal keys, or those of different ones; ``spared`` [M] marks candidates that stay in any case."""

    bound = 0.0

    def __init__(self, keys: Keys, equal: bool = True, spared: Tensor | None = None) -> None:
        self.keys, self.equal, self.spared = keys, equal, spared
        self.symmetric = keys.of_anchors is keys.of_candidates and spared is None

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term of these pairs."""
        spared = None if self.spared is None else self.spared[columns]
        return LeftOut(self.keys.restrict(rows, columns, paired), self.equal, spared)

    def weight(self, similarity: Tensor) -> Tensor:
        """Returns 0 or 1."""
        weights = self.keys.equal(similarity, other=self.equal)
        return weights if self.spared is None else torch.maximum(weights, self.spared.to(weights.dtype))


follow(Keys, RENAMED)
follow(TermMap, RENAMED)
