"""``tempplug train``: help that comes at once, flags from the recipe and from the Trainer, every fault in a line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from method_toys import METHOD, ToyRecipe
from transformers import TrainingArguments

from tempplug.cli import main, shell
from tempplug.plugins import CommandInfo, registry
from tempplug_adapters.training.arguments import training_arguments
from tempplug_adapters.training.flags import build_parser, given_settings
from tempplug_adapters.training.launch import let_threads_end

OUTPUT = "--output-dir"
SMALL = ["--dataset", "digits", "--image-size", "16", "--width", "16", "--num-train-epochs", "1", "--no-evaluate"]


def words(folder: Path, *more: str) -> list[str]:
    return ["--dataset", "points", OUTPUT, str(folder), *more]


def test_a_training_prints_specs_lines_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--temperature-strategy", "macl:alpha=1", "--noise", "0.2", "--eval_strategy", "epoch", "--save-steps", "3"]
    assert METHOD(words(tmp_path, *given)) == 0
    out = capsys.readouterr().out
    spec = "macl:base_temperature=0.3,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert f"strategy {spec}\nobjective reweighted\nlayout two-view\npoints: 20 items" in out
    assert out.count("epoch 1 of 3  loss ") == 1
    assert "epoch 1 of 3  spread " in out
    assert "  temperature " in out
    *_, told, _, last = out.splitlines()
    assert last.split() == ["final", "1.00"]
    results = json.loads((tmp_path / "metrics.json").read_text())
    seen = results["temperature"]
    assert seen.keys() == {"first", "last", "min", "max", "mean"}
    assert 0.3 < seen["min"] <= min(seen["first"], seen["last"]) < seen["max"]
    assert told.split()[:5] == ["temperature", "at", "the", "end", f"{seen['last']:.4g}"]
    logged = [entry["temperature"] for entry in results["history"] if "temperature" in entry]
    assert seen["last"] == logged[-1]
    assert (results["method"], results["dataset"], results["items"]) == ("toy", "points", 20)
    assert (results["strategy"], results["objective"]) == (spec, "reweighted")
    assert results["recipe"]["noise"] == 0.2
    assert results["recipe"].keys() == ToyRecipe.kinds().keys()
    assert [each.name for each in sorted(tmp_path.glob("checkpoint-*"))] == ["checkpoint-6", "checkpoint-9"]
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert settings.items() <= results.items()


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        (["train", "simclr", *SMALL, "--output-dir", ""], "output_dir='' must name a folder: --output-dir"),
        (["train", "simclr", *SMALL, "--output_dir="], "output_dir='' must name a folder: --output_dir"),
        (["sweep", "--command", "true {strategy}", "--metric", "x", "--output", ""], "output='' must name a folder: --output"),
        (
            [
                "bench",
                "run",
                "anomaly",
                "--profile",
                "quick",
                "--tasks",
                "cat",
                "--strategies",
                "fixed",
                "--seeds",
                "0",
                "--output",
                "",
            ],
            "output='' must name a folder: --output",
        ),
    ],
)
def test_no_name_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: list[str], flag: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    assert capsys.readouterr().err == f"error: {flag} . means this one.\n"
    assert not list(tmp_path.iterdir())


def test_a_name_of_thousands_of_letters_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "simclr", "--dataset", "d" * 5000, OUTPUT, str(tmp_path / "out")]
    assert main(words) == 2
    assert capsys.readouterr().err == f"error: no file can have so long a name: '{'d' * 40}...{'d' * 40}'.\n"


def test_how_it_was_launched_is_noted(tmp_path: Path) -> None:
    given = ["--per-device-train-batch-size", "5", "--gradient-accumulation-steps", "2", "--no-evaluate"]
    assert METHOD(words(tmp_path, *given)) == 0
    for name in ("metrics.json", "settings.json", "checkpoint-6/settings.json"):
        noted = json.loads((tmp_path / name).read_text())
        assert (noted["processes"], noted["effective_batch_size"]) == (1, 10), name


def test_processes_wait_for_one_another_as_long_as_the_trainers_do(tmp_path: Path) -> None:
    assert training_arguments(ToyRecipe(), str(tmp_path)).ddp_timeout == TrainingArguments(str(tmp_path)).ddp_timeout == 1800


def test_the_temperatures_learning_rate_is_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert METHOD(words(tmp_path, "--temperature-strategy", "learnable", "--temperature_learning_rate", "0.05")) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert "learning_rate=0.05" in results["strategy"]
    assert results["temperature_learning_rate"] == 0.05
    moved = abs(math.log(results["temperature"]["last"] / results["temperature"]["first"]))
    assert 0.05 < moved < 0.05 * results["steps"]


def test_flags_are_written_with_either_sign_and_recipes_by_name() -> None:
    parser = build_parser(METHOD)
    parsed = parser.parse_args(words(Path("x"), "--per_device_train_batch_size", "4", "--no-bf16", "--recipe", "long"))
    recipe = METHOD.recipe(parsed.recipe)
    assert given_settings(parsed, recipe) == {"per_device_train_batch_size": 4, "bf16": False}
    assert recipe.changed(**given_settings(parsed, recipe)).num_train_epochs == 30


def test_the_help_tells_every_setting_with_its_default() -> None:
    text = " ".join(build_parser(METHOD).format_help().split())
    for name, kind in ToyRecipe.kinds().items():
        assert f"--{name.replace('_', '-')}" in text
        assert kind.help in text
    assert "passes over the points (default: 3; long: 30)" in text
    assert "views (default: 0.1)" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (["--temperature-args", "alpha=1"], "unknown option 'alpha' of strategy 'fixed'"),
        (["--contrastive-objective", "infoncee"], "unknown objective 'infoncee'. Did you mean 'infonce'?"),
        (["--learning-rate", "0"], "learning_rate=0 must be greater than 0."),
        (["--recipe", "papre"], "toy has no recipe 'papre'. Did you mean 'paper'?"),
        (["--nois", "0.1"], "unknown flag '--nois'. Did you mean '--noise'?"),
        (["--gradient-accumulation-step", "2"], "unknown flag '--gradient-accumulation-step'. Did you mean"),
        (["--fp16"], "fp16=true needs a GPU: use bf16=true on a CPU."),
        (["--warmup-steps", "-1"], "warmup_steps=-1 must be at least 0."),
        (["--lr_scheduler_kwargs", "{"], "transformers refuses the training arguments"),
        (["--dataset", "pionts"], "no data set 'pionts'."),
        (["--resume-from-checkpoint", "nowhere"], "resume_from_checkpoint='nowhere' is not a complete checkpoint"),
        (["--data-dir", "nowhere"], "--data-dir nowhere is not a folder."),
        (["--temperature-strategy", "uncertainty"], "strategy 'uncertainty' needs"),
    ],
)
def test_faults_end_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str) -> None:
    assert shell(lambda: METHOD(words(tmp_path, *given))) == 2
    err = capsys.readouterr().err
    assert f"error: {message}" in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("checkpoint-*"))


@pytest.mark.parametrize("given", [["--optimizer", "adma"], ["--seed", "a"], [OUTPUT]])
def test_what_the_parser_refuses_is_said_by_it(tmp_path: Path, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(lambda: METHOD(words(tmp_path, *given))) == 2
    assert given[0] in capsys.readouterr().err


def test_the_flags_of_the_trainer_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert METHOD(["--help-training"]) == 0
    text = capsys.readouterr().out
    assert "--gradient_accumulation_steps" in text
    assert "--early_stopping_patience" in text


def test_a_folder_that_cannot_be_written_is_said_before_data_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert shell(lambda: METHOD(["--dataset", "pionts", OUTPUT, str(tmp_path / "file")])) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_nothing_heavy_is_loaded_for_help() -> None:
    """Every training command answers ``--help`` without PyTorch."""
    names = [info.name.removeprefix("train ") for info in registry().all(CommandInfo) if info.name.startswith("train ")]
    assert {"grace", "graphcl", "simclr", "msc", "simcse"} <= set(names)
    code = (
        "import sys, contextlib, io\nfrom tempplug.cli import main\n"
        f"for name in {names}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        "        main(['train', name, '--help'])\n"
        "    assert '--temperature-strategy' in out.getvalue(), name\n"
        "heavy = {'torch', 'transformers', 'torch_geometric', 'kornia', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_one_of_several_processes_waits_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    let_threads_end()
    assert waited == []
    monkeypatch.setattr("tempplug_adapters.training.command.let_threads_end", lambda: waited.append(-1))
    assert METHOD(words(tmp_path)) == 0
    assert waited == [-1]
    monkeypatch.setenv("WORLD_SIZE", "2")
    let_threads_end()
    assert waited == [-1, 0.5]
