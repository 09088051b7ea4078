"""Pools the token vectors of a transformer into one vector per sentence, for training and evaluation.

The poolings have the names of SimCSE's code. Importing this module loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError, ShapeError, UnknownNameError, nearest

if TYPE_CHECKING:
    from torch import Tensor

POOLINGS = ("cls", "cls_before_pooler", "avg", "avg_first_last", "avg_top2")
LAYER_POOLINGS = ("avg_first_last", "avg_top2")
"""Poolings of several layers: the model must be called with ``output_hidden_states=True``."""


def check_pooling(how: str) -> str:
    """Returns ``how``; raises UnknownNameError if it is no pooling."""
    if how not in POOLINGS:
        raise UnknownNameError(f"pooling='{how}' is not one of {', '.join(POOLINGS)}.{nearest(how, POOLINGS)}")
    return how


def pool(outputs: Tensor | Any, attention_mask: Tensor, how: str) -> Tensor:
    """Returns one vector per sentence, [B, D]; averages have at least float32, the others the model's dtype.

    Args:
        outputs: the last hidden state [B, T, D], or a transformers output with ``last_hidden_state`` and, depending on the
            pooling, ``pooler_output`` or ``hidden_states``.
        attention_mask: [B, T], non-zero at real tokens. The average of a sentence without tokens is the zero vector.
        how: ``cls``: output of the model's own pooler (a linear layer and tanh) for the first token;
            ``cls_before_pooler``: the last layer at the first real token;
            ``avg``: mean of the last layer over the real tokens;
            ``avg_first_last`` and ``avg_top2``: the same mean for the average of the first and the last layer, or of the last
            two layers.

    Raises:
        UnknownNameError: ``how`` is no pooling.
        ConfigError: the outputs lack an input of the pooling.
        ShapeError: the shapes of hidden states and mask do not fit.

    Source:
        SimCSE (Gao et al. 2021), ablation of pooling methods, and its code. "First" is ``hidden_states[1]``, the first
        transformer layer; the paper's figures are for ``hidden_states[0]``, the embeddings, which its authors corrected later.

    >>> import torch
    >>> tokens = torch.tensor([[[2.0], [4.0], [9.0]]])
    >>> pool(tokens, torch.tensor([[1, 1, 0]]), "avg").tolist()
    [[3.0]]
    """
    import torch

    check_pooling(how)
    last = getattr(outputs, "last_hidden_state", outputs)
    if last.ndim != 3 or attention_mask.shape != last.shape[:2]:
        raise ShapeError(
            f"hidden states {list(last.shape)} and attention_mask {list(attention_mask.shape)} must be [B, T, D] and [B, T]."
        )
    if how == "cls":
        pooled = getattr(outputs, "pooler_output", None)
        if pooled is None:
            raise ConfigError("pooling='cls' needs a model with a pooler of its own; cls_before_pooler needs none.")
        vectors: Tensor = pooled
        return vectors
    if how == "cls_before_pooler":
        # argmax finds the first real token, so that left-padded batches do not yield the vector of a padding token.
        first_token = attention_mask.ne(0).int().argmax(dim=1)
        return last[torch.arange(len(last), device=last.device), first_token]
    tokens = _at_least_float32(last)
    if how in LAYER_POOLINGS:
        layers = getattr(outputs, "hidden_states", None)
        if not layers:
            raise ConfigError(f"pooling='{how}' needs all layers: call the model with output_hidden_states=True.")
        other = layers[1] if how == "avg_first_last" else layers[-2]
        tokens = (_at_least_float32(other) + tokens) / 2
    weights = attention_mask.ne(0).unsqueeze(-1).to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def _at_least_float32(values: Tensor) -> Tensor:
    import torch

    return values.to(torch.promote_types(values.dtype, torch.float32))
