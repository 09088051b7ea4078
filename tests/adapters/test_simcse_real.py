"""SimCSE on real data: a short run from a real encoder must raise STS-B dev on real pairs, and run on real sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb
from tempplug_adapters.simcse.command import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")]


def train(data_dir: Path, output: Path, *more: str) -> dict[str, float]:
    words = ["--model-name-or-path", str(data_dir / "text/bert-wiki-mini"), "--output-dir", str(output)]
    words += ["--sts-dir", str(data_dir), "--sts-test", "false", "--report-to", "none", "--disable-tqdm", "true"]
    words += ["--eval-strategy", "no", "--save-strategy", "no", *more]
    assert main(words) == 0
    results: dict[str, float] = json.loads((output / "simcse_results.json").read_text())
    return results


def test_thirty_steps_on_entailment_pairs_raise_stsb_dev(data_dir: Path, tmp_path: Path) -> None:
    before = evaluate_stsb(load_encoder(data_dir / "text/bert-wiki-mini", "avg"), data_dir)
    pairs = ["--train-file", str(data_dir / "text/nli/nli_pairs.tsv.gz"), "--columns", "premise", "hypothesis"]
    recipe = ["--where", "label=entailment", "--pooler", "avg", "--learning-rate", "6e-4", "--max-steps", "30"]
    results = train(data_dir, tmp_path, *pairs, *recipe, "--temperature-strategy", "macl")
    assert results["samples"] == 20600
    after = evaluate_stsb(load_encoder(tmp_path), data_dir)
    assert after > before + 5, f"STS-B dev {before:.2f} before, {after:.2f} after"


def test_wikipedia_sentences_train(data_dir: Path, tmp_path: Path) -> None:
    wiki = ["--train-file", str(data_dir / "text/wiki/wiki1m_for_simcse_head.txt.gz"), "--max-steps", "3"]
    results = train(data_dir, tmp_path, *wiki, "--temperature-strategy", "dystress", "--logging-steps", "1")
    assert results["samples"] == 11914
    assert 0 < results["train_loss"] < 5
