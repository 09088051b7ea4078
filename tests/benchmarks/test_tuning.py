"""Tuning: validation data alone choose among as many configurations as there are fixed temperatures. Controls: ``fixed`` at the
mean temperature of the arm's own run.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import write_result
from scipy import stats
from suite_checks import PROFILES, bench as main

from tempplug.errors import ConfigError, DataError
from tempplug_benchmarks.arm import Arm, arms, parse_arm
from tempplug_benchmarks.report.comparison import Comparison, compare, consistent
from tempplug_benchmarks.report.significance import Significance
from tempplug_benchmarks.report.tables import CONTROLS, conclusion, headline, reading, remarks
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.tuning import best, best_configurations, configurations, controls, expanded, fixed_temperatures
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.tasks import node
from tempplug_benchmarks.tasks.images import LONG_TAIL
from tempplug_benchmarks.tasks.text import SENTENCE

FIXED = ("fixed+infonce", "fixed:temperature=0.1+infonce", "fixed:temperature=0.02+infonce")
GRID = ("macl+infonce", "macl:base_temperature=0.1+infonce", "macl:base_temperature=0.02+infonce")
SEEDS = (0, 1, 2, 5)


def tunable(toy: ModuleType, *more: str) -> Suite:
    """The toy suite with three fixed temperatures, 0.05 the baseline's, and mistakes as its validation metric."""
    quick = replace(toy.SUITE.tasks[0].profiles["quick"], arms=arms(*FIXED, "macl+infonce", *more), validation="error")
    return Suite("toy", "tuned", (replace(toy.SUITE.tasks[0], profiles={"quick": quick}),))


def labels(suite: Suite, task: str, profile: str, label: str) -> list[str]:
    found = suite.task(task).profile(profile)
    return [each.label for each in configurations(suite.task(task), found, found.arm(label) or Arm(label))]


def test_results_of_a_strategy_that_is_not_installed_are_compared_without_its_configurations(toy: ModuleType) -> None:
    task = tunable(toy).tasks[0]
    values = {
        label: {"error": {0: error}} for error, label in enumerate((*FIXED, *GRID, "theirs+infonce", "theirs:x=1+infonce"))
    }
    found = best_configurations(task, values, task.profile("quick"))
    assert found == {"macl+infonce": ("macl+infonce", GRID)}


def test_temperatures_move_as_the_fixed_ones_and_all_else_stays(toy: ModuleType) -> None:
    for label, others in {
        "macl+reweighted": [f"macl:base_temperature={value}+reweighted" for value in ("0.1", "0.25", "1")],
        "dystress+infonce": [
            f"dystress:temperature_min={low},temperature_max={high}+infonce"
            for low, high in (("0.05", "0.1"), ("0.125", "0.25"), ("0.5", "1"))
        ],
        "temperature-free+infonce": [f"temperature-free:eps={value}+infonce" for value in ("0.001", "1e-05", "0.01")],
        # the fixed temperatures are each other's
        "fixed:temperature=1+infonce": [f"fixed:temperature={value}+infonce" for value in ("0.1", "0.25", "0.5")],
        "untrained": [],
    }.items():
        assert labels(node.SUITE, "citeseer", "small", label) == [label, *others]
    # a scale's bound does not move, nor does what the label gives
    assert labels(SENTENCE, "supervised", "small", "learnable+infonce")[1] == "learnable:initial_temperature=0.02+infonce"
    schedule = labels(LONG_TAIL, "cifar10-lt", "small", "schedule:period=3+infonce")
    assert schedule[1] == "schedule:period=3,temperature_min=0.05,temperature_max=0.5+infonce"
    other = "macl:alpha=2,base_temperature=0.02+infonce"  # with the recipe's alpha it means the grid's last
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


def test_fixed_temperatures_with_settings_of_their_own_are_no_search(toy: ModuleType) -> None:
    task = tunable(toy).tasks[0]
    changed = [f"{each}@steps=20" for each in FIXED]
    values = {label: {"error": {0: 0.1}} for label in (*FIXED, *changed, *GRID)}
    assert best_configurations(task, values, task.profiles["quick"]).keys() == {"macl+infonce"}


def test_every_strategy_of_every_suite_has_the_same_number(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for where, task, name, profile in PROFILES:  # one of each suite, as its tasks share their arms
        if profile.validation and where.partition("/")[0] not in seen and name != "paper":
            seen.add(where.partition("/")[0])
            count = len(fixed_temperatures(task, [each.label for each in profile.arms]))
            for arm in filter(lambda each: each.contrasts, profile.arms):
                found = configurations(task, profile, arm)
                assert len({each.label for each in found}) == count > 3, f"{where}, {arm.label}"
    assert len(seen) == 9
    monkeypatch.setattr("tempplug_benchmarks.run.tuning.OWN", {})
    with pytest.raises(ConfigError, match=r"'temperature-free' has no temperature and 0 configurations .* there are 3 fixed"):
        labels(tunable(toy), "toy-task", "quick", "temperature-free+infonce")


def measured(toy: ModuleType, folder: Path, chosen: tuple[str, ...]) -> tuple[Suite, Comparison]:
    """Errors of MACL's grid fall with its temperature; scores do not follow them."""
    suite = tunable(toy)
    error = dict(zip((*FIXED, *GRID), (0.3, 0.2, 0.4, 0.5, 0.4, 0.3), strict=True))
    score = dict(zip((*FIXED, *GRID), (70, 75, 60, 90, 80, 72), strict=True))
    for run in expanded(plan(suite, "quick", range(4))):
        if run.arm.label in chosen:
            noise = random.Random(f"{run.arm.label} {run.seed}").gauss(0, 0.05)
            write_result(run, folder, {"STSB": score[run.arm.label] + noise, "error": error[run.arm.label] + noise / 10}, 1)
    (found,) = compare(load_results(folder), {"toy": suite})
    return suite, found


def test_the_row_of_a_tuned_arm_is_what_validation_chose(toy: ModuleType, tmp_path: Path) -> None:
    _, part = measured(toy, tmp_path / "part", (*FIXED, *GRID[:2]))
    assert [(row.selected, row.configurations) for row in part.rows[3:]] == [(each, 1) for each in GRID[:2]]
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


def test_the_command_tunes_and_controls_and_goes_on(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = str(tmp_path / "out"), tmp_path / "log"
    assert main(["run", "toy", "--tuned", "--seeds", "0", "--output", str(tmp_path / "quick")]) == 0
    shown = capsys.readouterr().err
    assert "not tuned: task 'toy-task' has no validation data in profile 'quick'" in shown
    assert "[3/3]" in shown
    monkeypatch.setattr(toy, "SUITE", tunable(toy))
    monkeypatch.setenv("TOY_LOG", str(log))
    words = ["run", "toy", "--strategies", "macl", "--tuned", "--controls", "--output", out, "--seeds", "0", "1"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert all(each in captured.err for each in ("[12/12]", "[2/2]"))
    assert all(each in captured.out for each in ("the best of 3 by error", "minus control"))
    assert len(list((tmp_path / "out").rglob("control*/seed-*.json"))) == 2
    assert main(words) == 0
    assert len(log.read_text().splitlines()) == 14, "the second time nothing is left to run"
    assert capsys.readouterr().out == captured.out
    assert main(["report", out, "--format", "markdown"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if "tempplug bench run toy" in line]
    assert len(commands) == 2, "of the fixed ones, and of the tuned arm with its control"
    assert "control(" not in "".join(commands)
    assert "--strategies macl+reweighted --tuned --controls --seeds 0 1" in commands[1]
    assert main(["run", "toy", "--strategies", "control(macl+infonce)", "--output", out]) == 2
    assert "follows from the results of macl+infonce: run that with --controls" in capsys.readouterr().err


def planned(toy: ModuleType, *strategies: str) -> list[Run]:
    return list(plan(toy.SUITE, "small", SEEDS, strategies=[*strategies, "untrained", "fixed+dcl"]))


def score(run: Run) -> float:
    return random.Random(f"{run.arm.label} {run.seed}").gauss(70 + run.seed, 1)


def measure(runs: list[Run], folder: Path, mean: float | None = 0.0712345678) -> None:
    for run in runs:
        names = () if mean is None or run.arm.label == "untrained" else ("first", "last", "min", "max", "mean")
        temperature = {name: (mean or 0) + run.seed for name in names}
        write_result(run, folder, {"STSB": score(run), "error": 0.1}, 1, temperature=temperature)


@pytest.fixture
def controlled(toy: ModuleType, tmp_path: Path) -> tuple[list[Run], Comparison]:
    """The runs of two adaptive arms with their controls, and their comparison."""
    runs = planned(toy, "macl+infonce", "dystress+infonce")
    measure(runs, tmp_path)
    found, without = controls(runs, load_results(tmp_path).results)
    assert not without
    measure(found, tmp_path)
    (comparison,) = compare(consistent(load_results(tmp_path)), {"toy": toy.SUITE})
    return [*runs, *found], comparison


def test_each_control_has_the_temperature_of_its_own_run(
    controlled: tuple[list[Run], Comparison], toy: ModuleType, tmp_path: Path
) -> None:
    runs, comparison = controlled
    specs = {(run.arm.label, run.seed): run.specs[:2] for run in runs if run.arm.controlled}
    means = dict(zip(SEEDS, ("0.071235", "1.0712", "2.0712", "5.0712"), strict=True))
    assert specs == {
        (f"control({name}+infonce)", seed): (f"fixed:temperature={mean}", "infonce")
        for name in ("macl", "dystress")
        for seed, mean in means.items()
    }
    assert not parse_arm("macl", toy.SUITE.tasks[0].profiles["quick"].recipe).controlled
    row = next(each for each in comparison.rows if each.label == "control(macl+infonce)")
    assert row.resolved == "fixed:temperature=0.071235 to fixed:temperature=5.0712+infonce"
    changed = next(tmp_path.rglob("control-macl*/seed-2.json"))
    changed.write_text(changed.read_text().replace('"objective": "infonce"', '"objective": "dcl"'))
    with pytest.raises(DataError, match=r"they differ in objective\): run"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert "seed 2 is of another experiment" in consistent(load_results(tmp_path)).problems[0]


def test_adapting_is_a_paired_difference_of_a_family_of_its_own(controlled: tuple[list[Run], Comparison]) -> None:
    runs, comparison = controlled
    rows, p = {row.label: row for row in comparison.rows}, {}
    for label in ("macl+infonce", "dystress+infonce"):
        mine, theirs = ([score(run) for run in runs if run.arm.label == name] for name in (label, f"control({label})"))
        adapting, found = rows[label].adapting, rows[label].adapting_significance
        assert adapting is not None
        assert found is not None
        assert adapting.mean == pytest.approx(sum(mine) / 4 - sum(theirs) / 4)
        assert found.p == pytest.approx(stats.ttest_rel(mine, theirs).pvalue)
        p[label] = (found.p, found.adjusted, found.verdict, adapting.mean)
    smaller, larger = sorted(p, key=lambda label: p[label][0] or 0)
    lowest, highest = (p[label][0] or 0 for label in (smaller, larger))
    assert p[smaller][1] == pytest.approx(min(1, 2 * lowest))
    assert p[larger][1] == pytest.approx(max(highest, min(1, 2 * lowest)))
    table = headline(comparison)
    column = table.header.index("minus control")
    shown = {row.cells[0]: row.cells[column : column + 2] for row in table.rows}
    assert {label for label, cells in shown.items() if cells != ("-", "-")} == set(p)
    _, adjusted, verdict, mean = p[smaller]
    assert (shown[smaller][0].partition(" ")[0], shown[smaller][1]) == (f"{mean:+.2f}", f"{verdict}, {adjusted:.2g}")
    # a control is no strategy and no candidate for the baseline
    assert comparison.baseline == "fixed+infonce"
    assert {row.label for row in comparison.rows if row.significance} == {*p, "fixed+dcl"}


def test_the_conclusion_has_a_sentence_on_adapting_by_its_own_verdict(controlled: tuple[list[Run], Comparison]) -> None:
    _, comparison = controlled
    unclear, better = Significance(0.001, 0.2, 0.5, "underpowered"), Significance(0.001, 0.002, 0.5, "better")

    def told(macl: Significance) -> str:
        adapting = {"macl+infonce": macl, "dystress+infonce": unclear}
        rows = (
            replace(row, significance=unclear if row.significance else None, adapting_significance=adapting.get(row.label))
            for row in comparison.rows
        )
        return conclusion(replace(comparison, rows=tuple(rows)))

    assert told(unclear).endswith("Underpowered: 3 arms (detectable: 0.50). No arm is shown to gain or lose by adapting.")
    assert told(better).endswith("Adapting is better for macl+infonce than the mean temperature held.")
    assert "macl+infonce" not in told(better).partition("Adapting")[0], "the other question is not answered by that"
    assert CONTROLS in reading([comparison])


@pytest.mark.parametrize(
    ("label", "mean", "why"),
    [
        ("macl+infonce", None, "its result has no mean temperature, run it again"),
        ("amcl+amcl-top:top_k=4,beta=0.1", 0.07, "its objective needs the temperature of every pair"),
    ],
)
def test_what_cannot_have_a_control_is_named(toy: ModuleType, tmp_path: Path, label: str, mean: float | None, why: str) -> None:
    runs = planned(toy, label)
    assert controls(runs, ()) == ([], [])
    measure(runs, tmp_path, mean)
    expected = [f"no control of toy-task · {label} · seed {seed}: {why}" for seed in SEEDS]
    assert controls(runs, load_results(tmp_path).results) == ([], expected)
