"""Logits and loss of selected tokens of a masked language model, computed without those of the other tokens."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

NOT_PREDICTED = -100
"""Label of a token that is not masked."""


def logits_of(model: Any, input_ids: Tensor, attention_mask: Tensor, chosen: Tensor) -> Tensor:
    """Returns the logits of the chosen tokens over the vocabulary, [C, V], in the order of their rows and places.

    The output layer, which takes most of the time of a small model, is applied only to the chosen tokens, unless the model
    does not give access to it.

    Args:
        model: a transformers masked language model.
        input_ids: [n, T] tokens, some of them masked.
        attention_mask: [n, T] non-zero at real tokens.
        chosen: [n, T] boolean, C of them true.
    """

    def choose(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *rest = inputs
        return (hidden[chosen], *rest) if hidden.shape[:-1] == chosen.shape else inputs

    last = model.get_output_embeddings()
    handle = None if last is None else last.register_forward_pre_hook(choose)
    try:
        logits: Tensor = model(input_ids=input_ids, attention_mask=attention_mask).logits
    finally:
        if handle is not None:
            handle.remove()
    return logits if logits.ndim == 2 else logits[chosen]


def masked_loss_sum(model: Any, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
    """Returns the sum of the cross-entropies of the tokens of ``labels``, [n, T], in nats, [], float32; 0 without any."""
    masked = labels != NOT_PREDICTED
    logits = logits_of(model, input_ids, attention_mask, masked).float()
    return F.cross_entropy(logits, labels[masked], reduction="sum")
