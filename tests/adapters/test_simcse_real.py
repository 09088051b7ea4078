"""SimCSE on real data: a short run from a real encoder must raise STS-B dev on real pairs, and run on real sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tempplug.cli import main
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")]


def train(data_dir: Path, output: Path, *more: str) -> dict[str, Any]:
    words = ["--model-name-or-path", str(data_dir / "text/bert-wiki-mini"), "--output-dir", str(output), "--data-dir"]
    words += [str(data_dir), "--no-sts-test", "--eval-strategy", "no", "--save-strategy", "no", *more]
    assert main(["train", "simcse", *words]) == 0
    results: dict[str, Any] = json.loads((output / "metrics.json").read_text())
    return results


def test_thirty_steps_on_entailment_pairs_raise_stsb_dev(data_dir: Path, tmp_path: Path) -> None:
    before = evaluate_stsb(load_encoder(data_dir / "text/bert-wiki-mini", "avg"), data_dir)
    pairs = ["--dataset", str(data_dir / "text/nli/nli_pairs.tsv.gz"), "--columns", "premise", "hypothesis"]
    recipe = ["--where", "label=entailment", "--pooler", "avg", "--learning-rate", "6e-4", "--max-steps", "30"]
    results = train(data_dir, tmp_path, *pairs, *recipe, "--temperature-strategy", "macl")
    assert results["items"] == 20600
    after = results["evaluation"]["stsb_dev"]
    assert after > before + 5, f"STS-B dev {before:.2f} before, {after:.2f} after"


def test_wikipedia_sentences_train(data_dir: Path, tmp_path: Path) -> None:
    wiki = ["--dataset", str(data_dir / "text/wiki/wiki1m_for_simcse_head.txt.gz"), "--max-steps", "3", "--no-evaluate"]
    results = train(data_dir, tmp_path, *wiki, "--temperature-strategy", "dystress", "--logging-steps", "1")
    assert results["items"] == 11914
    assert 0 < results["loss"] < 5
