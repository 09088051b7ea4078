"""Many linear classifiers at once: one product for the logits of all, one for the gradients, one optimizer step.

For a few thousand rows the overhead of an operation exceeds its computation, so all classifiers share every operation, also
those that differ only in the strength of their weight decay.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class LinearFits:
    """Linear classifiers of S sets of rows and R strengths each, with C outputs.

    Args:
        weights: to start with [S, R · C, D + 1], float32, changed in place; the last column holds the biases.
        strengths: of the weight decay (L2), biases included, [S, R].
        optimizer: ``adam`` or ``rmsprop``, with torch's defaults except for the rate.
        rate: learning rate.
    """

    def __init__(self, weights: Tensor, strengths: Tensor, optimizer: str = "adam", rate: float = 0.001) -> None:
        self.weights, self.optimizer, self.rate = weights, optimizer, rate
        self.strengths = strengths.shape[1]
        self.classes = weights.shape[1] // self.strengths
        self.decay = strengths.repeat_interleave(self.classes, dim=1).unsqueeze(2)
        self.moments = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0

    def logits(self, rows: Tensor) -> Tensor:
        """Returns the logits [S, B, R, C] of each set's rows [S, B, D + 1], the last column 1 (`with_ones`)."""
        return (rows @ self.weights.transpose(1, 2)).reshape(len(self.weights), -1, self.strengths, self.classes)

    def step(self, rows: Tensor, targets: Tensor, share: Tensor, *, several: bool = False) -> None:
        """Makes one step of the optimizer on the cross-entropy, weighted over rows.

        Args:
            rows: of each set [S, B, D + 1].
            targets: 1 for a row's class, else 0, [S, B, C].
            share: weight of each row, 0 for padding, [S, B].
            several: rows may have several classes: a sigmoid for each in place of the softmax over all.
        """
        logits = self.logits(rows)
        probabilities = logits.sigmoid() if several else logits.softmax(3)
        slope = probabilities.sub_(targets.unsqueeze(2)).mul_(share[:, :, None, None]).flatten(2)
        gradient = torch.baddbmm(self.decay * self.weights, slope.transpose(1, 2), rows)
        first, second = self.moments
        self.steps += 1
        if self.optimizer == "adam":
            first.lerp_(gradient, 1 - 0.9)
            second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
            length = second.sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
            self.weights.addcdiv_(first, length, value=-self.rate / (1 - 0.9**self.steps))
        else:
            second.mul_(0.99).addcmul_(gradient, gradient, value=1 - 0.99)
            self.weights.addcdiv_(gradient, second.sqrt().add_(1e-8), value=-self.rate)

    def only(self, sets: Tensor) -> None:
        """Keeps only some of the sets, [n] positions."""
        self.weights, self.decay = self.weights[sets], self.decay[sets]
        self.moments = self.moments[0][sets], self.moments[1][sets]


def with_ones(features: Tensor) -> Tensor:
    """Returns rows [N, D + 1] in float32, with a last column of ones for the bias."""
    return torch.cat([features.float(), features.new_ones(len(features), 1, dtype=torch.float32)], dim=1)
