"""Centring of a model before its training: unrelated texts that all look alike hide their differences from a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.sentence_transformers.library import modules
from tempplug_adapters.token_vectors import subtract_mean_vector

NEAR, ROUNDING = 0.05, 1e-4
"""Largest length of the mean that is left: a share of that before, and of the mean length of the embeddings."""


AT_ONCE = 1000
"""Texts that are split into tokens at once."""


@torch.no_grad()
def subtract_mean(model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Subtracts the mean of some texts from a model, in its weights, so that it trains and saves as before.

    Call it before the training, with a thousand texts of it or more. docs/retrieval.md has what it gains.

    From the vectors of a static model, the mean over all tokens of the texts is subtracted. Rows of zeros stay zero, which are
    those of unknown tokens, padding and unused entries; a trained row of unknown tokens loses the mean as all others do. From
    the last LayerNorm's bias of a transformer that ends in a pooling, the mean embedding of the texts is subtracted: there
    every token has a vector, also an unknown one, and padding is not pooled.

    Args:
        model: with a static or a transformer module first.
        texts: at least two, with anchors and positives alike.

    Raises:
        DataError: fewer than two texts, or a static model knows none of their tokens; the model is as before.
        ConfigError: the embeddings of the model do not follow such weights; the model is as before.
        NonFiniteError: vectors of a static model are not finite; the model is as before.

    Source: Arora et al. 2017, A Simple but Tough-to-Beat Baseline for Sentence Embeddings, and Mu and Viswanath 2018, All-but-
    the-Top, subtract common components of trained vectors; here the training starts without the mean.
    """
    if len(texts) < 2:
        raise DataError(f"texts has {len(texts)} text(s); a mean needs at least 2.")
    first: Any = model[0]
    bag = getattr(first, "embedding", None)
    if isinstance(bag, nn.EmbeddingBag):
        if bag.mode == "mean" and all(isinstance(each, modules.Normalize) for each in list(model)[1:]):
            subtract_mean_vector(bag.weight, _tokens(first, texts))
            return
    elif _subtract_from_bias(model, texts):
        return
    kinds = " and ".join(type(each).__name__ for each in model)
    raise ConfigError(
        f"model={kinds} must be a static model without further layers, or a transformer whose last weights are a LayerNorm "
        "with a bias, followed by pooling, to lose the mean of its embeddings."
    )


def _tokens(static: Any, texts: Sequence[str]) -> Tensor:
    """Returns all tokens of the texts, [n]; before 5.4 the method has another name."""
    read = getattr(static, "preprocess", None) or static.tokenize
    parts = [read(list(texts[first : first + AT_ONCE])) for first in range(0, len(texts), AT_ONCE)]
    return torch.cat([each["input_ids"] for each in parts])


def _subtract_from_bias(model: SentenceTransformer, texts: Sequence[str]) -> bool:
    """Subtracts the mean embedding from the last bias of a LayerNorm; undoes it and returns False if embeddings keep it."""
    norms = [each for each in model[0].modules() if isinstance(each, nn.LayerNorm)]
    before, length = _mean(model, texts)
    bias = norms[-1].bias if norms else None
    if bias is None or len(bias) != len(before):
        return False
    old = bias.clone()
    bias.sub_(before.to(bias))
    if _mean(model, texts)[0].norm() <= NEAR * before.norm() + ROUNDING * length:
        return True
    bias.copy_(old)
    return False


def _mean(model: SentenceTransformer, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Returns the mean of the embeddings before any normalisation, [D], and their mean length, []."""
    raw = SentenceTransformer(
        modules=[each for each in model if not isinstance(each, modules.Normalize)], device=str(model.device)
    )
    embeddings = raw.encode(list(texts), convert_to_tensor=True, show_progress_bar=False).float()
    return embeddings.mean(0), embeddings.norm(dim=1).mean()
