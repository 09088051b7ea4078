"""``tempplug eval sts``: the table, the JSON file, the data folder, and errors without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from tempplug.cli import main
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts


@pytest.fixture(autouse=True)
def no_data_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)


def run(*words: object) -> int:
    return main(["eval", "sts", *map(str, words)])


def test_table_and_file_hold_what_was_measured(
    tiny_bert: Path, sts_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    assert run(tiny_bert, "--data-dir", sts_folder, "--pooling", "avg", "--max-length", 9, "--output", output) == 0
    result = evaluate_sts(load_encoder(tiny_bert, "avg", 9), sts_folder)
    stored = json.loads(output.read_text())
    assert stored["spearman"] == pytest.approx(result.spearman)
    assert stored["average"] == pytest.approx(result.average)
    assert (stored["model"], stored["pooling"], stored["max_length"]) == (str(tiny_bert), "avg", 9)
    assert list(tmp_path.iterdir()) == [output]
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    for task, value in result.spearman.items():
        assert rows[task] == [task, str(result.pairs[task]), f"{value:.2f}"]
    assert rows["average"] == ["average", f"{result.average:.2f}"]
    assert rows["pooling"][1:4] == ["avg", "(as", "asked),"]


def test_options_reach_the_evaluation_and_the_environment_names_the_data(
    tiny_bert: Path, sts_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    monkeypatch.setenv("TEMPPLUG_DATA", str(sts_folder))
    assert run(tiny_bert, "--split", "dev", "--output", output, "--batch-size", 3) == 0
    stored = json.loads(output.read_text())
    wanted = evaluate_sts(load_encoder(tiny_bert, "cls_before_pooler"), sts_folder, split="dev").to_dict()
    assert stored["spearman"] == pytest.approx(wanted["spearman"], abs=1e-3)
    assert (stored["split"], stored["average"]) == ("dev", None)
    printed = capsys.readouterr().out
    assert "pooling  cls_before_pooler (default, as the model says nothing), at most 40 tokens" in printed
    assert f"data     {sts_folder}, dev" in printed
    assert not [word for word in ("average", "SentEval") if word in printed]


def test_without_a_folder_the_hub_is_used_and_said_to_differ(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"sentence1": ["a dog", "a man", "a horse"], "sentence2": ["the dog", "red park", "runs"], "score": [5.0, 1.0, 3.0]}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_dict(table))
    assert run(tiny_bert) == 0
    printed = capsys.readouterr().out
    assert "data     Hugging Face hub, test" in printed
    assert "not tokenised as in SentEval" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data-dir", "nowhere"], "error: data_dir='nowhere' is not a folder"),
        (["--batch-size", "0"], "error: batch_size=0 must be"),
        (["--max-length", "1000"], "error: max_length=1000 must be"),
        (["--device", "abacus"], "error: device='abacus' must be auto, cpu, cuda or cuda:N."),
        (["--output", "nowhere/result.json"], "error: --output=nowhere/result.json lies in a folder that does not exist"),
    ],
)
def test_errors_are_one_line(
    tiny_bert: Path, sts_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(tiny_bert, "--data-dir", sts_folder, *options) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith(message)
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert run(sts_folder, "--data-dir", sts_folder) == 2
    assert f"error: model='{sts_folder}' cannot be loaded" in capsys.readouterr().err


def test_tasks_are_chosen_and_told_while_they_are_measured(
    tiny_bert: Path, sts_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny_bert, "--data-dir", sts_folder, "--tasks", "STS13", "STSB") == 0
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines() if line.startswith(("STS", "SICK", "average"))] == [
        "STS13",
        "STSB",
    ]
    assert captured.err.splitlines() == ["encoding …", "STS13 …", "STSB …"]


def test_missing_data_are_named_before_the_model_is_loaded(sts_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("no-such-model", "--data-dir", sts_folder / "STSB") == 2
    err = capsys.readouterr().err
    assert "STS12" in err
    assert "no-such-model" not in err


@pytest.mark.parametrize("words", ["", "model --pooling max", "model --split train", "model --mystery"])
def test_mistyped_command_lines(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.endswith("(`tempplug eval sts -h` lists the flags)\n")
    assert err.count("\n") == 1
