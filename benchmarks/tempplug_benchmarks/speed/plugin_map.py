"""A strategy as a third party writes it: its map has nothing but ``logit``, ``slope`` and ``temperature``."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from tempplug import Batch, LogitMap, Strategy

LOWEST, HIGHEST = 0.1, 0.2


class CosineMap(LogitMap):
    """l = s / τ(s), with τ from `LOWEST` at s = 0 to `HIGHEST` at s = ±1, a constant for the gradient."""

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns τ(s)."""
        return LOWEST + 0.5 * (HIGHEST - LOWEST) * (1 + torch.cos(math.pi * (1 + similarity)))

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns s / τ(s)."""
        return similarity / self.temperature(similarity.detach())

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns 1 / τ(s)."""
        return 1 / self.temperature(similarity)


class PluginMap(Strategy):
    """DySTreSS's cosine profile, written plainly."""

    name: ClassVar[str] = "plugin-map"
    formula: ClassVar[str] = "l = s / τ(s), τ(s) = 0.1 + 0.1·(1 + cos(π(1 + s)))/2"
    source: ClassVar[str] = "Manna et al., DySTreSS: Dynamically Scaled Temperature in Self-Supervised Contrastive Learning"

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the same map for every batch."""
        return CosineMap()
