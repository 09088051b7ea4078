"""A control is ``fixed`` at the mean temperature of the arm's own run, and what adapting buys is a family of its own."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import write_result
from scipy import stats

from tempplug.errors import DataError
from tempplug_benchmarks.arm import Arm, parse_arm
from tempplug_benchmarks.report.comparison import Comparison, compare, consistent
from tempplug_benchmarks.report.significance import Significance
from tempplug_benchmarks.report.tables import CONTROLS, conclusion, headline, reading
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.controls import controls
from tempplug_benchmarks.run.plan import Run, plan

SEEDS = (0, 1, 2, 5)


def runs_of(toy: ModuleType, *strategies: str) -> list[Run]:
    return list(plan(toy.SUITE, "small", SEEDS, strategies=[*strategies, "untrained", "fixed+dcl"]))


def score(run: Run) -> float:
    return random.Random(f"{run.arm.label} {run.seed}").gauss(70 + run.seed, 1)


def temperatures(mean: float) -> dict[str, float]:
    return dict.fromkeys(("first", "last", "min", "max", "mean"), mean)


def measure(runs: list[Run], folder: Path, mean: bool = True) -> None:
    for run in runs:
        temperature = temperatures(0.0712345678 + run.seed) if mean and run.arm.contrasts else {}
        write_result(run, folder, {"STSB": score(run), "error": 0.1}, 1, temperature=temperature)


def controlled(toy: ModuleType, folder: Path) -> tuple[list[Run], list[Run], Comparison]:
    runs = runs_of(toy, "macl+infonce", "dystress+infonce")
    measure(runs, folder)
    found, without = controls(runs, load_results(folder).results)
    assert not without
    for run in found:
        write_result(run, folder, {"STSB": score(run), "error": 0.1}, 1, temperature=temperatures(0.07 + run.seed))
    (comparison,) = compare(consistent(load_results(folder)), {"toy": toy.SUITE})
    return runs, found, comparison


def test_each_seed_has_the_temperature_of_its_own_run(toy: ModuleType, tmp_path: Path) -> None:
    _, found, comparison = controlled(toy, tmp_path)
    assert {run.arm.label for run in found} == {"control(macl+infonce)", "control(dystress+infonce)"}
    assert len(found) == 2 * len(SEEDS)
    for run in found:
        mean = {0: "0.071235", 1: "1.0712", 2: "2.0712", 5: "5.0712"}[run.seed]
        assert run.specs == (f"fixed:temperature={mean}", "infonce")
    row = next(each for each in comparison.rows if each.label == "control(macl+infonce)")
    assert row.resolved == "fixed:temperature=0.071235 to fixed:temperature=5.0712+infonce"
    assert not load_results(tmp_path).problems
    changed = next(tmp_path.rglob("control-macl*/seed-2.json"))
    changed.write_text(changed.read_text().replace('"objective": "infonce"', '"objective": "dcl"'))
    with pytest.raises(DataError, match=r"they differ in objective\): run"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert "seed 2 is of another experiment" in consistent(load_results(tmp_path)).problems[0]


def test_adapting_is_a_paired_difference_of_a_family_of_its_own(toy: ModuleType, tmp_path: Path) -> None:
    runs, found, comparison = controlled(toy, tmp_path)
    p = {}
    for label in ("macl+infonce", "dystress+infonce"):
        mine = [score(run) for run in runs if run.arm.label == label]
        theirs = [score(run) for run in found if run.arm.label == f"control({label})"]
        row = next(each for each in comparison.rows if each.label == label)
        assert row.adapting is not None
        assert row.adapting_significance is not None
        assert row.adapting.mean == pytest.approx(sum(mine) / 4 - sum(theirs) / 4)
        p[label] = stats.ttest_rel(mine, theirs).pvalue
        assert row.adapting_significance.p == pytest.approx(p[label])
    smaller, larger = sorted(p, key=p.__getitem__)
    adjusted = {each.label: each.adapting_significance for each in comparison.rows if each.adapting_significance}
    assert adjusted[smaller].adjusted == pytest.approx(min(1, 2 * p[smaller]))
    assert adjusted[larger].adjusted == pytest.approx(max(p[larger], min(1, 2 * p[smaller])))
    table = headline(comparison)
    column = table.header.index("minus control")
    shown = {row.cells[0]: row.cells[column : column + 2] for row in table.rows}
    assert {label for label, cells in shown.items() if cells != ("-", "-")} == set(p)
    difference = next(row.adapting.mean for row in comparison.rows if row.label == smaller and row.adapting)
    assert shown[smaller][0].startswith(f"{difference:+.2f} [")
    assert shown[smaller][1] == f"{adjusted[smaller].verdict}, {adjusted[smaller].adjusted:.2g}"


def test_the_report_tells_what_adapting_buys_by_its_own_verdict(toy: ModuleType, tmp_path: Path) -> None:
    _, _, comparison = controlled(toy, tmp_path)
    unclear, better = Significance(0.001, 0.2, 0.5, "underpowered"), Significance(0.001, 0.002, 0.5, "better")

    def told(macl: Significance) -> str:
        judged = {row.label: unclear if row.significance else None for row in comparison.rows}
        adapting = {"macl+infonce": macl, "dystress+infonce": unclear}
        rows = (
            replace(row, significance=judged[row.label], adapting_significance=adapting.get(row.label))
            for row in comparison.rows
        )
        return conclusion(replace(comparison, rows=tuple(rows)))

    assert told(unclear).endswith("Underpowered: 3 arms (detectable: 0.50). No arm is shown to gain or lose by adapting.")
    assert told(better).endswith("Adapting is better for macl+infonce than the mean temperature held.")
    assert "macl+infonce" not in told(better).partition("Adapting")[0], "the other question is not answered by that"
    assert CONTROLS in reading([comparison])


def test_a_control_is_no_strategy_and_no_candidate_for_the_baseline(toy: ModuleType, tmp_path: Path) -> None:
    _, _, comparison = controlled(toy, tmp_path)
    rows = {row.cells[0]: row for row in headline(comparison).rows}
    assert comparison.baseline == "fixed+infonce"
    assert rows["control(macl+infonce)"].cells[3] == "-"
    assert {row.label for row in comparison.rows if row.significance} == {"macl+infonce", "dystress+infonce", "fixed+dcl"}


def test_what_has_no_mean_temperature_has_no_control(toy: ModuleType, tmp_path: Path) -> None:
    runs = runs_of(toy, "macl+infonce")
    measure(runs, tmp_path, mean=False)
    found, without = controls(runs, load_results(tmp_path).results)
    assert not found
    assert without[0] == ("no control of toy-task · macl+infonce · seed 0: its result has no mean temperature, run it again")
    assert len(without) == len(SEEDS), "neither fixed nor untrained"
    assert controls(runs, ()) == ([], [])


def test_an_objective_that_wants_a_temperature_of_every_pair_has_no_control(toy: ModuleType, tmp_path: Path) -> None:
    runs = [run for run in runs_of(toy, "amcl+amcl-top:top_k=4,beta=0.1") if run.arm.label.startswith("amcl")]
    measure(runs, tmp_path)
    found, without = controls(runs, load_results(tmp_path).results)
    assert (found, len(without)) == ([], len(SEEDS))
    assert "its objective wants a temperature of every pair" in without[0]


def test_a_label_tells_what_it_controls(toy: ModuleType) -> None:
    assert Arm("control(macl:alpha=2+infonce)").controlled == "macl:alpha=2+infonce"
    assert not Arm("control(macl+infonce)").contrasts
    assert not parse_arm("macl", toy.SUITE.tasks[0].profiles["quick"].recipe).controlled
