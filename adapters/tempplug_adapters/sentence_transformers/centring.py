"""Centring of a model before its training: unrelated texts that all look alike hide their differences from a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.sentence_transformers.library import modules

NEAR, ROUNDING = 0.05, 1e-4
"""Largest length of the mean that is left: a share of that before, and of the mean length of the embeddings."""


@torch.no_grad()
def subtract_mean(model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Subtracts the mean embedding of some texts from all embeddings of a model, in its weights, so that it trains and saves as
    before.

    The mean is subtracted from the vectors of a static model, or from the bias of the last LayerNorm of a transformer that ends
    in a pooling. Call it before the training, with a thousand texts of it or more. docs/retrieval.md has what it gains.

    Args:
        model: with a static or a transformer module first.
        texts: at least two, with anchors and positives alike.

    Raises:
        DataError: fewer than two texts.
        ConfigError: the embeddings of the model do not follow such weights; the model is as before.

    Source: Arora et al. 2017, A Simple but Tough-to-Beat Baseline for Sentence Embeddings, and Mu and Viswanath 2018, All-but-
    the-Top, subtract common components of trained vectors; here the training starts without the mean.
    """
    if len(texts) < 2:
        raise DataError(f"texts has {len(texts)} text(s); a mean needs at least 2.")
    before, length = _mean(model, texts)
    weight = _last(model)
    if weight is not None and weight.shape[-1] == len(before):
        old = weight.clone()
        weight.sub_(before.to(weight))
        if _mean(model, texts)[0].norm() <= NEAR * before.norm() + ROUNDING * length:
            return
        weight.copy_(old)
    kinds = " and ".join(type(each).__name__ for each in model)
    raise ConfigError(
        f"model={kinds} must be a static model, or a transformer whose last weights are a LayerNorm with a bias, followed by "
        "pooling, to lose the mean of its embeddings."
    )


def _mean(model: SentenceTransformer, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Returns the mean of the embeddings before any normalisation, [D], and their mean length, []."""
    raw = SentenceTransformer(
        modules=[each for each in model if not isinstance(each, modules.Normalize)], device=str(model.device)
    )
    found = raw.encode(list(texts), convert_to_tensor=True, show_progress_bar=False).float()
    return found.mean(0), found.norm(dim=1).mean()


def _last(model: SentenceTransformer) -> Any:
    """Returns the weight that every embedding has as an additive part, or None."""
    first: Any = model[0]
    embedding = getattr(first, "embedding", None)
    if isinstance(embedding, nn.EmbeddingBag):
        return embedding.weight
    norms = [each for each in first.modules() if isinstance(each, nn.LayerNorm)]
    return norms[-1].bias if norms else None
