"""The table of strategies by tasks and its ranks, as Friedman and Nemenyi test them."""

from __future__ import annotations

import io
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from report_page import Page
from rich.console import Console
from run_checks import write_result
from scipy import stats

from tempplug_benchmarks.report.across import columns, cross_table, ranking
from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.pages import page as whole, print_report
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.training import TrainingReport

ARMS = ["fixed+infonce", "macl+reweighted", "macl+infonce", "temperature-free+infonce", "fixed:temperature=0.5+infonce"]
SCORES = {
    "one": (70.0, 71.0, 60.0, 69.0, 75.0),
    "two": (50.0, 52.0, 40.0, 30.0, 55.0),
    "three": (20.0, 20.0, 19.0, 10.0, 25.0),
    "four": (80.0, 85.0, 19.0, 79.0, 25.0),
    "five": (40.0, 30.0, 20.0, 50.0, 45.0),
}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory, toy: ModuleType) -> dict[str, Comparison]:
    """Five seeds of `ARMS` on the tasks of `SCORES`, by task."""
    folder, first = tmp_path_factory.mktemp("across"), toy.SUITE.tasks[0]
    quick = first.profile("quick")
    tasks = (replace(first, name=name, profiles={"quick": replace(quick, dataset=f"data of {name}")}) for name in SCORES)
    suite = Suite("toy", "tasks", tuple(tasks))
    for run in plan(suite, "quick", range(5), strategies=ARMS):
        if run.arm.label in ARMS:
            # binary fractions, whose means are exact: what a seed does to all, and a little that it does to each
            noise, arm = random.Random(f"{run.task.name} {run.seed}").randrange(1024) / 1024, ARMS.index(run.arm.label)
            score = SCORES[run.task.name][arm] + noise + (run.seed - 2) * arm / 4096
            write_result(run, folder, {"STSB": score, "error": 0.5}, seconds=1)
    return {each.task.name: each for each in compare(load_results(folder), {"toy": suite})}


@pytest.fixture
def four(every: dict[str, Comparison]) -> tuple[Comparison, ...]:
    return tuple(each for name, each in every.items() if name != "five")


def shown(tell: object, comparisons: tuple[Comparison, ...], **options: object) -> str:
    """What `print_report` prints, in full or briefly."""
    stream = io.StringIO()
    tell(Console(file=stream, width=120, **options), comparisons, ["old.json is not JSON"])  # type: ignore[operator, arg-type]
    return stream.getvalue()


def test_a_strategy_is_as_the_recipe_has_it_and_ranked_among_strategies(four: tuple[Comparison, ...]) -> None:
    found = {each.comparison.task.name: each for each in columns(four)}
    # macl with its own objective, not the first of its arms; not the second fixed temperature
    assert {name: row.label for name, row in found["one"].rows.items()} == {
        "fixed": "fixed+infonce",
        "macl": "macl+reweighted",
        "temperature-free": "temperature-free+infonce",
    }
    assert found["one"].ranks == {"macl": 1, "fixed": 2, "temperature-free": 3}
    assert found["three"].ranks == {"macl": 1.5, "fixed": 1.5, "temperature-free": 3}


def test_ranks_are_tested_as_friedman_and_nemenyi_say(four: tuple[Comparison, ...], every: dict[str, Comparison]) -> None:
    found = ranking(columns(four))
    assert found is not None
    assert found.data_sets == 4
    assert list(found.strategies.items()) == [("macl", 1.125), ("fixed", 1.875), ("temperature-free", 3.0)]
    assert found.p == pytest.approx(stats.friedmanchisquare((1, 1, 1.5, 1), (2, 2, 1.5, 2), (3, 3, 3, 3)).pvalue)
    # q of three groups at 0.05 is 2.343 (Demšar's table 5): 2.343 · sqrt(3 · 4 / (6 · 4))
    assert found.critical == pytest.approx(2.343 * 0.5**0.5, abs=1e-3)
    assert ranking(columns([every["one"], every["two"]])) is None
    # a data set is one row: "one" anew in a larger profile, where the ranks are reversed, and the data of "two" in another task
    both = replace(every["one"].task, profiles=dict.fromkeys(("quick", "small"), every["one"].profile))
    larger = replace(every["five"], task=both, profile_name="small", dataset="more data of one")
    shared = replace(every["four"], dataset="data of two")
    found = ranking(columns([*(every[name] for name in ("one", "two", "three")), larger, shared]))
    assert found is not None
    assert found.data_sets == 3
    assert found.p == pytest.approx(stats.friedmanchisquare((3, 1, 1.5), (2, 2, 1.5), (1, 3, 3)).pvalue)
    assert ranking(columns([every["one"], larger, every["two"], shared])) is None


def test_the_table_has_rank_difference_and_verdict(four: tuple[Comparison, ...]) -> None:
    across = cross_table(four)
    assert across is not None
    table, told = across
    rows = {row.cells[0]: dict(zip(table.header, row.cells, strict=True)) for row in table.rows}
    assert next(iter(rows)) == "mean rank"
    assert list(rows["mean rank"].values())[1:] == ["1.12", "1.88", "3.00", "-"], "best first, then what is no strategy"
    one = rows["toy / one: STSB"]
    assert one.pop("fixed").startswith("2 · τ 0.05: 70.")
    assert one.pop("task")
    assert one == {
        "macl": "1 · +1.00 ▲; [+1.00, +1.00]",
        "temperature-free": "3 · -1.00 ▼; [-1.00, -1.00]",
        "fixed, highest": "τ 0.5: +5.00 ▲; [+5.00, +5.00]",
    }
    assert "mean ranks over 4 data sets of 3 strategies: Friedman p = 0.022; two differ where" in told[1]
    assert "## All tasks" in TrainingReport(four, []).markdown()
    coloured = shown(print_report, four, force_terminal=True, color_system="standard")
    assert re.search(r"\x1b\[32m *1 · \+1\.00 ▲", coloured), "green"
    assert re.search(r"\x1b\[31m *3 · -1\.00 ▼", coloured), "red"
    assert cross_table(four[:1]) is None


def test_few_tasks_are_columns_below_everything_else_and_a_summary_is_short(four: tuple[Comparison, ...]) -> None:
    two = tuple(each for each in four if each.task.name in ("one", "two"))
    for tell in (print_report, partial(print_report, briefly=True)):
        below = shown(tell, two).partition("\nAll tasks\n")[2]
        header, *lines = filter(str.strip, below.splitlines())
        assert re.split("  +", header.strip()) == ["strategy", "toy / one: STSB", "toy / two: STSB"], "too few to be ranked"
        assert [line.split()[0] for line in lines if " · " in line] == ["fixed", "macl", "temperature-free"]
        assert re.search(r"^ fixed, highest +τ 0.5: \+5.00 ▲ +τ 0.5: \+5.00 ▲", below, re.MULTILINE)
    told = shown(partial(print_report, briefly=True), two)
    for words in (
        "toy / one / quick  STSB: Spearman × 100 of nothing\ndata: data of one\n",
        "Better than fixed+infonce: fixed:temperature=0.5+infonce, macl+reweighted.",
        "left out: old.json is not JSON",
    ):
        assert words in told
    assert not any(words in told for words in ("recipe: ", "tempplug bench run"))


def test_the_ends_of_the_fixed_temperatures_and_what_was_not_trained_are_beside_the_strategies(
    toy: ModuleType, tmp_path: Path
) -> None:
    labels = ["fixed:temperature=0.01", "fixed+infonce", "fixed:temperature=0.2", "fixed:temperature=1", "macl", "untrained"]
    first = replace(toy.SUITE.tasks[0], name="one")
    suite = Suite("toy", "tasks", (first, replace(first, name="two")))
    for run in plan(suite, "small", [0, 1, 2], strategies=labels):
        write_result(run, tmp_path, {"STSB": 70.0 - 10 * len(run.arm.label) + run.seed / 4, "error": 0.5}, seconds=1)
    for column in columns(compare(load_results(tmp_path), {"toy": suite})):
        assert {name: row.label for name, row in column.references.items()} == {
            "fixed, lowest": "fixed:temperature=0.01+infonce",
            "fixed, highest": "fixed:temperature=1+infonce",
            "untrained": "untrained",
        }
        assert set(column.ranks) <= {"fixed", "macl"}


def test_the_page_has_families_and_tasks_and_judges_none_without_signal(four: tuple[Comparison, ...]) -> None:
    # tasks are in alphabetical order, as their files are found: four, one, three, two
    quiet = (*four[:-1], replace(four[-1], signal=False))
    quiet = (*quiet[:-1], replace(quiet[-1], rows=tuple(replace(row, significance=None) for row in quiet[-1].rows)))
    across = cross_table(quiet)
    assert across is not None
    assert across[1][-1] == "no signal, so that nothing is ranked: toy / two / quick"
    assert all("no signal" in cell or cell == "-" or cell.startswith("τ") for cell in across[0].rows[-1].cells[1:])
    content = whole(TrainingReport(quiet, []).html_parts())
    page = Page(content)
    families, tasks = page.tables[:2]
    assert (families.section, tasks.section) == ("families", "tasks")
    assert families.header == ["task family", "macl", "temperature-free"]
    assert families.rows == [["toy", "2 ▲ of 3", "3 ▼ of 3"]]
    assert families.classes == [["", "better", "worse"]]
    rows = {row[0]: row[4:7] for row in tasks.rows}
    assert rows == {
        "toy four": ["macl", "temperature-free", "gain and loss"],
        "toy one": ["macl", "temperature-free", "gain and loss"],
        "toy three": ["", "temperature-free", "loss"],
        "toy two": ["", "", "not judged"],
    }
    assert (
        "In 2 of 6 comparisons a strategy is better than the best fixed temperature: macl on toy four and toy one." in page.text
    )
    assert content.index("answers") < content.index("legend") < content.index("<table")
    links = [value.removeprefix("#") for name, value in page.attributes if name == "href" and value]
    assert len([link for link in links if link.startswith("toy")]) == 4
    assert set(links) <= set(page.ids)


def test_what_stands_in_for_a_task_s_data_is_told_wherever_the_task_is_named(four: tuple[Comparison, ...]) -> None:
    digits = tuple(replace(each, profile=replace(each.profile, stands_in="digits")) for each in four[:2])
    for comparisons, name in ((four[:2], "one"), (digits, "one (on digits)")):
        told = TrainingReport(comparisons, []).markdown()
        assert f"## toy / {name} / quick" in told
        assert f"| toy / {name}: STSB |" in told
    assert ">toy one (on digits)</a>" in "".join(TrainingReport(digits, []).html_parts())


def test_an_arm_with_settings_of_its_own_does_not_stand_for_its_strategy(every: dict[str, Comparison]) -> None:
    one = every["one"]
    rows = [replace(row, label=f"{row.label}@steps=20") if row.label.startswith("macl") else row for row in one.rows]
    (found,) = columns([replace(one, rows=tuple(rows))])
    assert set(found.rows) == {"fixed", "temperature-free"}
