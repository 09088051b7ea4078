from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from tempplug_benchmarks.comparison import Comparison, compare
from tempplug_benchmarks.plan import plan
from tempplug_benchmarks.report import fitting, markdown, print_report
from tempplug_benchmarks.report_html import html
from tempplug_benchmarks.report_plots import ticks
from tempplug_benchmarks.report_tables import Row, Table, all_metrics, headline, remarks
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.store import write_failure, write_result

GOLDEN = Path(__file__).parent / "golden" / "report.md"
FIGURES = {
    "fixed+infonce": ((70.0, 0.5), (72.0, 0.4), (77.0, 0.3)),
    "macl+infonce": ((71.0, 0.4), (73.5, 0.3), (78.5, 0.2)),
    "fixed+dcl": ((69.0, 0.5), (70.5, 0.5), (76.0, 0.5)),
    "temperature-free+infonce": ((60.0, 0.9), (75.0, 0.1)),
}


@pytest.fixture
def comparisons(toy: ModuleType, tmp_path: Path) -> tuple[Comparison, ...]:
    """Three seeds of four arms, one of them failed; versions and machine are made up, so that the report is always the same."""
    for run in plan(toy.SUITE, "quick", [0, 1, 2], strategies=["all", "temperature-free"]):
        if run.seed >= len(FIGURES[run.arm.label]):
            write_failure(run, tmp_path, "RuntimeError: <b>it</b> broke\nbadly", "trace")
            continue
        score, error = FIGURES[run.arm.label][run.seed]
        write_result(run, tmp_path, {"STSB": score, "error": error}, seconds=1)
        path = run.path(tmp_path)
        content = json.loads(path.read_text())
        content["versions"] = {"python": "3.11.0", "tempplug": "0.1.0"}
        content["hardware"] = {"cpu": "Abacus", "cores": 2, "threads": 1, "gpu": "none such"}
        path.write_text(json.dumps(content))
    return compare(load_results(tmp_path), {"toy": toy.SUITE})


def test_markdown_is_golden(comparisons: tuple[Comparison, ...]) -> None:
    assert markdown(comparisons, ["seed-9.json is not JSON"]) == GOLDEN.read_text(encoding="utf-8")


def test_the_headline_has_measured_difference_and_reported(comparisons: tuple[Comparison, ...]) -> None:
    rows = {row.cells[0]: row for row in headline(comparisons[0]).rows}
    # macl minus plain: 1, 1.5, 1.5, so 4/3 ± 4.303 · sqrt(1/12) / sqrt(3) = 0.717; t = 8 with 2 degrees, of three comparisons
    expected = (
        "macl+infonce",
        "74.33 ± 3.82",
        "+1.33 [+0.62, +2.05]",
        "better",
        "0.015",
        "0.046",
        "1.45",
        "3",
        "77.69 MACL B.4",
    )
    assert rows["macl+infonce"].cells == expected
    # temperature-free minus plain: -10 and 3, so -3.5 ± 12.706 · 6.5 = 82.59
    assert rows["macl+infonce"].tone == "better"
    assert rows["fixed+infonce"].cells[2:4] == ("baseline", "-")
    assert rows["fixed+dcl"].tone == "worse"
    assert rows["temperature-free+infonce"].tone == ""
    assert rows["temperature-free+infonce"].cells[2:4] == ("-3.50 [-86.09, +79.09]", "underpowered")
    assert rows["temperature-free+infonce"].cells[7] == "2 of 3"


def test_an_arm_that_always_failed_is_shown_as_failed(toy: ModuleType, tmp_path: Path) -> None:
    baseline, failed = plan(toy.SUITE, "quick", [0], strategies=["macl+infonce"])
    write_result(baseline, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    write_failure(failed, tmp_path, "it broke", "")
    rows = headline(compare(load_results(tmp_path), {"toy": toy.SUITE})[0]).rows
    assert (rows[1].cells[1], rows[1].cells[7], rows[1].kind) == ("failed", "0 of 1", "failed")


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
            write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, moved if "macl" in run.arm.label else still)
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert [line for line in remarks(comparison) if " at first" in line] == [
        "macl+infonce: temperature 0.1 at first, 0.04 ± 0.014 at last, between 0.02 and 0.11"
    ]


def test_reported_lines_stand_below_the_measured_ones(comparisons: tuple[Comparison, ...]) -> None:
    cells = [row.cells for row in all_metrics(comparisons[0]).rows]
    position = cells.index(("macl+infonce: MACL table B.4, w/ MACL", "77.69", "-"))
    assert cells[position - 1] == ("macl+infonce", "74.33 ± 3.82", "0.300 ± 0.100")


def test_the_terminal_shows_every_arm_and_the_failure(comparisons: tuple[Comparison, ...]) -> None:
    shown = io.StringIO()
    print_report(Console(file=shown, width=80), comparisons, ["seed-9.json is not JSON"])
    text = shown.getvalue()
    for label in FIGURES:
        assert label in text
    assert "+1.33 [+0.62, +2.05]" in text
    assert "failed: temperature-free+infonce, seed 2: RuntimeError: <b>it</b> broke" in text
    assert "left out: seed-9.json is not JSON" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_with_many_metrics_is_shown_whole(width: int) -> None:
    from tempplug_benchmarks.report import terminal_table

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


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that every element is closed."""

    VOID = ("meta", "line", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_one_self_contained_page(comparisons: tuple[Comparison, ...]) -> None:
    content = html(comparisons, ["seed-9.json is not JSON"])
    page = Page()
    page.feed(content)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset"} & {name for name, _ in page.attributes}
    assert not re.search(r"https?:|url\(|@import", content)
    assert page.tags.count("svg") == 3, "a plot of the differences and one of each metric"
    assert "RuntimeError: <b>it</b> broke" in page.text, "shown as text, not as markup"
    assert "b" not in page.tags
    assert "+1.33 [+0.62, +2.05]" in page.text
    assert "seed-9.json is not JSON" in page.text


def test_html_and_markdown_have_the_same_figures(comparisons: tuple[Comparison, ...]) -> None:
    page = Page()
    page.feed(html(comparisons, []))
    for row in (*headline(comparisons[0]).rows, *all_metrics(comparisons[0]).rows):
        for cell in row.cells:
            assert cell in page.text
            assert cell in markdown(comparisons, []).replace("\\", "")


def test_dots_stand_where_the_axis_says(comparisons: tuple[Comparison, ...]) -> None:
    from tempplug_benchmarks.report_plots import metric_plot

    drawing = metric_plot(comparisons[0], comparisons[0].primary)
    axis = re.findall(r'<text class="tick" x="([\d.]+)"[^>]*>([-\d.]+)</text>', drawing)
    (x0, low), (x1, high) = [(float(x), float(value)) for x, value in (axis[0], axis[-1])]
    dots = [float(x) for x in re.findall(r'<circle class="dot" cx="([\d.]+)"', drawing)]
    means = [low + (x - x0) / (x1 - x0) * (high - low) for x in dots]
    assert means == pytest.approx([73.0, 223 / 3, 215.5 / 3, 67.5], abs=0.05)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.7, 12.2), (76.41, 76.49), (0.0, 1e5)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 9
    assert low <= found[0]
    assert found[-1] <= high
    assert found == sorted(set(found))
