"""``tempplug eval``: table and JSON file of sts and transfer, and errors of all commands without a traceback."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import datasets
import pytest
from bias_toys import random_model, save
from transfer_toys import write_tables

from tempplug.cli import main
from tempplug_adapters.bias_evaluation.crows_pairs import evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.stereoset import evaluate_stereoset, read_stereoset
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts
from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered


@pytest.fixture(autouse=True)
def no_data_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)


def run(*words: object, name: str = "sts") -> int:
    return main(["eval", name, *map(str, words)])


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
    assert rows["pooling"][1:4] == ["avg", "(as", "given),"]


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
    assert "pooling  cls_before_pooler (default, the model sets none), at most 40 tokens" in printed
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


@pytest.fixture(scope="module")
def folders(tiny_bert: Path, sts_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Model and data of each command."""
    folder = tmp_path_factory.mktemp("folders")
    write_gendered(folder / "bias", pairs=2, seed=0, tested=12)
    save(random_model(vocabulary()), folder / "masked")
    with (folder / "bias" / "crows_pairs_anonymized.csv").open("a") as file:
        file.write("the king carried a hat .,the man carried a hat .,antistereo,age\n")
    data = {"sts": sts_folder, "transfer": write_tables(folder / "transfer")}
    return {**{name: (tiny_bert, each) for name, each in data.items()}, "bias": (folder / "masked", folder / "bias")}


@pytest.mark.parametrize("name", ["sts", "transfer", "bias"])
def test_errors_are_one_line(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model, data = folders[name]
    cases = [
        ("--batch-size 0", "batch_size=0 must be"),
        ("--device abacus", "device='abacus' must be auto, cpu, cuda or cuda:N."),
        ("--output nowhere/result.json", "--output=nowhere/result.json lies in a folder that does not exist"),
        ("--tasks seat", "invalid choice: 'seat'"),
        ("--mystery", "unknown flag '--mystery'"),
    ]
    if name != "bias":
        cases += [("--max-length 1000", "max_length=1000 must be"), ("--pooling max", "invalid choice: 'max'")]
    for options, message in cases:
        assert run(model, "--data-dir", data, *options.split(), name=name) == 2
        captured = capsys.readouterr()
        assert captured.err.splitlines()[-1].startswith("error: ")
        assert message in captured.err
        assert "Traceback" not in captured.err
        assert captured.out == ""
    assert run(data, "--data-dir", data, name=name) == 2
    assert f"error: model='{data}' cannot be loaded" in capsys.readouterr().err
    assert run(name=name) == 2
    assert capsys.readouterr().err.endswith(f"(`tempplug eval {name} -h` lists the flags)\n")
    # missing data are named before the model is loaded
    wanted = {"sts": "STS12", "transfer": "MR.tsv.gz", "bias": "StereoSet needs stereoset_test_gender_intrasentence.jsonl.gz"}
    for folder in (["--data-dir", tmp_path], [] if name != "sts" else ["--data-dir", tmp_path / "nowhere"]):
        assert run("no-such-model", *folder, name=name) == 2
        err = capsys.readouterr().err
        assert wanted[name] in err
        assert "no-such-model" not in err


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


def test_transfer_prints_and_writes(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = folders["transfer"]
    words = ["--data-dir", data, "--tasks", "MRPC", "CR", "--fast", "--output", tmp_path / "found.json"]
    assert run(model, *words, name="transfer") == 0
    written = json.loads((tmp_path / "found.json").read_text())
    assert set(written["accuracy"]) == {"MRPC", "CR"}
    shown = capsys.readouterr().out
    for task, accuracy in written["accuracy"].items():
        assert f"{task:<8} {60:>6} {accuracy:>9.2f} {written['dev'][task]:>7.2f}" in shown
    assert "average" not in shown
    assert run("no-such-model", "--data-dir", data, "--backend", "senteval", name="transfer") == 2
    assert "needs the package senteval" in capsys.readouterr().err


def test_bias_prints_and_writes_all_tasks_or_some(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, toys = folders["bias"]
    assert run(own, "--data-dir", toys, "--output", tmp_path / "bias.json", "--batch-size", 5, name="bias") == 0
    found = json.loads((tmp_path / "bias.json").read_text())
    model, pairs = random_model(vocabulary()), read_crows_pairs(toys)
    gender = [pair for pair in pairs if pair.bias_type == "gender"]
    assert (len(pairs), len(gender)) == (13, 12)
    assert found["stereoset"] == pytest.approx(asdict(evaluate_stereoset(model, read_stereoset(toys))))
    assert found["crows-pairs"] == asdict(evaluate_crows_pairs(model, gender, "differing"))
    assert found["crows-pairs-original"] == asdict(evaluate_crows_pairs(model, pairs, "shared"))
    assert (found["model"], found["data_dir"]) == (str(own), str(toys))
    out = capsys.readouterr().out
    shown = {"stereoset": ("LM", "SS", "ICAT"), "crows-pairs": ("score",), "crows-pairs-original": ("antistereo",)}
    for task, names in shown.items():
        shown_there = out.split(f"{task}: ")[1].splitlines()[1]
        assert all(f"{name} {found[task][name.lower()]:.2f}" in shown_there for name in names)
    assert "stereoset: 12 sentences," in out
    assert out.splitlines()[-1].startswith(f"next: tempplug train mabel --model-name-or-path {own} ")
    assert run(own, "--data-dir", toys, "--tasks", "crows-pairs", name="bias") == 0
    out = capsys.readouterr().out
    assert "crows-pairs: 12 pairs" in out
    assert not any(name in out for name in ("stereoset", "original"))
