"""The measurements of time beside plain PyTorch and sentence-transformers: both sides compute the same loss, and are timed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from studies.other_libraries import large_batch, node_speed, targets_cost
from studies.other_libraries.sentence_transformers_speed import COLUMNS, measure, sentences
from tempplug_adapters.graph.nodes import Nodes
from tempplug_benchmarks.tasks.node import citation_graph


def test_both_rankings_losses_have_one_value_and_are_timed() -> None:
    columns = sentences(12, 30, 0)
    assert [len(column) for column in columns] == [12] * COLUMNS
    tokenizer = Tokenizer(models.WordLevel({f"w{place}": place for place in range(30)}, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").train()
    found = measure(model, lambda: [model.preprocess(column) for column in columns], 2, None, "fixed:temperature=0.05")
    assert (found["difference"], found["rounds"]) == (pytest.approx(0, abs=1e-5), 2)
    assert min(found["tempplug_seconds"], found["library_seconds"], found["ratio"]) > 0


def test_large_batches_have_one_loss_and_one_gradient_in_parts(data_dir: Path) -> None:
    (plain, expected), *others = (
        large_batch.measure(way, str(data_dir / "text" / "bert-wiki-mini"), 24, 4) for way in large_batch.WAYS
    )
    for found, gradient in others:
        assert found["loss"] == pytest.approx(plain["loss"], rel=1e-5)
        assert (gradient - expected).norm() < 1e-4 * expected.norm()
        assert found["cpu_seconds"] > 0
    assert expected.norm() > 0


def test_the_plain_formula_has_the_same_value_and_both_are_timed() -> None:
    speed = node_speed.measure(Nodes(citation_graph(0)), epochs=1, temperature=0.3)
    assert speed["tempplug_loss"] == pytest.approx(speed["plain_loss"], rel=1e-5)
    assert speed["tempplug_loss"] > 1
    assert min(speed["tempplug_seconds"], speed["plain_seconds"]) > 0


def test_targets_have_one_loss_and_one_gradient_in_both_ways() -> None:
    first, second, targets = targets_cost.data(12)
    assert targets.sum(1).tolist() == pytest.approx([1.0] * 12)
    found = []
    for make in targets_cost.WAYS.values():
        first.grad = second.grad = None
        found.append((targets_cost.step(make(), first, second, targets), first.grad, second.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
    assert targets_cost.seconds(targets_cost.plain, (first, second, targets), 0) > 0
