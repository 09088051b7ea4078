"""Sums of the rows of tiles, plain ones or relative to the largest logit of each row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Logits up to here, in nats, leave room in float32 for sums of exp and for gradients of any usual size.
LARGEST_LOGIT = 50.0
# What sums of exp are within if no summand has overflowed or lost digits by underflow.
EXACT = math.exp(-LARGEST_LOGIT), math.exp(LARGEST_LOGIT + 12)
LN2 = math.log(2)


def select(whole: Tensor, where: slice | None) -> Tensor:
    """Returns some rows, or all of them without an operation."""
    return whole if where is None else whole[where]


Addition = tuple[Callable[[Any, Any], None], Any, Any]
"""What adds something to a sum, to which rows, and what."""


class Sums:
    """Sums of the rows of tiles: plain, or of 2^(l - most), with ``shifted``, of base-2 logits that are added.

    Attributes:
        total: [N] the sums so far; None before the first.
        most: [N] the largest base-2 logit of each row so far; None of plain sums.
    """

    total: Tensor | None = None
    most: Tensor | None = None

    def __init__(self, count: int, like: Tensor, shifted: bool) -> None:
        self.count, self.like, self.shifted = count, like, shifted

    def of_tile(self, values: Tensor, along: int) -> tuple[Tensor, Tensor | None]:
        """Returns the sums of a tile [R, C] along a dimension, and the largest logits that were subtracted, if any."""
        if not self.shifted:
            return values.sum(along), None
        # The smallest number and not -inf, whose difference to itself is none.
        most = values.amax(along).clamp_(min=torch.finfo(values.dtype).min)
        return (values - most.unsqueeze(along)).exp2_().sum(along), most

    def add(self, rows: slice | None, tile_sums: tuple[Tensor, Tensor | None]) -> None:
        """Adds the result of `of_tile` to some rows; None means all."""
        addend, level = tile_sums
        if rows is None and self.total is None:
            self.total, self.most = tile_sums
            return
        if self.total is None:
            self.total = self.like.new_zeros(self.count)
            self.most = self.like.new_full((self.count,), torch.finfo(self.like.dtype).min) if self.shifted else None
        total = select(self.total, rows)
        if self.most is None or level is None:
            total.add_(addend)
            return
        most = select(self.most, rows)
        highest = torch.maximum(most, level)
        total.mul_(torch.exp2(most - highest)).add_(addend.mul_(torch.exp2(level - highest)))
        most.copy_(highest)

    @property
    def sums(self) -> Tensor:
        """The sums of all rows, [N]."""
        return self.like.new_zeros(self.count) if self.total is None else self.total

    def exact(self) -> bool:
        """Returns whether no summand of exp can have overflowed or underflowed; asking waits for the device."""
        low, high = torch.aminmax(self.sums)
        return low.item() > EXACT[0] and high.item() < EXACT[1]

    def result(self, logarithm: bool) -> Tensor:
        """Returns the logarithm of sums of exp, or a copy of the sums of a pair function."""
        sums = self.sums
        if not logarithm:
            return sums.clone()
        return sums.log() if self.most is None else sums.log2().add_(self.most).mul_(LN2)
