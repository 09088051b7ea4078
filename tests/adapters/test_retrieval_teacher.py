"""`tempplug train retrieval` with a teacher's scores: the loss of a batch by its formula, a training, and missing scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse.retrieval_recipe import METHOD
from tempplug_adapters.training.method import Source
from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    write_tiny_encoder(folder / "encoder", seed=0, layers=1, width=32)
    return folder


def taught(folder: Path, **changes: Any) -> Path:
    """200 queries in BGE's layout, some with two positives, some with fewer hard negatives, and a teacher's scores."""
    pairs, file = paraphrase_pairs(203, 0), folder / "taught.jsonl"
    lines = []
    for place, (query, document) in enumerate(pairs[:200]):
        hard = [pairs[place + step][1] for step in range(1, 4 - place % 2)]
        positives = [document, f"{document} {query}"][: 1 + (place % 5 == 1)]
        scores = {"pos_scores": [5.0, 2.0][: len(positives)], "neg_scores": [place / 100 - step for step in range(len(hard))]}
        lines.append({"query": query, "pos": positives, "neg": hard, **scores, **changes.get(str(place), {})})
    rows = [{name: value for name, value in line.items() if name not in changes.get("without", ())} for line in lines]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(("hard_negatives", "positives"), [(None, None), (1, None), (2, "all")])
def test_a_teachers_scores_are_the_targets_of_a_batch(
    toys: Path, tmp_path: Path, hard_negatives: int | None, positives: str | None
) -> None:
    """Against a dense formula with the texts and scores of the file; missing hard negatives are no candidates."""
    settings = METHOD.recipe(
        model_name_or_path=str(toys / "encoder"), teacher_temperature=2.0, hard_negatives=hard_negatives, positives=positives
    )
    method, file = METHOD.load(), taught(tmp_path)
    data = method.load(settings, Source(str(file), toys, tmp_path, evaluated=False))
    loss = method.create_loss(settings, data, TemperatureArguments("fixed:temperature=0.1", [], None))
    module = method.build(settings, data, loss).eval()
    batch = method.collate(settings, data, torch.arange(12))
    found = module(**batch)
    known = {}
    for row in map(json.loads, file.read_text().splitlines()):
        for text, score in zip(row["pos"] + row["neg"], row["pos_scores"] + row["neg_scores"], strict=True):
            known[row["query"].strip(), text.strip()] = score
    drawn = batch["drawn"] if "drawn" in batch else torch.arange(data.views.width).expand(12, -1)
    samples = [data.views.samples[row] for row in range(12)]
    texts = [
        [sample.texts[number] for number in numbers if number >= 0] for sample, numbers in zip(samples, drawn, strict=True)
    ]

    def embed(several: list[str]) -> torch.Tensor:
        tokens = data.tokenizer(several, padding=True, truncation=True, max_length=settings.max_length, return_tensors="pt")
        return torch.nn.functional.normalize(module(**{name: tokens[name] for name in ("input_ids", "attention_mask")}))

    queries, losses = embed([each[0] for each in texts]), []
    documents = embed([text for each in texts for text in each[1:]])
    counts = [len(each) - 1 for each in texts]
    for row, log_shares in enumerate(torch.log_softmax(queries @ documents.T / 0.1, 1).split(1)):
        own = log_shares[0].split(counts)[row]
        scores = torch.tensor([known[texts[row][0], text] for text in texts[row][1:]])
        losses.append(-(torch.softmax(scores / 2, 0) * own).sum())
    torch.testing.assert_close(found, torch.stack(losses).mean(), rtol=1e-5, atol=1e-5)
    assert max(counts) == 1 + (hard_negatives or 3)


def test_a_training_with_a_teacher_says_so_and_trains_in_parts(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model-name-or-path", toys / "encoder", "--dataset", taught(tmp_path), "--max-length", "32"]
    words += ["--num-train-epochs", "1", "--per-device-train-batch-size", "16", "--dropout", "0", "--learning-rate", "1e-3"]
    metrics = {}
    for name, more in {
        "whole": ["--teacher-temperature", "2"],
        "parts": ["--teacher-temperature", "2", "--contrastive-mini-batch-size", "5"],
        "plain": [],
    }.items():
        given = [*words, "--output-dir", tmp_path / name, *more]
        assert main(["train", "retrieval", *map(str, given)]) == 0
        said = capsys.readouterr()
        text = said.out + said.err
        assert ("a teacher's scores, divided by 2: each query's positive and hard negatives" in text) == bool(more)
        assert ("positive_scores: column 'pos_scores'" in text) == bool(more)
        assert ("not read: 'pos_scores', 'neg_scores'" in text) != bool(more)
        metrics[name] = json.loads((tmp_path / name / "metrics.json").read_text())
    assert metrics["whole"]["recipe"]["teacher_temperature"] == 2
    assert metrics["parts"]["loss"] == pytest.approx(metrics["whole"]["loss"], rel=1e-4)
    assert metrics["plain"]["loss"] != pytest.approx(metrics["whole"]["loss"], rel=1e-2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"without": ["neg_scores"]},
            r"lacks a teacher's negative_scores, lists of numbers\. Name their column: --columns neg",
        ),
        ({"without": ["pos_scores"]}, "lacks a teacher's positive_scores"),
        ({"without": ["neg", "neg_scores"]}, "has no hard negatives, and a teacher's scores rank several"),
        ({"3": {"neg_scores": [1.0]}}, "line 4: column 'neg_scores' has 1 scores, of which 1 are finite numbers, for 2 texts"),
        ({"3": {"pos_scores": None}}, "line 4: column 'pos_scores' has 0 scores, of which 0 are finite numbers, for 1 texts"),
        ({"5": {"neg_scores": [1.0, None]}}, "line 6: column 'neg_scores' has 2 scores, of which 1 are finite"),
    ],
)
def test_scores_that_are_partly_missing_are_refused(toys: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    settings = METHOD.recipe(model_name_or_path=str(toys / "encoder"), teacher_temperature=1.0)
    with pytest.raises(DataError, match=words) as raised:
        METHOD.load().load(settings, Source(str(taught(tmp_path, **changes)), toys, tmp_path, evaluated=False))
    assert "\n" not in str(raised.value)
