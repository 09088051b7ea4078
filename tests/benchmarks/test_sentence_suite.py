from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES
from tempplug_benchmarks.tasks.sentence import SUITE

TASKS = [task.name for task in SUITE.tasks]


def test_importing_the_suite_loads_no_framework() -> None:
    code = (
        "import sys, tempplug_benchmarks.tasks.sentence; print(sorted({'torch', 'transformers', 'scipy'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert tuple(task.profiles) == PROFILES
    for profile_name, profile in task.profiles.items():
        specs = {(resolved.strategy, resolved.objective) for resolved in map(resolve, profile.arms)}
        assert len(specs) == len(profile.arms), "two arms are the same"
        assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
        assert bool(profile.needs) == (profile_name != "quick")
        assert all(metric.summary and metric.higher_is_better for metric in profile.metrics)
        json.dumps(dict(profile.recipe), allow_nan=False)


def test_reported_rows_exist_and_share_metrics_with_the_measured_ones() -> None:
    task = SUITE.task("unsupervised")
    tables = load(task.papers)
    found = 0
    for name in ("small", "paper"):
        profile = task.profile(name)
        for arm in profile.arms:
            for row in arm.reported:
                found += 1
                cells = tables.row(row)
                assert profile.primary in cells
                assert cells.keys() <= {metric.name for metric in profile.metrics}
    assert found > 0
    assert not any(arm.reported for arm in task.profile("quick").arms), "papers say nothing of generated sentences"


@pytest.mark.parametrize("name", TASKS)
def test_a_schedule_has_five_periods(name: str) -> None:
    for profile in SUITE.task(name).profiles.values():
        schedule = profile.arm("schedule")
        assert schedule is not None
        assert f"period={float(profile.recipe['epochs'] or 0) / 5:g}" in schedule.strategy


def test_both_an_adaptive_and_a_reweighted_arm_and_dcl_are_compared() -> None:
    for task in SUITE.tasks:
        arms = {arm.label: arm for arm in task.profile("small").arms}
        assert arms["macl"].strategy == arms["macl-reweighted"].strategy
        assert (arms["macl"].objective, arms["macl-reweighted"].objective) == ("infonce", "reweighted")
        assert (arms["fixed-0.05"].strategy, arms["fixed-0.05-dcl"].objective) == (arms["fixed-0.05-dcl"].strategy, "dcl")


@pytest.mark.parametrize(("name", "low", "high"), [("supervised", 65.0, 100.0), ("unsupervised", 20.0, 100.0)])
def test_the_quick_profile_trains_and_measures(
    name: str, low: float, high: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", SUITE.name, "--tasks", name, "--seeds", "0", "--strategies", "fixed-0.05", "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert f"sentence / {name} / quick" in captured.out
    assert len(captured.err.splitlines()) == 1, "the Trainer's own talk is kept away"
    content = json.loads((tmp_path / "sentence" / "quick" / name / "fixed-0.05" / "seed-0.json").read_text())
    assert low < content["metrics"]["STSB"] < high
    assert not list(tmp_path.rglob("*.work")), "checkpoints are deleted after the run"


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in SUITE.tasks)
