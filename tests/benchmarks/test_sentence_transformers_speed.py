"""The comparison of step times with sentence-transformers: both sides compute the same, and both are timed."""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from tempplug_benchmarks.tasks.sentence_transformers_speed import COLUMNS, measure, sentences


def test_both_losses_have_one_value_and_are_timed() -> None:
    columns = sentences(12, 30, 0)
    assert [len(column) for column in columns] == [12] * COLUMNS
    tokenizer = Tokenizer(models.WordLevel({f"w{place}": place for place in range(30)}, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").train()
    found = measure(model, lambda: [model.preprocess(column) for column in columns], 2, None, "fixed:temperature=0.05")
    assert found["difference"] == pytest.approx(0, abs=1e-5)
    assert found["rounds"] == 2
    assert min(found["tempplug_seconds"], found["library_seconds"], found["ratio"]) > 0
