"""The report of one task: figures, verdicts, commands; as Markdown, on a terminal and as a page that needs nothing else."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from report_page import Page
from rich.console import Console
from run_checks import FIGURES, SEEDS, write_result

from tempplug_benchmarks.command import _parser
from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.pages import fitting, page as whole, print_report, terminal_table
from tempplug_benchmarks.report.plots import difference_plot, score_plot
from tempplug_benchmarks.report.significance import Significance, Verdict
from tempplug_benchmarks.report.tables import Row, Table, all_metrics, commands, conclusion, headline, ordered, remarks
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.training import TrainingReport

GOLDEN = Path(__file__).parent / "golden" / "report.md"
BROKEN = ["seed-9.json is not JSON"]
BEST_FIRST = ["macl+infonce", "fixed+infonce", "fixed+dcl", "temperature-free+infonce"]


@pytest.fixture(scope="module")
def content(comparisons: tuple[Comparison, ...]) -> str:
    return whole(TrainingReport(comparisons, BROKEN).html_parts())


def judged(comparison: Comparison, found: Significance | None) -> Comparison:
    """The comparison with this verdict on every difference."""
    rows = tuple(replace(row, significance=found if row.significance else None) for row in comparison.rows)
    return replace(comparison, rows=rows)


def test_markdown_is_golden(comparisons: tuple[Comparison, ...]) -> None:
    assert TrainingReport(comparisons, BROKEN).markdown() == GOLDEN.read_text(encoding="utf-8")


def test_the_headline_has_measured_difference_and_reported(comparisons: tuple[Comparison, ...]) -> None:
    rows = {row.cells[0]: row for row in headline(comparisons[0]).rows}
    assert list(rows) == BEST_FIRST
    # macl minus plain: 1, 1.5, 1.5, 1, 1.5, so 1.3 ± 2.776 · sqrt(0.075) / sqrt(5) = 0.340; t = 10.61 with 4 degrees
    macl = ("+1.30 [+0.96, +1.64]", "74.30 ± 3.13", "77.69 MACL B.4", "better", "0.0013", "<0.001", "0.60", "5")
    assert rows["macl+infonce"].cells[1:] == macl
    assert rows["fixed+infonce"].cells[1:5:3] == ("baseline", "-")
    # temperature-free minus plain: -10 and 3, so -3.5 ± 12.706 · 6.5 = 82.59
    assert rows["temperature-free+infonce"].cells[1:5:3] == ("-3.50 [-86.09, +79.09]", "underpowered")
    assert rows["temperature-free+infonce"].cells[8] == "2 of 5"
    assert [row.tone for row in rows.values()] == ["better", "", "worse", ""]


def test_arms_are_sorted_by_which_way_is_better_and_those_that_failed_come_last(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    by_error = replace(comparison, profile=replace(comparison.profile, primary="error"))
    assert [row.label for row in ordered(by_error)] == BEST_FIRST
    failed = replace(comparison.rows[2], summaries={})
    rows = headline(replace(comparison, rows=(failed, *comparison.rows[:2]))).rows
    assert (rows[2].cells[0], rows[2].cells[2], rows[2].kind) == ("fixed+dcl", "-", "failed")
    rows = headline(replace(comparison, rows=(replace(comparison.rows[3], summaries={}), *comparison.rows[:2]))).rows
    assert (rows[2].cells[2], rows[2].cells[8], rows[2].kind) == ("failed", "0 of 3", "failed"), "it always failed"


def test_specs_and_temperatures_are_told_where_labels_do_not(toy: ModuleType, tmp_path: Path) -> None:
    for seed, last in enumerate((0.03, 0.05)):
        for run in plan(toy.SUITE, "small", [seed], strategies=["untrained", "fixed:temperature=0.5", "macl+infonce"]):
            still = {"first": 0.2, "last": 0.2, "min": 0.2, "max": 0.2000001}
            moved = {"first": 0.1, "last": last, "min": last - 0.01, "max": 0.11}
            write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, temperature=moved if "macl" in run.arm.label else still)
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert [line for line in remarks(comparison) if re.match(r"(fixed|macl|untrained)[^ ]*: ", line)] == [
        "fixed+infonce: fixed:temperature=0.05+infonce",
        "macl+infonce: macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false+infonce",
        "untrained: num_train_epochs=0",
        "macl+infonce: temperature 0.1 at first, 0.04 ± 0.014 at last, between 0.02 and 0.11",
    ]


def test_the_conclusion_follows_the_verdicts_alone(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    assert conclusion(comparison) == (
        "Better than fixed+infonce: macl+infonce. Worse than fixed+infonce: fixed+dcl. "
        "Underpowered: temperature-free+infonce (detectable: 257.17)."
    )
    no_news: dict[Verdict, str] = {
        "no difference seen": "No arm is shown to be better or worse than fixed+infonce. "
        "No difference seen: 3 arms (detectable: 2.50).",
        "one seed": "One seed: nothing is concluded.",
        "no signal": "No signal: fixed+infonce is not clearly better than what was not trained, so that nothing is concluded.",
    }
    for verdict, words in no_news.items():
        assert conclusion(judged(comparison, Significance(0.001, 0.001, 2.5, verdict))) == words
    assert conclusion(judged(comparison, None)) == "Nothing is compared."


def test_commands_run_what_a_table_shows(comparisons: tuple[Comparison, ...], toy: ModuleType) -> None:
    (told,) = commands(comparisons[0])
    program, _, *words = shlex.split(told)
    options = _parser().parse_args(words)
    runs = plan(toy.SUITE, options.profile, options.seeds, options.tasks, options.strategies)
    assert {(run.arm.label, run.seed) for run in runs} == {(label, seed) for label in FIGURES for seed in SEEDS}
    assert (program, options.suite, options.data_dir) == ("tempplug", "toy", None)


def test_arms_of_other_seeds_have_a_command_of_their_own(toy: ModuleType, tmp_path: Path) -> None:
    for run in plan(toy.SUITE, "small", [0, 1, 5], strategies=["macl:alpha=1+infonce"]):
        write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
        if (run.arm.label, run.seed) == ("fixed+infonce", 5):
            common = commands(compare(load_results(tmp_path), {"toy": toy.SUITE})[0])
            run.path(tmp_path).unlink()
    assert common[0].endswith(" --data-dir DATA --output runs")
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert [told.partition("--strategies ")[2].partition(" --data")[0] for told in commands(comparison)] == [
        "fixed+infonce --seeds 0 1",
        "macl:alpha=1+infonce --seeds 0 1 5",
    ]


@pytest.mark.parametrize("width", [60, 200])
def test_the_terminal_shows_every_figure(comparisons: tuple[Comparison, ...], width: int) -> None:
    shown = io.StringIO()
    print_report(Console(file=shown, width=width), comparisons, BROKEN)
    words = (*FIGURES, "+1.30", "failed: temperature-free+infonce, seed 2: RuntimeError:", "left out: seed-9.json is not JSON")
    assert all(each in shown.getvalue() for each in words)
    # a table with many metrics is split, and each part has the first column
    header = ("arm", *(f"metric{number}" for number in range(9)))
    rows = [
        Row((label, *(f"{60 + row}.{number}0 ± 0.{number}{row}" for number in range(9))), "measured")
        for row, label in enumerate(("fixed:temperature=0.2+dcl", "temperature-free+dcl", "schedule+dcl"))
    ]
    parts = fitting(Table(header, tuple(rows)), width)
    assert (len(parts) == 1) == (width == 200)
    shown = io.StringIO()
    for part in parts:
        Console(file=shown, width=width).print(terminal_table(part))
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(row.cells[0]) == len(parts) for row in rows)
    assert all(word in text for words in (header, *(row.cells for row in rows)) for word in words)


def test_html_is_one_self_contained_page_with_the_figures_of_the_markdown(
    comparisons: tuple[Comparison, ...], content: str
) -> None:
    page = Page(content)
    assert not {"link", "img", "iframe", "object", "b"} & set(page.tags)
    assert not {"src", "xlink:href", "srcset", "onclick"} & {name for name, _ in page.attributes}
    assert all(value and value.startswith("#") for name, value in page.attributes if name == "href")
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import\(", content)
    assert len(page.ids) == len(set(page.ids))
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels == ["toy / toy-task / quick: STSB", "toy / toy-task / quick: all metrics"]
    for words in ("RuntimeError: <b>it</b> broke", BROKEN[0], "Better than fixed+infonce: macl+infonce."):
        assert words in page.text
    plain = TrainingReport(comparisons, []).markdown().replace("\\", "")
    for row in (*headline(comparisons[0]).rows, *all_metrics(comparisons[0]).rows):
        assert all(cell in page.text and cell in plain for cell in row.cells)
    # the lines of papers stay with the arm that they are about
    (group,) = [each for each in re.findall("<tbody>(.*?)</tbody>", content, re.S) if "MACL table B.4,<wbr> w/ MACL" in each]
    assert group.count("<tr") == 2
    assert group.index("macl+<wbr>infonce</td>") < group.index("MACL table B.4")


def test_every_plot_has_a_name_and_says_what_it_shows(comparisons: tuple[Comparison, ...], content: str) -> None:
    drawings = re.findall("<svg[^>]*role=.*?</svg>", content, re.S)
    names = [re.findall("<title>(.*?)</title>", each)[0].partition(",")[0] for each in drawings]
    assert names == ["STSB minus that of fixed+infonce", "STSB of every arm", "seconds a run"]
    assert all('role="img"' in each for each in drawings)
    told = re.findall("<desc>(.*?)</desc>", drawings[0])
    differences = {row.cells[0]: row.cells[1] for row in headline(comparisons[0]).rows if row.cells[1] != "baseline"}
    assert told == ["; ".join(f"{label}: {difference}" for label, difference in differences.items())]


def test_colour_follows_the_adjusted_value(comparisons: tuple[Comparison, ...], content: str) -> None:
    table = Page(content).tables[0]
    assert table.header[1] == "minus baseline", "what decides comes first, also on a phone"
    assert [row[1] for row in table.classes] == ["better", "", "worse", ""]
    # the same differences, with p below 0.05 but not Holm's
    verdicts: tuple[Verdict, ...] = ("too small", "no difference seen", "underpowered", "one seed", "no signal")
    for verdict in verdicts:
        plain = judged(comparisons[0], Significance(0.001, 0.2, 1.0, verdict))
        assert {row.tone for row in headline(plain).rows} == {""}
        assert not re.search('class="dot (better|worse)', score_plot(plain) + difference_plot(plain))
