"""``tempplug eval bias``: the table, the JSON file, and errors without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bias_toys import random_model

from tempplug.cli import main as tempplug
from tempplug_adapters.bias_evaluation.crows_pairs import evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.stereoset import evaluate_stereoset, read_stereoset
from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    write_gendered(folder, pairs=2, seed=0, tested=12)
    with (folder / "crows_pairs_anonymized.csv").open("a") as file:
        file.write("the king carried a hat .,the man carried a hat .,antistereo,age\n")
    model = random_model(vocabulary())
    for each in (model.model, model.tokenizer):
        each.save_pretrained(folder / "model")
    return folder


def run(*words: object) -> int:
    return tempplug(["eval", "bias", *map(str, words)])


def test_table_and_file_hold_what_was_measured(toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toys / "model", "--data-dir", toys, "--output", tmp_path / "bias.json", "--batch-size", 5) == 0
    found = json.loads((tmp_path / "bias.json").read_text())
    model, pairs = random_model(vocabulary()), read_crows_pairs(toys)
    gender = [pair for pair in pairs if pair.bias_type == "gender"]
    assert (len(pairs), len(gender)) == (13, 12)
    assert found["stereoset"] == pytest.approx(evaluate_stereoset(model, read_stereoset(toys)).to_dict())
    expected = {"crows-pairs": (gender, "differing"), "crows-pairs-original": (pairs, "shared")}
    for name, (some, variant) in expected.items():
        assert found[name] == evaluate_crows_pairs(model, some, variant).to_dict()  # type: ignore[arg-type]
    assert (found["model"], found["data_dir"]) == (str(toys / "model"), str(toys))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for task, name, value in [
        ("stereoset", "LM", found["stereoset"]["lm"]),
        ("stereoset", "SS", found["stereoset"]["ss"]),
        ("stereoset", "ICAT", found["stereoset"]["icat"]),
        ("crows-pairs", "score", found["crows-pairs"]["score"]),
        ("crows-pairs-original", "antistereo", found["crows-pairs-original"]["antistereo"]),
    ]:
        assert [task, name, f"{value:.2f}"] in rows
    assert ["stereoset:", "12", "sentences,"] in [row[:3] for row in rows]


def test_some_tasks_alone(toys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toys / "model", "--data-dir", toys, "--tasks", "crows-pairs") == 0
    out = capsys.readouterr().out
    assert "crows-pairs: 12 pairs" in out
    assert "stereoset" not in out
    assert "original" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch-size", "0"], "error: batch_size=0 must be"),
        (["--device", "abacus"], "error: device='abacus' must be auto, cpu, cuda or cuda:N."),
        (["--output", "nowhere/bias.json"], "error: --output=nowhere/bias.json lies in a folder that does not exist"),
        (["--data-dir", "nowhere"], "error: StereoSet needs stereoset_test_gender_intrasentence.jsonl.gz, which nowhere lacks"),
        (["--tasks", "seat"], "invalid choice: 'seat'"),
    ],
)
def test_errors_are_one_line(toys: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert run(toys / "model", "--data-dir", toys, *words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_encoder_without_a_trained_head_is_refused(tiny_bert: Path, toys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tiny_bert, "--data-dir", toys) == 2
    assert "Wanted is a masked language model with the head that it was trained with." in capsys.readouterr().err
