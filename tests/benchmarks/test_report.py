from __future__ import annotations

import io
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from report_figures import FIGURES, SEEDS
from rich.console import Console
from run_checks import write_failure, write_result

from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.pages import markdown
from tempplug_benchmarks.report.significance import Significance, Verdict
from tempplug_benchmarks.report.tables import Row, Table, all_metrics, commands, conclusion, headline, ordered, remarks
from tempplug_benchmarks.report.terminal import fitting, print_report
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan

GOLDEN = Path(__file__).parent / "golden" / "report.md"


def test_markdown_is_golden(comparisons: tuple[Comparison, ...]) -> None:
    assert markdown(comparisons, ["seed-9.json is not JSON"]) == GOLDEN.read_text(encoding="utf-8")


def test_the_headline_has_measured_difference_and_reported(comparisons: tuple[Comparison, ...]) -> None:
    rows = {row.cells[0]: row for row in headline(comparisons[0]).rows}
    # macl minus plain: 1, 1.5, 1.5, 1, 1.5, so 1.3 ± 2.776 · sqrt(0.075) / sqrt(5) = 0.340; t = 10.61 with 4 degrees
    expected = (
        "macl+infonce",
        "+1.30 [+0.96, +1.64]",
        "74.30 ± 3.13",
        "77.69 MACL B.4",
        "better",
        "0.0013",
        "<0.001",
        "0.60",
        "5",
    )
    assert rows["macl+infonce"].cells == expected
    # temperature-free minus plain: -10 and 3, so -3.5 ± 12.706 · 6.5 = 82.59
    assert rows["macl+infonce"].tone == "better"
    assert rows["fixed+infonce"].cells[1:5:3] == ("baseline", "-")
    assert rows["fixed+dcl"].tone == "worse"
    assert rows["temperature-free+infonce"].tone == ""
    assert rows["temperature-free+infonce"].cells[1:5:3] == ("-3.50 [-86.09, +79.09]", "underpowered")
    assert rows["temperature-free+infonce"].cells[8] == "2 of 5"


def test_an_arm_that_always_failed_is_shown_as_failed(toy: ModuleType, tmp_path: Path) -> None:
    baseline, failed = plan(toy.SUITE, "quick", [0], strategies=["macl+infonce"])
    write_result(baseline, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    write_failure(failed, tmp_path, "it broke", "")
    rows = headline(compare(load_results(tmp_path), {"toy": toy.SUITE})[0]).rows
    assert (rows[1].cells[2], rows[1].cells[8], rows[1].kind) == ("failed", "0 of 1", "failed")


def test_what_an_arm_means_is_told_where_its_label_does_not(toy: ModuleType, tmp_path: Path) -> None:
    for run in plan(toy.SUITE, "small", [0], strategies=["untrained", "fixed:temperature=0.5", "macl+infonce"]):
        write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    told = [
        line
        for line in remarks(comparison)
        if line.partition(":")[0] in ("fixed+infonce", "fixed", "macl+infonce", "untrained")
    ]
    assert told == [
        "fixed+infonce: fixed:temperature=0.05+infonce",
        "macl+infonce: macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false+infonce",
        "untrained: num_train_epochs=0",
    ]


def test_where_a_temperature_went_is_told_and_not_where_it_stood_still(toy: ModuleType, tmp_path: Path) -> None:
    for seed, last in enumerate((0.03, 0.05)):
        for run in plan(toy.SUITE, "quick", [seed], strategies=["macl+infonce", "fixed+infonce"]):
            still = {"first": 0.2, "last": 0.2, "min": 0.2, "max": 0.2000001}
            moved = {"first": 0.1, "last": last, "min": last - 0.01, "max": 0.11}
            write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, temperature=moved if "macl" in run.arm.label else still)
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert [line for line in remarks(comparison) if " at first" in line] == [
        "macl+infonce: temperature 0.1 at first, 0.04 ± 0.014 at last, between 0.02 and 0.11"
    ]


def test_arms_are_sorted_by_their_mean_and_by_which_way_is_better(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    best_first = ["macl+infonce", "fixed+infonce", "fixed+dcl", "temperature-free+infonce"]
    assert [row.cells[0] for row in headline(comparison).rows] == best_first
    by_error = replace(comparison, profile=replace(comparison.profile, primary="error"))
    assert [row.label for row in ordered(by_error)] == best_first
    worst = replace(comparison.rows[0], summaries={})
    assert ordered(replace(comparison, rows=(worst, *comparison.rows[1:])))[-1] is worst


def test_the_conclusion_follows_the_verdicts_alone(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    assert conclusion(comparison) == (
        "Better than fixed+infonce: macl+infonce. Worse than fixed+infonce: fixed+dcl. "
        "Underpowered: temperature-free+infonce (detectable: 257.17)."
    )

    def judged(verdict: Verdict, p: float = 0.001) -> Comparison:
        found = Significance(p, p, 2.5, verdict)
        rows = tuple(replace(row, significance=found if row.significance else None) for row in comparison.rows)
        return replace(comparison, rows=rows)

    shown = "No arm is shown to be better or worse than fixed+infonce. No difference seen: 3 arms (detectable: 2.50)."
    assert conclusion(judged("no difference seen")) == shown
    assert conclusion(judged("one seed")) == "One seed: nothing is concluded."
    quiet = "No signal: fixed+infonce is not clearly better than what was not trained, so that nothing is concluded."
    assert conclusion(judged("no signal")) == quiet
    alone = replace(comparison, rows=tuple(replace(row, significance=None) for row in comparison.rows))
    assert conclusion(alone) == "Nothing is compared."


def test_a_command_runs_what_a_table_shows(comparisons: tuple[Comparison, ...], toy: ModuleType) -> None:
    from tempplug_benchmarks.command import _parser

    (comparison,) = comparisons
    (told,) = commands(comparison)
    program, _, *words = shlex.split(told)
    options = _parser().parse_args(words)
    runs = plan(toy.SUITE, options.profile, options.seeds, options.tasks, options.strategies)
    assert program == "tempplug"
    assert {(run.arm.label, run.seed) for run in runs} == {(label, seed) for label in FIGURES for seed in SEEDS}
    assert (options.suite, options.data_dir) == ("toy", None)


def test_arms_of_other_seeds_have_a_command_of_their_own(toy: ModuleType, tmp_path: Path) -> None:
    for seeds, arm in (([0, 1], "fixed+infonce"), ([0, 1, 5], "macl:alpha=1+infonce")):
        for run in plan(toy.SUITE, "small", seeds, strategies=[arm]):
            write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert commands(comparison) == [
        "tempplug bench run toy --profile small --tasks toy-task --strategies fixed+infonce macl:alpha=1+infonce "
        "--seeds 0 1 5 --data-dir DATA --output runs"
    ]
    path = next(run for run in plan(toy.SUITE, "small", [5]) if run.arm.label == "fixed+infonce").path(tmp_path)
    path.unlink()
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert [told.partition("--strategies ")[2].partition(" --data")[0] for told in commands(comparison)] == [
        "fixed+infonce --seeds 0 1",
        "macl:alpha=1+infonce --seeds 0 1 5",
    ]


def test_reported_lines_stand_below_the_measured_ones(comparisons: tuple[Comparison, ...]) -> None:
    cells = [row.cells for row in all_metrics(comparisons[0]).rows]
    position = cells.index(("macl+infonce: MACL table B.4, w/ MACL", "77.69", "-"))
    assert cells[position - 1] == ("macl+infonce", "74.30 ± 3.13", "0.300 ± 0.100")


def test_the_terminal_shows_every_arm_and_the_failure(comparisons: tuple[Comparison, ...]) -> None:
    shown = io.StringIO()
    print_report(Console(file=shown, width=80), comparisons, ["seed-9.json is not JSON"])
    text = shown.getvalue()
    for label in FIGURES:
        assert label in text
    assert "+1.30 [+0.96, +1.64]" in text
    assert "failed: temperature-free+infonce, seed 2: RuntimeError: <b>it</b> broke" in text
    assert "left out: seed-9.json is not JSON" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_with_many_metrics_is_shown_whole(width: int) -> None:
    from tempplug_benchmarks.report.terminal import terminal_table

    names = [f"metric{number}" for number in range(9)]
    rows = [
        Row((label, *(f"{60 + row}.{number}0 ± 0.{number}{row}" for number in range(9))), "measured")
        for row, label in enumerate(("fixed:temperature=0.2+dcl", "temperature-free+dcl", "schedule+dcl"))
    ]
    parts = fitting(Table(("arm", *names), tuple(rows)), width)
    shown = io.StringIO()
    for part in parts:
        Console(file=shown, width=width).print(terminal_table(part))
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert (len(parts) == 1) == (width == 200)
    for row in rows:
        assert text.count(row.cells[0]) == len(parts)
        assert all(cell in text for cell in row.cells)
    assert all(name in text for name in names)
