"""Every strategy has as many configurations as there are fixed temperatures, and validation data alone say which is its row."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import write_result
from suite_checks import PROFILES
from suite_checks import bench as main

from tempplug.errors import ConfigError
from tempplug_benchmarks.arm import Arm, arms
from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.tables import remarks
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.tuning import best, configurations, expanded, fixed_temperatures
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.tasks import long_tail, node, sentence

FIXED = ("fixed+infonce", "fixed:temperature=0.1+infonce", "fixed:temperature=0.02+infonce")
GRID = ("macl+infonce", "macl:base_temperature=0.1+infonce", "macl:base_temperature=0.02+infonce")


def tunable(toy: ModuleType, *more: str) -> Suite:
    """The toy suite with three fixed temperatures, 0.05 the baseline's, and mistakes as its validation metric."""
    quick = replace(toy.SUITE.tasks[0].profiles["quick"], arms=arms(*FIXED, "macl+infonce", *more), validation="error")
    return Suite("toy", "tuned", (replace(toy.SUITE.tasks[0], profiles={"quick": quick}),))


def labels(suite: Suite, task: str, profile: str, label: str) -> list[str]:
    found = suite.task(task).profile(profile)
    return [each.label for each in configurations(suite.task(task), found, found.arm(label) or Arm(label))]


def test_temperatures_move_as_the_fixed_ones_and_all_else_stays() -> None:
    macl = ["macl+reweighted", *(f"macl:base_temperature={value}+reweighted" for value in ("0.1", "0.25", "1"))]
    assert labels(node.SUITE, "citeseer", "small", "macl+reweighted") == macl
    assert labels(node.SUITE, "citeseer", "small", "dystress+infonce")[1:3] == [
        "dystress:temperature_min=0.05,temperature_max=0.1+infonce",
        "dystress:temperature_min=0.125,temperature_max=0.25+infonce",
    ]
    assert labels(node.SUITE, "citeseer", "small", "temperature-free+infonce")[1:] == [
        f"temperature-free:eps={value}+infonce" for value in ("0.001", "1e-05", "0.01")
    ]
    # the fixed temperatures are each other's, and the scale's bound is none
    assert set(labels(node.SUITE, "citeseer", "small", "fixed:temperature=1+infonce")) == {
        f"fixed:temperature={value}+infonce" for value in ("0.1", "0.25", "0.5", "1")
    }
    assert labels(sentence.SUITE, "supervised", "small", "learnable+infonce")[1] == "learnable:initial_temperature=0.02+infonce"
    schedule = labels(long_tail.SUITE, "cifar10-lt", "small", "schedule:period=3+infonce")
    assert schedule[1] == "schedule:period=3,temperature_min=0.05,temperature_max=0.5+infonce"
    assert labels(node.SUITE, "citeseer", "small", "untrained") == ["untrained"]


def test_a_configuration_that_means_another_arm_is_that_arm(toy: ModuleType) -> None:
    other = "macl:alpha=2,base_temperature=0.02+infonce"  # the recipe's alpha
    assert labels(tunable(toy, other), "toy-task", "quick", "macl+infonce") == [*GRID[:2], other]


def test_candidates_are_compared_over_the_seeds_that_all_have(toy: ModuleType) -> None:
    profile = tunable(toy).tasks[0].profiles["quick"]
    values = {"a": {"error": {0: 0.0, 1: 0.3, 2: 0.3}}, "b": {"error": {1: 0.2, 2: 0.4, 3: 0.9}}, "c": {"STSB": {1: 1.0}}}
    assert best(["a", "b"], values, profile) == "a", "0.3 against 0.3, and the first of equals"
    values["b"]["error"][1] = 0.1
    assert best(["a", "b"], values, profile) == "b", "0.3 against 0.25, though means over all seeds are 0.2 and 0.47"
    assert best(["a", "c"], values, profile) is None
    values["b"]["error"] = {3: 0.1}
    assert best(["a", "b"], values, profile) == "b", "none is common"


def test_every_strategy_of_every_suite_has_the_same_number() -> None:
    seen = set()
    for where, task, name, profile in PROFILES:  # one of each suite, as they share their arms
        if profile.validation and where.partition("/")[0] not in seen and name != "paper":
            seen.add(where.partition("/")[0])
            count = len(fixed_temperatures(task, [each.label for each in profile.arms]))
            for arm in filter(lambda each: each.contrasts, profile.arms):
                found = configurations(task, profile, arm)
                assert len({each.label for each in found}) == count > 3, f"{where}, {arm.label}"
    assert len(seen) == 8


def test_a_strategy_without_temperatures_must_declare_its_configurations(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempplug_benchmarks.run.tuning.OWN", {})
    with pytest.raises(ConfigError, match=r"'temperature-free' has no temperature and 0 configurations .* there are 3 fixed"):
        labels(tunable(toy), "toy-task", "quick", "temperature-free+infonce")


def measured(toy: ModuleType, folder: Path, chosen: tuple[str, ...], seeds: range = range(4)) -> tuple[Suite, Comparison]:
    """Errors of MACL's grid fall with its temperature; scores do not follow them."""
    suite = tunable(toy)
    error = dict(zip((*FIXED, *GRID), (0.3, 0.2, 0.4, 0.5, 0.4, 0.3), strict=True))
    score = dict(zip((*FIXED, *GRID), (70, 75, 60, 90, 80, 72), strict=True))
    for run in expanded(plan(suite, "quick", list(seeds))):
        if run.arm.label in chosen:
            noise = random.Random(f"{run.arm.label} {run.seed}").gauss(0, 0.05)
            write_result(run, folder, {"STSB": score[run.arm.label] + noise, "error": error[run.arm.label] + noise / 10}, 1)
    (found,) = compare(load_results(folder), {"toy": suite})
    return suite, found


def test_the_row_of_a_tuned_arm_is_what_validation_chose(toy: ModuleType, tmp_path: Path) -> None:
    suite, found = measured(toy, tmp_path, (*FIXED, *GRID))
    assert (found.baseline, found.chosen) == ("fixed:temperature=0.1+infonce", True)
    assert [row.label for row in found.rows] == [*FIXED, "macl+infonce"]
    row = found.rows[-1]
    assert (row.selected, row.configurations) == (GRID[2], 3)
    assert row.summaries["STSB"].mean == pytest.approx(72, abs=0.2), "not the 90 that the test metric would choose"
    assert row.differences["STSB"].mean == pytest.approx(-3, abs=0.2)
    assert f"macl+infonce: {GRID[2]}, the best of 3 by error" in remarks(found)
    assert row.resolved.startswith("macl:base_temperature=0.02,alpha=2")
    for run in expanded(plan(suite, "quick", range(4), strategies=["macl+infonce"])):
        if run.arm.label in GRID:
            control = replace(run, arm=Arm(f"control({run.arm.label})"))
            write_result(control, tmp_path, {"STSB": 71.0, "error": 0.1}, 1)
    (found,) = compare(load_results(tmp_path), {"toy": suite})
    shown = [each.label for each in found.rows]
    assert shown == [*FIXED, "macl+infonce", f"control({GRID[2]})"], "the other configurations' controls are not shown"
    assert found.rows[3].adapting is not None
    assert found.rows[3].adapting.mean == pytest.approx(1, abs=0.2)


def test_part_of_a_grid_chooses_nothing(toy: ModuleType, tmp_path: Path) -> None:
    _, found = measured(toy, tmp_path, (*FIXED, *GRID[:2]))
    assert [(row.label, row.selected, row.configurations) for row in found.rows[3:]] == [(each, each, 1) for each in GRID[:2]]


def test_the_command_tunes_and_controls_and_goes_on(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toy, "SUITE", tunable(toy))
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "log"))
    words = ["run", "toy", "--strategies", "macl", "--tuned", "--controls", "--output", str(tmp_path / "out")]
    assert main([*words, "--seeds", "0", "1"]) == 0
    shown = capsys.readouterr()
    assert "[12/12]" in shown.err
    assert "[2/2]" in shown.err
    assert "the best of 3 by error" in shown.out
    assert "minus control" in shown.out
    assert len(list((tmp_path / "out").rglob("control*/seed-*.json"))) == 2
    assert len((tmp_path / "log").read_text().splitlines()) == 14
    assert main([*words, "--seeds", "0", "1"]) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 14, "all is there"
    assert capsys.readouterr().out == shown.out
    assert main(["report", str(tmp_path / "out"), "--format", "markdown"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if "tempplug bench run toy" in line]
    assert len(commands) == 2, "of the fixed ones, and of the tuned arm with its control"
    assert "control(" not in "".join(commands)
    assert "--strategies macl+reweighted --tuned --controls --seeds 0 1" in commands[1]
    assert main(["run", "toy", "--strategies", "control(macl+infonce)", "--output", str(tmp_path)]) == 2
    assert "follows from the results of macl+infonce: run that with --controls" in capsys.readouterr().err


def test_without_validation_data_nothing_is_tuned(toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "toy", "--tuned", "--seeds", "0", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().err
    assert "not tuned: task 'toy-task' has no validation data in profile 'quick'" in shown
    assert "[3/3]" in shown
