"""Similarity functions as the library has them: their names, and the scores of each row's own texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentence_transformers.util import cos_sim
from torch import Tensor
from torch.nn.functional import normalize

from tempplug.precision import at_least_float32


def function_name(function: Any) -> str:
    """Returns the name of a function, or of the class of a callable."""
    return getattr(function, "__name__", type(function).__name__)


def own_scores(anchors: Tensor, own: Tensor, similarity: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the similarity of each anchor with the texts of its row, [B, 1 + k]; embeddings [B, D] and [B, 1 + k, D]."""
    if similarity is cos_sim:
        # no matrix product, which autocast would compute in 16 bits
        unit_anchors, units = (normalize(at_least_float32(rows), dim=-1) for rows in (anchors[:, None], own))
        return (unit_anchors * units).sum(2)
    count, texts, _ = own.shape
    scores = similarity(anchors, own.flatten(0, 1)).reshape(count, count, texts)
    return scores.diagonal().T
