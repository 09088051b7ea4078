"""Cross-entropy among all items, whose table of scores is the largest thing in a step. It must not know encoders."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _CrossEntropy(torch.autograd.Function):
    """Scores become probabilities and then gradients in the one place where they lie, and are gone before anything else is.

    Left to autograd, tables of that size live until the backward pass; among the small tensors that come and go meanwhile, the
    allocator of the C library finds no room for the next step's, and takes gigabytes more.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        table = (states @ items.T).to(states.dtype)
        highest = table.amax(1, keepdim=True)
        own = table.gather(1, targets[:, None]) - highest
        sums = table.sub_(highest).exp_().sum(1, keepdim=True)
        if any(ctx.needs_input_grad):
            # ∂ of the mean over the rows: (softmax − one-hot) / B
            share = table.div_(sums * len(states))
            share.scatter_add_(1, targets[:, None], share.new_full((len(states), 1), -1 / len(states)))
            ctx.save_for_backward((share @ items).to(states.dtype), (share.T @ states).to(items.dtype))
        return (sums.log() - own).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        of_states, of_items = ctx.saved_tensors
        return gradient * of_states, gradient * of_items, None


def cross_entropy(states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean over rows of −ln softmax(states · itemsᵀ) at the target, in nats, [].

    Args:
        states: [B, D].
        items: [I, D].
        targets: [B] in [0, I).
    """
    loss: Tensor = _CrossEntropy.apply(states, items, targets)  # type: ignore[no-untyped-call]
    return loss
