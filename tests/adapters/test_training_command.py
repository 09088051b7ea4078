"""``tempplug train``: help that comes at once, flags from the recipe and from the Trainer, every fault in a line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from method_toys import METHOD, ToyRecipe

from tempplug.cli import main, shell
from tempplug.plugins import CommandInfo, registry
from tempplug_adapters.training.flags import build_parser, given_settings
from tempplug_adapters.training.termination import let_threads_end


def words(folder: Path, *more: str) -> list[str]:
    return ["--dataset", "points", "--output-dir", str(folder), *more]


def test_a_training_prints_specs_lines_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = "--temperature-strategy macl:alpha=1 --noise 0.2 --eval_strategy epoch --save-steps 3"
    given += " --per-device-train-batch-size 5 --gradient-accumulation-steps 2"
    assert METHOD(words(tmp_path, *given.split())) == 0
    out = capsys.readouterr().out
    spec = "macl:base_temperature=0.3,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert f"strategy {spec}\nobjective reweighted\nlayout two-view\npoints: 20 items" in out
    assert out.count("epoch 1 of 3  loss ") == 1
    assert "epoch 1 of 3  spread " in out
    assert "  temperature " in out
    assert len(re.findall(r"^epoch 3 of 3  spread ", out, flags=re.M)) == 1, "the last epoch's"
    assert len(re.findall(r"final +1", out)) == 1, "the final figures are printed once"
    *_, told, where, _, last, then = out.splitlines()
    assert last.split() == ["final", "1"]
    assert (where.split()[1], then) == (f"{tmp_path};", f"next: tempplug embed {tmp_path} points --output vectors.npy")
    results = json.loads((tmp_path / "metrics.json").read_text())
    seen = results["temperature"]
    assert seen.keys() == {"first", "last", "min", "max", "mean"}
    assert 0.3 < seen["min"] <= min(seen["first"], seen["last"]) < seen["max"]
    assert told.split()[:5] == ["temperature", "at", "the", "end", f"{seen['last']:.4g}"]
    assert seen["last"] == [entry["temperature"] for entry in results["history"] if "temperature" in entry][-1]
    expected = {"method": "toy", "dataset": "points", "items": 20, "strategy": spec, "objective": "reweighted"}
    assert {**expected, "processes": 1, "effective_batch_size": 10, "steps": 6}.items() <= results.items()
    assert results["recipe"]["noise"] == 0.2
    assert results["recipe"].keys() == ToyRecipe.kinds().keys()
    assert [each.name for each in sorted(tmp_path.glob("checkpoint-*"))] == ["checkpoint-3", "checkpoint-6"]
    for name in ("settings.json", "checkpoint-6/settings.json"):
        assert json.loads((tmp_path / name).read_text()).items() <= results.items()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("train simclr --dataset digits --output_dir=", "output_dir='' must name a folder: --output-dir . means this one."),
        ("sweep --command x{strategy} --metric x --output=", "output='' must name a folder: --output . means this one."),
    ],
)
def test_no_name_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(given.split()) == 2
    assert capsys.readouterr().err == f"error: {error}\n"
    assert not list(tmp_path.iterdir())


def test_flags_take_either_sign_and_the_help_has_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser(METHOD)
    more = "--per_device_train_batch_size 4 --no-bf16 --recipe long --temperature_learning_rate 0.05"
    parsed = parser.parse_args(words(Path("x"), *more.split()))
    recipe = METHOD.recipe(parsed.recipe)
    assert parsed.temperature_learning_rate == 0.05
    assert given_settings(parsed, recipe) == {"per_device_train_batch_size": 4, "bf16": False}
    assert recipe.changed(**given_settings(parsed, recipe)).num_train_epochs == 30
    text = " ".join(parser.format_help().split())
    for name, kind in ToyRecipe.kinds().items():
        flag = name.replace("_", "-")
        assert f"--{flag} " in text or f"--[no-]{flag} " in text
        assert kind.help in text
    assert "passes over the points (default: 3; long: 30)" in text
    assert "views (default: 0.1)" in text
    spellings = re.findall(r"^  (?:-h, )?(--\S+)", parser.format_help(), flags=re.M)
    assert len(spellings) == len(set(spellings)) > 20
    assert not [each for each in spellings if "_" in each]
    assert "--[no-]bf16" in spellings
    titles = re.findall(r"^(\w+):$", parser.format_help(), flags=re.M)
    assert titles == ["options", "temperature", "run", "toy", "training"], "our own few stand first"
    own, of_trainer = parser.format_help().split("\ntraining:\n")
    assert "--noise" in own
    assert ("--learning-rate N" in own, "--learning-rate N" in of_trainer) == (False, True)
    assert METHOD(["--help-training"]) == 0
    text = capsys.readouterr().out
    assert "--gradient-accumulation-steps" in text
    assert "--early-stopping-patience" in text
    assert "--early_stopping_patience" not in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--temperature-strategy macle", "error: unknown strategy 'macle'. Did you mean 'macl'?"),
        ("--learning-rate 0", "error: learning_rate=0 must be greater than 0."),
        ("--recipe papre", "error: toy has no recipe 'papre'. Did you mean 'paper'?"),
        ("--nois 0.1", "error: unknown flag '--nois'. Did you mean '--noise'?"),
        ("--gradient-accumulation-step 2", "error: unknown flag '--gradient-accumulation-step'. Did you mean"),
        ("--device cpu", "error: --device is not a training flag"),
        ("--fp16", "error: fp16=true needs a GPU: use bf16=true on a CPU."),
        ("--early_stopping_patience 0", "error: early_stopping_patience=0 must be at least 1."),
        ("--lr_scheduler_kwargs {", "error: transformers refuses the training arguments"),
        ("--dataset pionts", "error: no data set 'pionts'."),
        ("--resume-from-checkpoint nowhere", "error: resume_from_checkpoint='nowhere' is not a complete checkpoint"),
        ("--data-dir nowhere", "error: --data-dir nowhere is not a folder."),
        ("--temperature-strategy uncertainty", "error: strategy 'uncertainty' needs"),
        ("--dataset pionts --output-dir FILE", "error: output_dir='"),  # before data are read
        ("--optimizer adma", "argument --optimizer: invalid choice: 'adma'"),
        ("--seed a", "argument --seed: invalid integer value: 'a'"),
        ("--output-dir", "argument --output-dir: expected one argument"),
    ],
)
def test_faults_end_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, message: str) -> None:
    (tmp_path / "file").touch()
    assert shell(lambda: METHOD(words(tmp_path, *given.replace("FILE", str(tmp_path / "file")).split()))) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("checkpoint-*"))


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
    monkeypatch.setattr("tempplug_adapters.training.command.let_threads_end", lambda: waited.append(-1))
    assert METHOD(words(tmp_path, "--num-train-epochs", "0")) == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    let_threads_end()
    assert waited == [-1, 0.5]
