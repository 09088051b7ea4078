"""``tempplug eval bias``: the table, the JSON file, and errors without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bias_toys import random_model, save

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
    save(random_model(vocabulary()), folder / "model")
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
    assert found["crows-pairs"] == evaluate_crows_pairs(model, gender, "differing").to_dict()
    assert found["crows-pairs-original"] == evaluate_crows_pairs(model, pairs, "shared").to_dict()
    assert (found["model"], found["data_dir"]) == (str(toys / "model"), str(toys))
    out = capsys.readouterr().out
    shown = {"stereoset": ("LM", "SS", "ICAT"), "crows-pairs": ("score",), "crows-pairs-original": ("antistereo",)}
    for task, names in shown.items():
        shown_there = out.split(f"{task}: ")[1].splitlines()[1]
        assert all(f"{name} {found[task][name.lower()]:.2f}" in shown_there for name in names)
    assert "stereoset: 12 sentences," in out
    assert out.splitlines()[-1].startswith(f"next: tempplug train mabel --model-name-or-path {toys / 'model'} ")


def test_some_tasks_alone(toys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toys / "model", "--data-dir", toys, "--tasks", "crows-pairs") == 0
    out = capsys.readouterr().out
    assert "crows-pairs: 12 pairs" in out
    assert not any(name in out for name in ("stereoset", "original"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch-size", "0"], "error: batch_size=0 must be"),
        (["--device", "abacus"], "error: device='abacus' must be auto, cpu, cuda or cuda:N."),
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
