"""From files of texts to batches, columns that are printed and kept, and vectors with the ids of their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from simcse_toys import recipe, run, write_toys
from table_files import of_arrow, of_lines
from torch.nn import functional as F

import tempplug_adapters
from tempplug.cli import main
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse.method import SimCSEMethod
from tempplug_adapters.simcse.recipe import METHOD
from tempplug_adapters.training.method import Source

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def folder(toys: Path) -> Path:
    """The output folder of an encoder that was not trained."""
    run(toys, toys / "out", num_train_epochs=0, evaluate=False)
    return toys / "out"


def test_vectors_of_a_table_keep_its_ids_and_rows(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"doc_id": [70, 5, 6], "title": ["a dog", "a cat", "an owl"], "answer": [["x", "y"], ["z"], ["w"]]}
    of_arrow(table)(tmp_path / "t.parquet")
    words = ["embed", str(folder), str(tmp_path / "t.parquet"), "--output", str(tmp_path / "v.parquet")]
    assert main(words) == 0
    assert "7 vectors of 32 numbers, in the order of" in (said := capsys.readouterr().out)
    assert "a vector for each text of title, answer: 3 rows\n" in said
    found = parquet.read_table(tmp_path / "v.parquet").to_pydict()
    assert found["id"] == ["70", "70", "70", "5", "5", "6", "6"]
    assert (found["row"], found["name"]) == ([0, 0, 0, 1, 1, 2, 2], ["a dog", "x", "y", "a cat", "z", "an owl", "w"])
    expected = tempplug_adapters.load(folder).embed(found["name"])
    torch.testing.assert_close(torch.tensor(found["vector"]), expected)
    assert main([*words, "--columns", "title"]) == 0
    assert parquet.read_table(tmp_path / "v.parquet").to_pydict()["name"] == table["title"]
    assert "a vector for each" not in capsys.readouterr().out


def test_vectors_of_lines_are_one_a_line_or_none(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["embed", str(folder), str(tmp_path / "t.txt"), "--output", str(tmp_path / "v.npy")]
    for content in ("a\n\nb\n", "a\nb\n \n"):
        (tmp_path / "t.txt").write_text(content)
        assert main(words) == 2
        blank = content.split("\n").index(next(line for line in content.split("\n") if not line.strip())) + 1
        assert f"1 of 3 rows have no anchor, line {blank} first: remove them" in capsys.readouterr().err
    (tmp_path / "t.txt").write_text("3\nnan\n")
    assert main(words) == 0
    assert len(np.load(tmp_path / "v.npy")) == 2


def test_a_training_prints_and_keeps_its_columns(toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": f"q{n}", "query": f"a {n}", "positive": f"b {n}", "negative": None if n < 9 else f"c {n}"} for n in range(40)
    ]
    of_lines(*rows)(tmp_path / "t.jsonl")
    words = ["train", "simcse", "--dataset", str(tmp_path / "t.jsonl"), "--data-dir", str(toys / "sts"), "--no-evaluate"]
    words += ["--model-name-or-path", str(toys / "encoder"), "--output-dir", str(tmp_path / "out"), "--eval-strategy", "no"]
    assert main([*words, "--load-best-model-at-end", "false", "--per-device-train-batch-size", "8"]) == 0
    captured = capsys.readouterr()
    said = captured.err + captured.out
    for line in (
        "t.jsonl: 40 pairs, with up to 1 hard negatives\n",
        "anchor: column 'query' (text), 40 values, 0 missing, first 'a 0'\n",
        "positive: column 'positive' (text), 40 values, 0 missing, first 'b 0'\n",
        "negative: column 'negative' (text), 31 values, 9 missing, first 'c 9'\n",
        "not read: 'id'\n",
    ):
        assert line in said
    kept = json.loads((tmp_path / "out/tempplug.json").read_text())
    columns = {"anchor": ["query"], "positive": ["positive"], "negative": ["negative"]}
    assert kept["tables"] == [{"file": "t.jsonl", "columns": columns}]


def test_texts_that_differ_in_number_are_drawn_and_masked(toys: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "the sailor", "pos": ["a boat", "a car", "a dog"], "neg": ["the king", "the queen"]},
        {"query": "a garden", "pos": ["the yard"], "neg": []},
        {"query": "one", "pos": ["two"], "neg": [f"a {n}" for n in range(9)]},
        {"query": "three", "pos": ["four"]},
    ]
    of_lines(*rows)(tmp_path / "t.jsonl")
    settings = recipe(toys, hard_negatives=3, dropout=0.0, pooling="avg")
    data = SimCSEMethod(METHOD).load(settings, Source(str(tmp_path / "t.jsonl"), None, tmp_path, evaluated=False))
    assert data.kind == (
        "pairs, with up to 3 positives, of which each epoch draws one, and up to 9 hard negatives, of which each epoch draws 3"
    )
    torch.manual_seed(0)
    seen: set[tuple[int, ...]] = set()
    for _ in range(60):
        drawn = data.batch(torch.arange(4))["drawn"]
        assert (drawn[:, 2:] >= 0).sum(1).tolist() == [2, 0, 3, 0]
        seen.add(tuple(drawn[[0, 2, 2], [1, 2, 3]].tolist()))
    assert {each[0] for each in seen} == {1, 2, 3}
    assert {each[1] for each in seen} == set(range(2, 11))

    rows_of_batch = [0, 1, 2]
    batch = data.batch(torch.tensor(rows_of_batch))
    loss = SimCSEMethod(METHOD).create_loss(settings, data, TemperatureArguments("fixed:temperature=0.1", [], None))
    module = SimCSEMethod(METHOD).build(settings, data, loss).train()
    chosen = zip(rows_of_batch, batch["drawn"].tolist(), strict=True)
    texts = [[data.views.samples[row].texts[number] for number in numbers if number >= 0] for row, numbers in chosen]
    flat = [text for sample in texts for text in sample]
    tokens = data.tokenizer(flat, padding=True, return_tensors="pt")
    with torch.no_grad():
        units = F.normalize(module.model(tokens["input_ids"], tokens["attention_mask"])["embedding"], dim=1)
    vector = dict(zip(flat, units, strict=True))
    anchors, positives = zip(*(sample[:2] for sample in texts), strict=True)
    negatives = [text for sample in texts for text in sample[2:]]
    logits = (
        torch.stack([vector[text] for text in anchors]) @ torch.stack([vector[text] for text in (*positives, *negatives)]).T
    )
    torch.testing.assert_close(module(**batch), F.cross_entropy(logits / 0.1, torch.arange(3)))
