"""From the token vectors of a transformer to one vector a sentence.

Holds the poolings that training and evaluation share. Knows nothing of models, tokenizers or losses: a head that is used
in training only belongs to the trainer, and its model is evaluated with the pooling below that head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError, UnknownNameError, nearest

POOLINGS = ("cls", "avg", "avg_first_last")


def check_pooling(how: str) -> str:
    """Returns ``how`` if it names a pooling.

    Raises:
        UnknownNameError: it does not.
    """
    if how not in POOLINGS:
        raise UnknownNameError(f"pooling='{how}' is not one of {', '.join(POOLINGS)}.{nearest(how, POOLINGS)}")
    return how


def pool(outputs: Tensor | Any, attention_mask: Tensor, how: str) -> Tensor:
    """Returns one vector a sentence: [B, D], in float32 or wider for the averages and in the model's dtype for ``cls``.

    Args:
        outputs: the last hidden state [B, T, D], or a transformers output that has ``last_hidden_state`` and, for
            ``avg_first_last``, ``hidden_states``.
        attention_mask: [B, T], non-zero where a real token stands. A sentence without any has the zero vector as average.
        how: ``cls``, the last layer at the first real token, before any pooler or head;
            ``avg``, the mean of the last layer over the real tokens;
            ``avg_first_last``, the same mean of the average of the embedding layer's output and the last layer.

    Raises:
        UnknownNameError: ``how`` names no pooling.
        ConfigError: ``avg_first_last`` without the hidden states of all layers.
        ShapeError: hidden states and mask do not fit.

    Source:
        SimCSE (Gao et al. 2021), ablation of pooling methods. "First" is ``hidden_states[0]``, the output of the embedding
        layer rather than of the first attention layer, as in the authors' code.

    >>> tokens = torch.tensor([[[2.0], [4.0], [9.0]]])
    >>> pool(tokens, torch.tensor([[1, 1, 0]]), "avg").tolist()
    [[3.0]]
    """
    check_pooling(how)
    last = outputs if isinstance(outputs, Tensor) else outputs.last_hidden_state
    if last.ndim != 3 or attention_mask.shape != last.shape[:2]:
        raise ShapeError(
            f"hidden states {list(last.shape)} and attention_mask {list(attention_mask.shape)} must be [B, T, D] and [B, T]."
        )
    if how == "cls":
        # argmax finds the first real token, so that left-padded batches do not yield the vector of a padding token.
        first_token = attention_mask.ne(0).int().argmax(dim=1)
        return last[torch.arange(len(last), device=last.device), first_token]
    tokens = _at_least_float32(last)
    if how == "avg_first_last":
        layers = None if isinstance(outputs, Tensor) else getattr(outputs, "hidden_states", None)
        if not layers:
            raise ConfigError("pooling='avg_first_last' needs all layers: call the model with output_hidden_states=True.")
        tokens = (_at_least_float32(layers[0]) + tokens) / 2
    weights = attention_mask.ne(0).unsqueeze(-1).to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
