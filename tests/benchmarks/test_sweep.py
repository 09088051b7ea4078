"""``tempplug bench sweep``: fixed temperatures become the curve, what was asked beside them the bands, a picture a task."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from suite_checks import bench as main

from tempplug.cli import main as tempplug

SWEEP = ["sweep", "--suite", "toy", "--seeds", "0", "1"]


def texts(file: Path) -> list[str]:
    return [
        each.text
        for each in ElementTree.fromstring(file.read_text(encoding="utf-8")).iter()
        if each.text and each.tag.endswith("}text")
    ]


def test_a_sweep_draws_curve_and_bands_of_the_results(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SWEEP, "--temperatures", "0.2", "0.7", "--strategies", "macl", "--output", str(tmp_path)]
    assert main(words) == 0
    picture = tmp_path / "sweep-toy-toy-task.svg"
    assert capsys.readouterr().out.endswith(f"wrote {picture}\n")
    results = [json.loads(file.read_text()) for file in tmp_path.rglob("*.json")]
    values = [each["metrics"]["STSB"] for each in results if each["arm"].startswith("macl")]
    assert len(values) == 2
    shown = texts(picture)
    assert f"macl+reweighted {sum(values) / 2:.4g}" in shown
    # the task's baseline runs always: it is a temperature of the recipe's
    assert {"0.05", "0.2", "0.7"} <= set(shown)
    assert "toy-task: STSB over the temperature" in shown
    assert main(words) == 0
    assert len(list(tmp_path.rglob("*.json"))) == len(results), "the second time nothing is left to run"


def test_the_default_bands_are_tuning_free(toy: ModuleType, tmp_path: Path) -> None:
    assert main([*SWEEP, "--temperatures", "0.5", "--output", str(tmp_path)]) == 0
    named = {each.partition("+")[0] for each in texts(tmp_path / "sweep-toy-toy-task.svg") if "+" in each}
    assert named == {"macl", "dystress", "temperature-free"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--temperatures", "0"], "temperatures=0 must be finite and greater than 0."),
        (["--paper", "macl"], "a sweep must not go together with --table or --paper"),
        (["--busy"], "--busy of suite 'toy': only"),
        (["--suite", "speed"], "suite 'speed' must be one that trains"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    more: list[str], message: str, toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tempplug(["bench", *SWEEP, "--output", str(tmp_path), *more]) == 2
    assert message in capsys.readouterr().err
