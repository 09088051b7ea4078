"""``tempplug train --config``: a training's settings go back into the command, what is typed wins, and nothing is guessed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from method_toys import METHOD

import tempplug_adapters
from tempplug.cli import shell
from tempplug_adapters.training.config import DESCRIPTIVE


def settings(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    return read


def losses(folder: Path) -> list[float]:
    return [entry["loss"] for entry in json.loads((folder / "metrics.json").read_text())["history"] if "loss" in entry]


@pytest.mark.parametrize(
    "given",
    [
        "--noise 0.3 --max-steps 2 --gradient-accumulation-steps 2",
        "--temperature-strategy learnable:initial_temperature=0.2 --temperature-learning-rate 0.05",
        "--temperature-strategy macl --contrastive-negatives hardness:strength=2 --recipe long --num-train-epochs 1",
        "--contrastive-objective dclw:sigma=0.4 --seed 3 --no-dataloader-drop-last",
    ],
)
def test_the_settings_of_a_training_repeat_it(tmp_path: Path, given: str) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert METHOD(["--dataset", "points", "--output-dir", str(first), "--logging-steps", "1", *given.split()]) == 0
    assert METHOD(["--config", str(first / "settings.json"), "--output-dir", str(again), "--logging-steps", "1"]) == 0
    assert settings(again) == settings(first)
    assert losses(again) == losses(first) != []


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f"""
        method = "toy"
        dataset = "points"
        output_dir = "{tmp_path / "unused"}"
        strategy = "learnable:initial_temperature=0.2,max_scale=50,learning_rate=0.3"
        max_steps = 9
        evaluate = false
        report_to = ["none"]
        [recipe]
        noise = 0.3
        dropout = 0.1
        """
    )
    typed = f"--max-steps 1 --noise 0.2 --output-dir {tmp_path / 'out'} --temperature-args max_scale=60"
    assert METHOD([f"--config={file}", *typed.split(), "--temperature-learning-rate", "0.05"]) == 0
    read = settings(tmp_path / "out")
    assert read["strategy"] == "learnable:initial_temperature=0.2,max_scale=60,learning_rate=0.05"
    assert (read["max_steps"], read["recipe"]["noise"], read["recipe"]["dropout"]) == (1, 0.2, 0.1)
    assert not json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datset = 'points'", "has an unknown key 'datset'. Did you mean 'dataset'?"),
        ("max_step = 3", "has an unknown key 'max_step'. Did you mean 'max_steps'?"),
        ("own_encoder = ['a']", "has an unknown key 'own_encoder'."),
        ("[recipe]\nnoize = 3", "recipe has no setting 'noize'. Did you mean 'noise'?"),
        ("[recipe]\nnoise = -1", "noise=-1 must be at least 0."),
        ("[recipe]\nnoise = 'much'", "noise='much' must be a number."),
        ("noise = 0.1", "'noise' is a setting of the recipe: write it below [recipe]."),
        ("learning_rate = 0.1", "'learning_rate' is a setting of the recipe: write it below [recipe]."),
        ("recipe = 'long'", "recipe='long' must be a table of settings; --recipe names a recipe."),
        ("method = 'moco'", "has method 'moco', and this is `tempplug train toy`."),
        ("strategy = 0.05", "'0.05' is a number, not a spec string: a temperature is written fixed:temperature=0.05."),
        ("max_steps = 'many'", "invalid int value: 'many'"),
        ("max_steps = [", "is not TOML (.json is read as JSON, others as TOML)"),
    ],
)
def test_faults_of_the_file_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    assert shell(lambda: METHOD(["--config", "run.toml", "--dataset", "points", "--output-dir", "out"])) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not Path("out").exists() or not list(Path("out").iterdir())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.json", "{", "run.json is not JSON"),
        ("run.json", "[]", "must be an object of settings"),
        ("nowhere.toml", None, "nowhere.toml cannot be read: No such file or directory."),
        ("run.toml", b"\xff", "run.toml is not TOML"),
    ],
)
def test_a_file_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: Any, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert shell(lambda: METHOD(["--config", str(tmp_path / name)])) == 2
    assert message in capsys.readouterr().err


def test_what_methods_write_about_their_data_is_not_read() -> None:
    """But an encoder or augmentations that came from Python, which a command cannot have."""
    written = set()
    for file in Path(tempplug_adapters.__path__[0]).rglob("*.py"):
        if file.name == "molecule_finetune.py":  # which no command trains
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "origin":
                written |= {
                    key.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Dict)
                    for key in part.keys
                    if isinstance(key, ast.Constant)
                }
    assert len(written) > 4
    assert written - {"own_encoder", "own_augmentations"} <= DESCRIPTIVE
