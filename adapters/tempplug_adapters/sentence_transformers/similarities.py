"""Similarity functions as the library has them: their names, and the scores of each row's own texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers.util import cos_sim
from torch import Tensor
from torch.nn.functional import normalize


def function_name(function: Any) -> str:
    """Returns the name of a function, or of the class of a callable."""
    return getattr(function, "__name__", type(function).__name__)


def own_scores(anchors: Tensor, own: Tensor, similarity: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the similarity of each anchor with the texts of its row, [B, 1 + k]; embeddings [B, D] and [B, 1 + k, D]."""
    if similarity is cos_sim:
        return torch.einsum("bd,bkd->bk", normalize(anchors), normalize(own, dim=-1))
    count, texts, _ = own.shape
    scores = similarity(anchors, own.flatten(0, 1)).reshape(count, count, texts)
    return scores.diagonal().T
