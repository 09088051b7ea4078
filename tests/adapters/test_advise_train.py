"""``tempplug advise --train``: which trainings it needs, how it chooses, how it continues, and what it refuses."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempplug.cli import main
from tempplug_adapters.advise.train import search
from tempplug_adapters.sweep.runs import Candidate
from tempplug_adapters.verdict import judge

# the metric depends on the temperature, the rate and the seed; every run is noted in the file ``ran``
SCRIPT = """
import random, sys
strategy, seed, rate, log = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if strategy in ("fixed:temperature=8", "fixed:temperature=9"):
    sys.exit("diverged")
if strategy == "fixed:temperature=7" and seed == 101:
    sys.exit("diverged")
with open(log, "a") as file:
    file.write(f"{strategy.removeprefix('fixed:temperature=')} {seed} {rate}".strip() + "\\n")
score = {"0.01": 0.5, "0.02": 0.6, "0.05": 0.7, "0.1": 0.9, "0.2": 0.8, "0.5": 0.4}.get(strategy.partition("=")[2], 0.3)
print("accuracy:", score + 0.01 * random.Random(f"{strategy}{seed}").random() + (0.05 if rate == "0.1" else 0))
"""


def words(folder: Path, *flags: str, rate: str = "-", output: str = "out") -> list[str]:
    """Returns the words of a search over the script."""
    (folder / "train.py").write_text(SCRIPT)
    parts = [sys.executable, "-S", str(folder / "train.py"), "{strategy}", "{seed}", rate, str(folder / "ran")]
    command = " ".join(part if "{" in part else shlex.quote(part) for part in parts)
    fixed = ["--metric", "accuracy", "--output", str(folder / output)]
    return ["advise", "--train", "--command", command, *fixed, *flags]


def ran(folder: Path) -> list[str]:
    """Returns temperature and seed of the runs since the last call."""
    file = folder / "ran"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.removesuffix(" -") for line in lines]


def saved(folder: Path, output: str = "out") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / output / "search.json").read_text())
    return content


def test_the_better_half_gets_another_seed_and_the_last_is_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path, "--current", "0.05", "--confirm", "3")) == 0
    assert ran(tmp_path) == [
        *("0.05 0", "0.01 0", "0.02 0", "0.1 0", "0.2 0", "0.5 0"),
        *("0.05 1", "0.1 1", "0.2 1"),
        *(f"{temperature} {seed}" for seed in (100, 101, 102) for temperature in ("0.05", "0.1")),
    ]
    out = capsys.readouterr().out
    assert out.startswith("15 trainings of full length: 6 + 3 to choose, 2 x 3 to confirm the choice with new seeds.\n[1/15] ")
    assert "\nYou train at 0.05. 0.1 changes accuracy by +0." in out
    assert " (95 % interval, 3 seeds): change it.\n" in out
    assert "It holds for this length of training alone, and rests on seeds 100 to 102 alone, which chose nothing." in out
    verdict = saved(tmp_path)["verdict"]
    assert (verdict["best"], verdict["current"], verdict["change"]) == ("0.1", "0.05", True)
    assert saved(tmp_path)["seeds"]["fixed:temperature=0.1"] == [0, 1, 100, 101, 102]
    assert saved(tmp_path)["seeds"]["fixed:temperature=0.5"] == [0]
    assert (tmp_path / "out" / "search.svg").is_file()


def test_it_continues_after_an_interruption_with_the_same_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--current", "0.05", "--temperatures", "0.1", "0.2", "--confirm", "2")
    assert main(words(tmp_path, *flags, output="whole")) == 0
    needed = ran(tmp_path)
    start, started = subprocess.Popen, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        started.append(arguments)
        if len(started) == 5:
            raise KeyboardInterrupt
        return start(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", interrupted)
        assert main(words(tmp_path, *flags)) == 130
    assert "finished runs are kept, the same command goes on." in capsys.readouterr().err
    assert ran(tmp_path) == needed[:4]
    assert main(words(tmp_path, *flags)) == 0
    assert ran(tmp_path) == needed[4:]
    assert saved(tmp_path) == saved(tmp_path, "whole")


def test_learning_rates_are_crossed_and_the_first_is_the_current_one(tmp_path: Path) -> None:
    flags = ("--current", "0.05", "--temperatures", "0.1", "--learning-rates", "0.01", "0.1", "--confirm", "2")
    assert main(words(tmp_path, *flags, rate="{learning_rate}")) == 0
    chosen = ["0.05 0 0.01", "0.1 0 0.01", "0.1 0 0.1", "0.05 0 0.1"]
    lines = ran(tmp_path)
    assert sorted(lines[:4]) == sorted(chosen)
    assert lines[4:] == [f"{each}" for seed in (100, 101) for each in (f"0.05 {seed} 0.01", f"0.1 {seed} 0.1")]
    verdict = saved(tmp_path)["verdict"]
    assert (verdict["current"], verdict["best"]) == ("0.05 at learning rate 0.01", "0.1 at learning rate 0.1")


def test_a_strategy_may_be_current_and_lower_may_be_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--current", "macl", "--temperatures", "0.5", "0.1", "--confirm", "2", "--lower-is-better")
    assert main(words(tmp_path, *flags)) == 0
    assert ran(tmp_path) == ["macl 0", "0.5 0", "0.1 0", "macl 100", "0.5 100", "macl 101", "0.5 101"]
    assert ": keep what you have.\n" in capsys.readouterr().out


def test_a_failed_candidate_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path, "--current", "0.05", "--temperatures", "9", "0.01", "--confirm", "2")) == 1
    assert ran(tmp_path)[2:] == ["0.05 100", "0.01 100", "0.05 101", "0.01 101"]
    assert "fixed:temperature=9, seed 0: failed: exit status 1, diverged" in capsys.readouterr().out
    assert main(words(tmp_path, "--current", "9", "--temperatures", "0.01", "--confirm", "2")) == 1
    assert "No verdict: a training at 9, the current one, failed." in capsys.readouterr().out
    for temperature in ("9", "7"):  # with each seed, and with one
        assert main(words(tmp_path, "--current", "0.05", "--temperatures", temperature, "--confirm", "2")) == 1
        assert "No verdict: a training of each but 0.05 failed." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--confirm 1 --current 1", "confirm=1 must be at least 2: one seed cannot tell noise from a gain."),
        ("", "the following arguments are required: --current"),
        ("--current 1 --temperatures 1", "temperatures=1 has nothing to compare with: name another temperature."),
        ("--current 1 --metric eval_loss", "metric=eval_loss must not depend on the temperature, as a contrastive loss does: "),
        ("--current 1 --command x{strategy}", "command='x{strategy}' must have {seed}: without seeds, noise cannot"),
        ("--current 1 --command x{seed}", "command='x{seed}' must have {strategy} where the spec string of a strategy goes."),
    ],
)
def test_what_cannot_be_answered_is_refused(
    flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path, *flags.split())) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1
    assert ran(tmp_path) == []


def test_a_search_ends_where_all_others_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path, "--current", "0.05", "--temperatures", "8", "9")) == 2
    assert ran(tmp_path) == ["0.05 0"]
    assert "with seed 0, the trainings of all that could replace 0.05 failed." in capsys.readouterr().err


class Simulated:
    """Trainings whose metric is a true value, plus noise of standard deviation 1, plus noise that all runs of a seed share."""

    def __init__(self, truth: dict[Candidate, float], generator: np.random.Generator) -> None:
        self.truth, self.generator = truth, generator
        self.values: dict[Candidate, dict[int | None, float]] = {}
        self.of_seeds: dict[int | None, float] = {}

    def measure(self, candidate: Candidate, seed: int | None) -> None:
        common = self.of_seeds.setdefault(seed, 3 * self.generator.standard_normal())
        self.values.setdefault(candidate, {})[seed] = self.truth[candidate] + common + self.generator.standard_normal()


@pytest.mark.parametrize(("gain", "most", "least"), [(0.0, 0.05, 0.0), (-1.0, 0.01, 0.0), (5.0, 1.0, 0.9)])
def test_a_change_is_advised_where_there_is_a_gain_alone(gain: float, most: float, least: float) -> None:
    candidates = [Candidate(f"fixed:temperature={number}") for number in range(1, 9)]
    current, best = candidates[0], candidates[-1]
    generator, changes = np.random.default_rng(0), []
    for _ in range(400):
        trainings = Simulated({candidate: gain if candidate == best else min(gain, 0.0) for candidate in candidates}, generator)
        trainings.truth[current] = 0.0
        values = search(trainings, candidates[1:], current, 5)  # type: ignore[arg-type]
        verdict = judge({candidate.label: list(numbers.values()) for candidate, numbers in values.items()}, "1", quantity="f1")
        changes.append(verdict.change and (verdict.best == "8" or gain <= 0))
    assert least <= np.mean(changes) <= most
