from __future__ import annotations

import io
import random
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from run_checks import write_result
from scipy import stats

from tempplug_benchmarks.report.across import columns, cross_table, ranking
from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.pages import html, markdown
from tempplug_benchmarks.report.terminal import print_report, print_summary
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.suite import Suite

SEEDS = range(5)
ARMS = ["fixed+infonce", "macl+reweighted", "macl+infonce", "temperature-free+infonce", "fixed:temperature=0.5+infonce"]
SCORES = {
    "one": (70.0, 71.0, 60.0, 69.0, 75.0),
    "two": (50.0, 52.0, 40.0, 30.0, 55.0),
    "three": (20.0, 20.0, 19.0, 10.0, 25.0),
    "four": (80.0, 85.0, 19.0, 79.0, 25.0),
}


def measured(toy: ModuleType, folder: Path, scores: dict[str, tuple[float, ...]]) -> tuple[Comparison, ...]:
    first = toy.SUITE.tasks[0]
    quick = first.profile("quick")
    tasks = (replace(first, name=name, profiles={"quick": replace(quick, dataset=f"data of {name}")}) for name in scores)
    suite = Suite("toy", "tasks", tuple(tasks))
    for run in plan(suite, "quick", SEEDS, strategies=ARMS):
        if run.arm.label in ARMS:
            # binary fractions, whose means are exact: what a seed does to all, and a little that it does to each
            noise, arm = random.Random(f"{run.task.name} {run.seed}").randrange(1024) / 1024, ARMS.index(run.arm.label)
            score = scores[run.task.name][arm] + noise + (run.seed - 2) * arm / 4096
            write_result(run, folder, {"STSB": score, "error": 0.5}, seconds=1)
    return compare(load_results(folder), {"toy": suite})


def test_a_strategy_is_as_the_recipe_has_it_and_ranked_among_strategies(toy: ModuleType, tmp_path: Path) -> None:
    found = {each.comparison.task.name: each for each in columns(measured(toy, tmp_path, SCORES))}
    # macl with its own objective, not the first of its arms; not the second fixed temperature
    assert {name: row.label for name, row in found["one"].rows.items()} == {
        "fixed": "fixed+infonce",
        "macl": "macl+reweighted",
        "temperature-free": "temperature-free+infonce",
    }
    assert found["one"].ranks == {"macl": 1, "fixed": 2, "temperature-free": 3}
    assert found["three"].ranks == {"macl": 1.5, "fixed": 1.5, "temperature-free": 3}


def test_ranks_are_tested_as_friedman_and_nemenyi_say(toy: ModuleType, tmp_path: Path) -> None:
    found = ranking(columns(measured(toy, tmp_path, SCORES)))
    assert found is not None
    assert found.data_sets == 4
    assert found.strategies == {"macl": 1.125, "fixed": 1.875, "temperature-free": 3.0}
    assert list(found.strategies) == ["macl", "fixed", "temperature-free"]
    ranks = [(1, 1, 1.5, 1), (2, 2, 1.5, 2), (3, 3, 3, 3)]
    assert found.p == pytest.approx(stats.friedmanchisquare(*ranks).pvalue)
    # q of three groups at 0.05 is 2.343 (Demšar's table 5): 2.343 · sqrt(3 · 4 / (6 · 4))
    assert found.critical == pytest.approx(2.343 * 0.5**0.5, abs=1e-3)
    assert ranking(columns(measured(toy, tmp_path / "few", {name: SCORES[name] for name in ("one", "two")}))) is None


def test_a_data_set_is_one_row_of_the_test_whatever_its_profiles_and_tasks(toy: ModuleType, tmp_path: Path) -> None:
    comparisons = measured(toy, tmp_path, SCORES | {"five": (40.0, 30.0, 20.0, 50.0, 45.0)})
    each = {comparison.task.name: comparison for comparison in comparisons}
    # "one" anew in a larger profile, where the ranks are turned round, and the data of "two" in another task
    both = replace(each["one"].task, profiles=dict.fromkeys(("quick", "small"), each["one"].profile))
    larger = replace(each["five"], task=both, profile_name="small", dataset="more data of one")
    shared = replace(each["four"], dataset="data of two")
    found = ranking(columns([*(each[name] for name in ("one", "two", "three")), larger, shared]))
    assert found is not None
    assert found.data_sets == 3
    ranks = [(3, 1, 1.5), (2, 2, 1.5), (1, 3, 3)]  # of "larger", "two" and "three"
    assert found.p == pytest.approx(stats.friedmanchisquare(*ranks).pvalue)
    assert ranking(columns([each["one"], larger, each["two"], shared])) is None


def test_the_table_says_rank_difference_and_verdict(toy: ModuleType, tmp_path: Path) -> None:
    comparisons = measured(toy, tmp_path, SCORES)
    across = cross_table(comparisons)
    assert across is not None
    table, told = across
    rows = {row.cells[0]: dict(zip(table.header, row.cells, strict=True)) for row in table.rows}
    assert next(iter(rows)) == "mean rank"
    assert list(rows["mean rank"].values())[1:] == ["1.12", "1.88", "3.00", "-"], "best first, then what is no strategy"
    assert rows["toy / one: STSB"]["macl"] == "1 · +1.00 ▲; [+1.00, +1.00]"
    assert rows["toy / one: STSB"]["temperature-free"] == "3 · -1.00 ▼; [-1.00, -1.00]"
    assert rows["toy / one: STSB"]["fixed"].startswith("2 · τ 0.05: 70.")
    assert rows["toy / one: STSB"]["fixed, highest"] == "τ 0.5: +5.00 ▲; [+5.00, +5.00]"
    assert "mean ranks over 4 data sets of 3 strategies: Friedman p = 0.022; two differ where" in told[1]
    assert "## All tasks" in markdown(comparisons, [])
    shown = io.StringIO()
    print_report(Console(file=shown, width=120, force_terminal=True, color_system="standard"), comparisons, [])
    assert re.search(r"\x1b\[32m *1 · \+1\.00 ▲", shown.getvalue()), "green"
    assert re.search(r"\x1b\[31m *3 · -1\.00 ▼", shown.getvalue()), "red"
    assert cross_table(comparisons[:1]) is None


def test_few_tasks_are_columns_on_a_terminal_below_everything_else(toy: ModuleType, tmp_path: Path) -> None:
    comparisons = measured(toy, tmp_path, {name: SCORES[name] for name in ("one", "two")})
    for tell in (print_report, print_summary):
        shown = io.StringIO()
        tell(Console(file=shown, width=120), comparisons, [])
        below = shown.getvalue().partition("\nAll tasks\n")[2]
        header, *lines = filter(str.strip, below.splitlines())
        assert re.split("  +", header.strip()) == ["strategy", "toy / one: STSB", "toy / two: STSB"], "too few to be ranked"
        assert [line.split()[0] for line in lines if " · " in line] == ["fixed", "macl", "temperature-free"]
        assert re.search(r"^ fixed, highest +τ 0.5: \+5.00 ▲ +τ 0.5: \+5.00 ▲", below, re.MULTILINE)


def test_a_summary_leaves_out_what_the_page_holds(toy: ModuleType, tmp_path: Path) -> None:
    shown = io.StringIO()
    print_summary(Console(file=shown, width=120), measured(toy, tmp_path, SCORES), ["old.json is not JSON"])
    told = shown.getvalue()
    assert "toy / one / quick  STSB: Spearman × 100 of nothing\ndata: data of one\n" in told
    assert "Better than fixed+infonce: fixed:temperature=0.5+infonce, macl+reweighted." in told
    assert "left out: old.json is not JSON" in told
    assert "recipe: " not in told
    assert "tempplug bench run" not in told


def test_the_ends_of_the_fixed_temperatures_and_what_was_not_trained_are_beside_the_strategies(
    toy: ModuleType, tmp_path: Path
) -> None:
    labels = ["fixed:temperature=0.01", "fixed+infonce", "fixed:temperature=0.2", "fixed:temperature=1", "macl", "untrained"]
    first = replace(toy.SUITE.tasks[0], name="one")
    suite = Suite("toy", "tasks", (first, replace(first, name="two")))
    for run in plan(suite, "small", [0, 1, 2], strategies=labels):
        score = 70.0 - 10 * len(run.arm.label) + run.seed / 4
        write_result(run, tmp_path, {"STSB": score, "error": 0.5}, seconds=1)
    found = columns(compare(load_results(tmp_path), {"toy": suite}))
    for column in found:
        assert {name: row.label for name, row in column.references.items()} == {
            "fixed, lowest": "fixed:temperature=0.01+infonce",
            "fixed, highest": "fixed:temperature=1+infonce",
            "untrained": "untrained",
        }
        assert set(column.ranks) <= {"fixed", "macl"}


def test_a_task_without_signal_ranks_nothing(toy: ModuleType, tmp_path: Path) -> None:
    comparisons = measured(toy, tmp_path, SCORES)
    quiet = (replace(comparisons[0], signal=False), *comparisons[1:])
    across = cross_table(quiet)
    assert across is not None
    table, told = across
    (row,) = [row for row in table.rows if row.cells[0] == f"toy / {quiet[0].task.name}: STSB"]
    assert {cell.partition(" · ")[0] for cell in row.cells[1:]} == {"no signal"}
    assert told[-1] == f"no signal, so that nothing is ranked: toy / {quiet[0].task.name} / quick"


def test_what_stands_in_for_a_task_s_data_is_told_wherever_the_task_is_named(toy: ModuleType, tmp_path: Path) -> None:
    plain = measured(toy, tmp_path, {name: SCORES[name] for name in ("one", "two")})
    digits = [replace(each, profile=replace(each.profile, stands_in="digits")) for each in plain]
    for comparisons, name in ((plain, "one"), (digits, "one (on digits)")):
        told = markdown(comparisons, [])
        assert f"## toy / {name} / quick" in told
        assert f"| toy / {name}: STSB |" in told
        assert f"<b>{name}</b>" in html(comparisons, [])
