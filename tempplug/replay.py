"""State that moves once a call, also where `torch.utils.checkpoint` computes the call a second time, in the backward pass.

A strategy that observes batches has moved on by then, so the second computation needs the logit map of the first. This module
must not know any strategy.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.strategies.maps import LogitMap
from tempplug.types import Batch

# Calls between a forward pass and its backward pass: heads times directions times whatever one step puts together.
REMEMBERED = 64
# Recomputed similarities may differ in their last digits, those of another batch differ in all.
SAME = 1e-3


class Replay:
    """The logit maps of the last calls in training, each with what its batch is recognised by."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Tensor, LogitMap | None]] = deque(maxlen=REMEMBERED)

    def remember(self, batch: Batch, logit_map: LogitMap) -> None:
        """Keeps the map of a batch; of one that learns, only that there was one."""
        self._calls.append((_mark(batch), None if logit_map.tensors() else logit_map))

    def recall(self, batch: Batch, strategy: str) -> LogitMap | None:
        """Returns the map that this batch had when it was computed first; None where it never was.

        Args:
            batch: of the second computation.
            strategy: its name, for the message.

        Raises:
            ConfigError: the map learns, and the state that it was made from is gone.
        """
        mark = _mark(batch)
        found = [
            (float((mark - other).abs().max()), -age, logit_map)
            for age, (other, logit_map) in enumerate(self._calls)
            if other.shape == mark.shape and other.device == mark.device
        ]
        if not found:
            return None
        distance, _, logit_map = min(found, key=lambda each: each[:2])
        if not distance <= SAME:
            return None
        if logit_map is None:
            raise ConfigError(
                f"strategy '{strategy}' both learns and observes batches, so a checkpoint cannot compute its logits again: "
                "call the loss outside of torch.utils.checkpoint."
            )
        return logit_map


def _mark(batch: Batch) -> Tensor:
    """Returns a few numbers of a batch, [3, N], of one of scores [1, N]; copies, so that nothing of it is kept alive."""
    if batch.anchors is None:
        return batch.positive_similarity.clone()[None]
    rows = batch.anchors.detach()
    index = rows.new_zeros(len(rows)) if batch.index is None else batch.index.to(rows.dtype)
    return torch.stack([rows[:, 0], rows[:, -1], index])
