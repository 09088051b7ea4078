"""subtract_mean: embeddings are those of before without their mean, also after saving; other models are refused unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformer_toys import sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding, Transformer
from torch import nn
from transformers import AutoTokenizer

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.sentence_transformers import subtract_mean

TEXTS = sentences(40, columns=1)["anchor"]


def made(tiny_bert: Path, kind: str, width: int = 0) -> SentenceTransformer:
    torch.manual_seed(0)
    if kind.startswith("static"):
        first = StaticEmbedding(AutoTokenizer.from_pretrained(tiny_bert), embedding_dim=8)
        nn.init.normal_(first.embedding.weight, mean=3.0)
        modules = [first]
    else:
        pooling = "cls" if kind == "cls" else "mean"
        modules = [Transformer(str(tiny_bert)), Pooling(16, pooling), *([Dense(16, width)] if width else [])]
    more = [Normalize()] if "normalised" in kind else []
    return SentenceTransformer(modules=[*modules, *more], device="cpu")


def raw(model: SentenceTransformer) -> torch.Tensor:
    """Returns the embeddings of the texts before any normalisation."""
    modules = [each for each in model if not isinstance(each, Normalize)]
    return SentenceTransformer(modules=modules, device="cpu").encode(TEXTS, convert_to_tensor=True)


@pytest.mark.parametrize("kind", ["static", "static, normalised", "mean", "mean, normalised", "cls"])
def test_the_embeddings_lose_their_mean_and_nothing_else(tiny_bert: Path, tmp_path: Path, kind: str) -> None:
    model = made(tiny_bert, kind)
    before = raw(model)
    subtract_mean(model, TEXTS)
    torch.testing.assert_close(raw(model), before - before.mean(0), rtol=0, atol=1e-5)
    subtract_mean(model, TEXTS)  # a second call finds only what rounding left
    torch.testing.assert_close(raw(model), before - before.mean(0), rtol=0, atol=1e-5)
    model.save(str(tmp_path), create_model_card=False)
    again = SentenceTransformer(str(tmp_path), device="cpu")
    torch.testing.assert_close(raw(again), raw(model), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [4, 16])
def test_a_model_that_ends_otherwise_is_refused_and_unchanged(tiny_bert: Path, width: int) -> None:
    model = made(tiny_bert, "dense", width)
    before = raw(model)
    with pytest.raises(ConfigError, match="model=Transformer and Pooling and Dense must be a static model, or a transformer"):
        subtract_mean(model, TEXTS)
    torch.testing.assert_close(raw(model), before, rtol=0, atol=0)


def test_a_mean_needs_texts(tiny_bert: Path) -> None:
    with pytest.raises(DataError, match=r"texts has 1 text\(s\); a mean needs at least 2"):
        subtract_mean(made(tiny_bert, "static"), TEXTS[:1])
