"""subtract_mean: a model loses its mean and nothing else, also after saving, and zero rows stay zero; others are refused."""

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


def saved(model: SentenceTransformer, folder: Path) -> SentenceTransformer:
    model.save(str(folder), create_model_card=False)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("kind", ["mean", "mean, normalised", "cls"])
def test_a_transformer_loses_the_mean_of_its_embeddings_and_nothing_else(tiny_bert: Path, tmp_path: Path, kind: str) -> None:
    model = made(tiny_bert, kind)
    before = raw(model)
    subtract_mean(model, TEXTS)
    torch.testing.assert_close(raw(model), before - before.mean(0), rtol=0, atol=1e-5)
    subtract_mean(model, TEXTS)  # a second call finds only what rounding left
    torch.testing.assert_close(raw(model), before - before.mean(0), rtol=0, atol=1e-5)
    torch.testing.assert_close(raw(saved(model, tmp_path)), raw(model), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["static", "static, normalised"])
def test_the_vectors_of_a_static_model_lose_the_mean_over_all_tokens(tiny_bert: Path, tmp_path: Path, kind: str) -> None:
    model, tokenizer = made(tiny_bert, kind), AutoTokenizer.from_pretrained(tiny_bert)
    texts = [*TEXTS, "zzz dog", "zzz qqq"]
    tokens = [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert tokens.count(tokenizer.unk_token_id) == 3
    weight = model[0].embedding.weight
    empty = [tokenizer.unk_token_id, tokenizer.pad_token_id, tokenizer.vocab["guitar"]]
    with torch.no_grad():
        weight[empty] = 0
    expected = weight.detach().double().clone()
    expected[[row for row in range(len(weight)) if row not in empty]] -= sum(expected[token] for token in tokens) / len(tokens)
    subtract_mean(model, texts)
    torch.testing.assert_close(weight.detach().double(), expected, rtol=0, atol=1e-6)
    assert not weight[empty].any()
    again = saved(model, tmp_path)
    assert torch.equal(again[0].embedding.weight, weight)
    first, second = again.encode(["red zzz", "piano zzz"], convert_to_tensor=True)
    known = torch.nn.functional.cosine_similarity(weight[tokenizer.vocab["red"]], weight[tokenizer.vocab["piano"]], dim=0)
    assert torch.nn.functional.cosine_similarity(first, second, dim=0) == pytest.approx(known.item(), abs=1e-6)


def test_a_trained_row_of_unknown_tokens_loses_the_mean_like_those_of_words(tiny_bert: Path) -> None:
    model = made(tiny_bert, "static")
    weight = model[0].embedding.weight
    before = weight.detach().clone()
    subtract_mean(model, TEXTS)
    shift = before - weight.detach()
    assert shift.norm(dim=1).min() > 1
    torch.testing.assert_close(shift, shift[:1].expand_as(shift), rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [4, 16])
def test_a_model_that_ends_otherwise_is_refused_and_unchanged(tiny_bert: Path, width: int) -> None:
    model = made(tiny_bert, "dense", width)
    before = raw(model)
    with pytest.raises(ConfigError, match="model=Transformer and Pooling and Dense must be a static model without further"):
        subtract_mean(model, TEXTS)
    torch.testing.assert_close(raw(model), before, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_a_static_model_that_is_no_mean_of_vectors_is_refused_and_unchanged(tiny_bert: Path, mode: str) -> None:
    model = made(tiny_bert, "static")
    model[0].embedding.mode = mode
    if mode == "mean":
        model = SentenceTransformer(modules=[*model, Dense(8, 8)], device="cpu")
    before = raw(model)
    with pytest.raises(ConfigError, match=r"model=StaticEmbedding.* must be a static model without further layers"):
        subtract_mean(model, TEXTS)
    torch.testing.assert_close(raw(model), before, rtol=0, atol=0)


def test_a_mean_needs_texts_of_known_words(tiny_bert: Path) -> None:
    with pytest.raises(DataError, match=r"texts has 1 text\(s\); a mean needs at least 2"):
        subtract_mean(made(tiny_bert, "static"), TEXTS[:1])
    model, tokenizer = made(tiny_bert, "static"), AutoTokenizer.from_pretrained(tiny_bert)
    with torch.no_grad():
        model[0].embedding.weight[tokenizer.unk_token_id] = 0
    before = raw(model)
    for texts, number in ((["", " "], 0), (["zzz", "qqq zzz"], 3)):
        with pytest.raises(DataError, match=f"texts has {number} tokens, none with a vector other than 0"):
            subtract_mean(model, texts)
    assert torch.equal(raw(model), before)
