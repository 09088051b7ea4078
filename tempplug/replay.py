"""State that moves once a call, also where `torch.utils.checkpoint` computes the call a second time, in the backward pass.

A strategy or an objective that observes batches has moved on by then, and so has a term that counts, so the second computation
needs what came of the state in the first: a logit map, a number for each row, a term. This module must not know any of them.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tempplug.types import Batch

T = TypeVar("T")

# Calls between a forward pass and its backward pass: heads times directions times whatever one step puts together.
REMEMBERED = 64
# Recomputed similarities may differ in their last digits, those of another batch differ in all.
SAME = 1e-3


class Replay(Generic[T]):
    """What was made of the batches of the last calls in training, each with what it is recognised by."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Tensor, T]] = deque(maxlen=REMEMBERED)

    def remember(self, batch: Batch, made: T) -> None:
        """Keeps what was made of a batch."""
        self._calls.append((_mark(batch), made))

    def recall(self, batch: Batch) -> T | None:
        """Returns what was made of this batch when it was computed first; None where it never was."""
        mark = _mark(batch)
        found = [
            (float((mark - other).abs().max()), -age, made)
            for age, (other, made) in enumerate(self._calls)
            if other.shape == mark.shape and other.device == mark.device
        ]
        if not found:
            return None
        distance, _, made = min(found, key=lambda each: each[:2])
        return made if distance <= SAME else None


def _mark(batch: Batch) -> Tensor:
    """Returns a few numbers of a batch, [4, N], of one of scores [1, N]; copies, so that nothing of it is kept alive."""
    if batch.anchors is None:
        return batch.positive_similarity.clone()[None]
    rows = batch.anchors.detach()
    index = rows.new_zeros(len(rows)) if batch.index is None else batch.index.to(rows.dtype)
    # The two views of a row may be equal where what is kept of them is not.
    views = torch.full_like(index, len(rows) if batch.of_view_a is None else batch.of_view_a)
    return torch.stack([rows[:, 0], rows[:, -1], index, views])
