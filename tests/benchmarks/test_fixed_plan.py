"""Plans fixed beforehand, seeds that were added, marks under the null hypothesis, and stored runs that are repeated."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from run_checks import write_result
from suite_checks import bench as main

from tempplug.errors import DataError
from tempplug.plugins import Registry
from tempplug_benchmarks.report.comparison import compare
from tempplug_benchmarks.report.significance import Comparable, judge
from tempplug_benchmarks.report.tables import remarks
from tempplug_benchmarks.results import Difference, load_results
from tempplug_benchmarks.run.fixed_plan import FixedPlan, read_plan
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.suite import load_suite
from tempplug_target_probability import plugin as target_probability

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
TEXT = """
date = 2026-11-26
question = "Is one better?"
suite = "toy"
profile = "quick"
tasks = ["toy-task"]
arms = ["fixed+infonce", "macl+infonce"]
seeds = [3, 4]
decisions = ["The one that is better."]
"""


def test_a_plan_names_the_runs_and_its_reports_leave_others_out(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "own.toml", tmp_path / "out"
    file.write_text(TEXT)
    assert main(["run", "--plan", str(file), "--output", str(output)]) == 0
    assert "plan of 2026-11-26, fixed before the runs: Is one better? 4 of 4 runs" in " ".join(capsys.readouterr().out.split())
    found = sorted(str(each.relative_to(output / "toy/quick/toy-task")) for each in output.rglob("seed-*.json"))
    assert found == [f"{arm}-infonce/seed-{seed}.json" for arm in ("fixed", "macl") for seed in (3, 4)]
    assert (output / "toy/quick/toy-task/plan.toml").read_text() == TEXT
    # seeds and arms beside the plan run, but are not reported
    for words in (["--seeds", "5", "--strategies", "macl+infonce"], ["--seeds", "3", "--strategies", "fixed+dcl"]):
        assert main(["run", "toy", *words, "--output", str(output)]) == 0
    loaded = load_results(output)
    assert {(each.arm, each.seed) for each in loaded.results} == {
        (arm, seed) for arm in ("fixed+infonce", "macl+infonce") for seed in (3, 4)
    }
    assert len(loaded.problems) == 3  # the baseline ran with seed 5, too
    assert all("is not in the plan of 2026-11-26" in problem for problem in loaded.problems)
    (comparison,) = compare(loaded, {"toy": toy.SUITE})
    assert any("4 of 4 runs" in line for line in remarks(comparison))
    # another plan of these tasks is refused
    file.write_text(TEXT.replace("[3, 4]", "[3, 4, 5]"))
    capsys.readouterr()
    assert main(["run", "--plan", str(file), "--output", str(output)]) == 2
    assert "is another plan than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "--plan", "FILE"], "suite 'toy' must not go together with --plan"),
        (["--plan", "FILE", "--seeds", "1"], "--seeds must not go together with --plan"),
        (["--plan", "missing.toml"], "plan missing.toml cannot be read"),
    ],
)
def test_a_plan_stands_alone(
    words: list[str], message: str, toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TEXT)
    assert main(["run", *(str(file) if word == "FILE" else word for word in words), "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("change", [("seeds = [3, 4]", "seeds = [3, -4]"), ("question", "asked"), ("arms = [", "arms = [1, ")])
def test_a_malformed_plan_is_refused_and_its_results_are_left_out(
    change: tuple[str, str], toy: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TEXT.replace(*change))
    with pytest.raises(DataError, match=r"own\.toml"):
        read_plan(file, FixedPlan)
    for run in plan(toy.SUITE, "quick", [3], strategies=["macl+infonce"]):
        write_result(run, tmp_path / "out", {"STSB": 1.0, "error": 0.5}, 1)
    (tmp_path / "out/toy/quick/toy-task/plan.toml").write_text(file.read_text())
    found = load_results(tmp_path / "out")
    assert (found.results, ["plan.toml" in problem for problem in found.problems]) == ((), [True])


def test_committed_plans_name_arms_and_tasks_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.register(target_probability, "target-probability")
    monkeypatch.setattr("tempplug.plugins.manager._registry", registry)
    # Those without a suite are plans of `studies.train_cells`.
    files = [
        each for each in sorted(STUDIES.glob("*/plans/*.toml")) if "suite" in tomllib.loads(each.read_text(encoding="utf-8"))
    ]
    assert files
    for file in files:
        fixed = read_plan(file, FixedPlan)
        runs = plan(load_suite(fixed.suite), fixed.profile, fixed.seeds, fixed.tasks, fixed.arms)
        assert len(runs) == len(fixed.tasks) * len(fixed.arms) * len(fixed.seeds), "the baseline is one of the arms"
        assert fixed.decisions
        assert len(fixed.seeds) >= 5 or "without marks" in file.read_text(encoding="utf-8")


def test_arms_with_fewer_seeds_get_no_verdict_without_a_plan_or_looks(toy: ModuleType, tmp_path: Path) -> None:
    def verdicts() -> list[str]:
        (found,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
        return [row.significance.verdict for row in found.rows if row.significance]

    for run in plan(toy.SUITE, "small", range(7), strategies=["fixed+infonce", "macl+infonce", "fixed+dcl"]):
        if run.arm.label != "macl+infonce" or run.seed < 5:
            score = 70 if run.arm.label == "fixed+infonce" else 71 + run.seed % 3 / 100
            write_result(run, tmp_path, {"STSB": score, "error": 0.5}, 1)
    assert verdicts() == ["mixed seeds", "better"]
    (folder,) = tmp_path.glob("*/*/*/")
    looks = [{"date": "2026-11-20", "seeds": "0 to 4"}, {"date": "2026-11-22", "seeds": "5 and 6 of two arms"}]
    (folder / "looks.json").write_text(json.dumps({"format": 1, "looks": looks}))
    assert verdicts() == ["better", "better"]


def test_three_looks_at_equal_arms_mark_at_most_five_per_cent_of_families() -> None:
    """Eight arms like the baseline, 5, then 8, then 12 seeds, and a stop at the first mark: the looks correct for it."""
    generator = np.random.default_rng(0)
    families, marked, uncorrected = 150, 0, 0
    for _ in range(families):
        baseline = generator.normal(size=12)
        arms = generator.normal(size=(8, 12)) - baseline
        seen = {looks: False for looks in (1, 3)}
        for seeds in (5, 8, 12):
            for looks in seen:
                family = {
                    number: Comparable(Difference(own.mean(), None, None, seeds, own.std(ddof=1)), True, True, 0.0, looks)
                    for number, own in enumerate(arms[:, :seeds])
                }
                seen[looks] |= any(each.verdict in ("better", "worse") for each in judge(family).values())
        marked, uncorrected = marked + seen[3], uncorrected + seen[1]
    assert marked / families <= 0.05 + 2 * (0.05 * 0.95 / families) ** 0.5, "within two standard errors"
    assert uncorrected > marked


def test_stored_runs_are_repeated_and_differences_found(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "toy", "--seeds", "0", "1", "--output", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path), "--runs", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("toy · toy-task · ") and line.endswith(": equal") for line in lines)
    stored = sorted(tmp_path.rglob("seed-0.json"))
    for file in stored:
        content = json.loads(file.read_text())
        content["metrics"]["STSB"] += 0.5
        file.write_text(json.dumps(content))
    assert main(["verify", str(tmp_path), "--runs", "9"]) == 1
    assert sum(line.endswith(": differs") for line in capsys.readouterr().out.splitlines()) == 3
    assert main(["verify", str(tmp_path), "--runs", "1"]) in (0, 1)
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["verify", str(tmp_path), "--runs", "0"]) == 2
    assert "runs=0 must be at least 1" in capsys.readouterr().err


def test_stored_runs_of_a_strategy_that_is_not_installed_are_left_out_by_name(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "toy", "--seeds", "0", "--strategies", "macl+infonce", "--output", str(tmp_path)]) == 0
    (stored,) = tmp_path.rglob("macl-infonce/seed-0.json")
    content = json.loads(stored.read_text()) | {"arm": "theirs+infonce", "strategy": "theirs"}
    folder = stored.parents[1] / "theirs-infonce"
    folder.mkdir()
    (folder / "seed-0.json").write_text(json.dumps(content))
    capsys.readouterr()
    assert main(["verify", str(tmp_path), "--runs", "9"]) == 0
    printed = capsys.readouterr()
    assert "left out, as their strategies are not installed: theirs+infonce" in printed.err
    assert "theirs" not in printed.out


def test_a_plan_covers_the_control_of_an_arm(toy: ModuleType, tmp_path: Path) -> None:
    (run,) = plan(toy.SUITE, "quick", [3], strategies=["macl+infonce"])[1:]
    result = write_result(run, tmp_path, {"STSB": 1.0, "error": 0.5}, 1)
    fixed = FixedPlan(
        date="2026-11-26", question="?", suite="toy", profile="quick", tasks=["toy-task"], arms=["macl+infonce"], seeds=[3]
    )
    others = [result, replace(result, arm="control(macl+infonce)"), replace(result, seed=4), replace(result, arm="fixed+dcl")]
    assert [fixed.covers(each) for each in others] == [True, True, False, False]
