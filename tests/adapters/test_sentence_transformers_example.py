"""The example script for sentence-transformers on the real NLI pairs with hard negatives, and the comparison built on it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import sentence_transformers_nli
import sentence_transformers_sweep
from sentence_transformers import SentenceTransformer

from tempplug.errors import UnknownNameError
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb

pytestmark = pytest.mark.slow

SHORT = [
    *("--triplets", "6000", "--per_device_train_batch_size", "256", "--learning_rate", "0.2", "--num_train_epochs", "1"),
    *("--report_to", "none", "--disable_tqdm", "true", "--save_strategy", "no", "--logging_steps", "2", "--use_cpu", "true"),
]


def test_the_script_fine_tunes_a_sentence_encoder_by_flag(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data_dir", str(data_dir), "--output_dir", str(tmp_path), "--temperature-strategy", "learnable", *SHORT]
    monkeypatch.setattr(sys, "argv", ["sentence_transformers_nli.py", *words])
    runpy.run_path(sentence_transformers_nli.__file__, run_name="__main__")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert json.dumps(metrics, indent=2) in capsys.readouterr().out
    assert metrics["triplets"] == 6000
    assert metrics["stsb_dev"] > 68, "untrained it is 61"
    assert metrics["temperature_last"] != metrics["temperature_first"]
    assert "@misc{tempplug-learnable," in (tmp_path / "README.md").read_text()
    model = SentenceTransformer(str(tmp_path), device="cpu")
    again = evaluate_stsb(lambda sentences: model.encode(sentences, convert_to_tensor=True), data_dir, "dev")
    assert again == pytest.approx(metrics["stsb_dev"], abs=1e-4)


def test_the_script_refuses_what_does_not_exist(data_dir: Path, tmp_path: Path) -> None:
    words = ["--data_dir", str(data_dir), "--output_dir", str(tmp_path), "--temperature-strategy", "macle"]
    with pytest.raises(UnknownNameError, match=r"Did you mean 'macl'\?"):
        sentence_transformers_nli.main(words)


def test_the_comparison_tells_mean_spread_and_temperatures(data_dir: Path) -> None:
    recipe = {**sentence_transformers_sweep.RECIPE, "triplets": 1024, "num_train_epochs": 1, "logging_steps": 1}
    found = {"learnable": [sentence_transformers_sweep.run("learnable", seed, str(data_dir), recipe) for seed in (0, 1)]}
    row = sentence_transformers_sweep.table(found)["learnable"]
    values = row["stsb_test"]["values"]
    assert values[0] != values[1]
    assert row["stsb_test"]["mean"] == pytest.approx(sum(values) / 2)
    assert row["stsb_test"]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    # four steps of at most the temperature's own rate; the encoder's is 0.2
    assert row["temperature_last"]["mean"] == pytest.approx(0.05, rel=0.04)
    assert row["temperature_last"]["mean"] != pytest.approx(0.05, rel=1e-4)
