"""The page of a report, read by the standard library: what is on it, that it needs nothing else, that plots are described."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from report_page import Page
from test_cross_modality import SCORES, measured

from tempplug_benchmarks.report.comparison import Comparison
from tempplug_benchmarks.report.pages import html, markdown
from tempplug_benchmarks.report.significance import Significance
from tempplug_benchmarks.report.tables import all_metrics, headline


def test_html_is_one_self_contained_page(comparisons: tuple[Comparison, ...]) -> None:
    content = html(comparisons, ["seed-9.json is not JSON"])
    page = Page(content)
    assert page.open == []
    assert not {"link", "img", "iframe", "object", "b"} & set(page.tags)
    assert not {"src", "xlink:href", "srcset", "onclick"} & {name for name, _ in page.attributes}
    assert all(value and value.startswith("#") for name, value in page.attributes if name == "href")
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import\(", content)
    assert len(page.ids) == len(set(page.ids))
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels == ["toy / toy-task / quick: STSB", "toy / toy-task / quick: all metrics"]
    assert "RuntimeError: <b>it</b> broke" in page.text, "shown as text, not as markup"
    assert "+1.30 [+0.96, +1.64]" in page.text
    assert "seed-9.json is not JSON" in page.text
    assert "Better than fixed+infonce: macl+infonce." in page.text


def test_every_plot_has_a_name_and_says_what_it_shows(comparisons: tuple[Comparison, ...]) -> None:
    content = html(comparisons, [])
    page = Page(content)
    assert [plot["aria-labelledby"] for plot in page.plots] == [
        f"toy-toy-task-quick-{name}-title" for name in ("difference", "score", "cost")
    ]
    for plot in page.plots:
        assert plot["role"] == "img"
        assert {plot["aria-labelledby"], plot["aria-describedby"]} <= set(page.ids)
    told = re.search(r'<desc id="toy-toy-task-quick-difference-words">(.*?)</desc>', content)
    assert told is not None
    assert told[1].split("; ") == [
        "macl+infonce: +1.30 [+0.96, +1.64]",
        "fixed+dcl: -1.20 [-1.54, -0.86]",
        "temperature-free+infonce: -3.50 [-86.09, +79.09]",
    ]


def test_html_and_markdown_have_the_same_figures(comparisons: tuple[Comparison, ...]) -> None:
    page = Page(html(comparisons, []))
    for row in (*headline(comparisons[0]).rows, *all_metrics(comparisons[0]).rows):
        for cell in row.cells:
            assert cell in page.text
            assert cell in markdown(comparisons, []).replace("\\", "")


def test_colour_follows_the_adjusted_value(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    table = Page(html(comparisons, [])).tables[0]
    assert table.header[1] == "minus baseline", "what decides comes first, also on a phone"
    assert [row[1] for row in table.classes] == ["better", "", "worse", ""]
    # the same differences, unadjusted values below 0.05 all the same: no colour where Holm's are not
    for verdict in ("too small", "no difference seen", "underpowered", "one seed", "no signal"):
        found = Significance(0.001, 0.2, 1.0, verdict)
        rows = tuple(replace(row, significance=found if row.significance else None) for row in comparison.rows)
        content = html((replace(comparison, rows=rows),), []).partition("<body>")[2].partition("<script>")[0]
        assert not re.search(r'class="[^"]*(better|worse)', content)


def test_papers_lines_stay_with_the_arm_that_they_are_about(comparisons: tuple[Comparison, ...]) -> None:
    content = html(comparisons, [])
    groups = re.findall("<tbody>(.*?)</tbody>", content, re.S)
    (group,) = [each for each in groups if "MACL table B.4,<wbr> w/ MACL" in each]
    assert group.count("<tr") == 2
    assert group.index("macl+<wbr>infonce</td>") < group.index("MACL table B.4")


def test_the_table_of_all_tasks_has_parts_and_colour(toy: ModuleType, tmp_path: Path) -> None:
    comparisons = measured(toy, tmp_path, SCORES)
    quiet = (*comparisons[:-1], replace(comparisons[-1], signal=False))
    content = html(quiet, [])
    page = Page(content)
    table = page.tables[0]
    assert (table.kind, table.section) == ("cross sortable", "all")
    # tasks as their files are found: in the order of the alphabet
    assert table.header == ["strategy", "mean rank", "four STSB", "one STSB", "three STSB", "two STSB"]
    cells = {row[0]: row[3] for row in table.rows}
    assert cells["macl"] == "1 +1.00 [+1.00, +1.00]▲ better"
    assert cells["temperature-free"] == "3 -1.00 [-1.00, -1.00]▼ worse"
    assert cells["fixed"].endswith("baseline")
    classes = {row[0]: kinds[3] for row, kinds in zip(table.rows, table.classes, strict=True)}
    assert classes == {"macl": "better", "temperature-free": "worse", "fixed": "", "fixed, highest": "better"}
    assert {kinds[-1] for kinds in table.classes} == {"quiet"}
    assert {row[-1].endswith("no signal") for row in table.rows} == {True}
    told = re.search(r'<desc id="overview-words">(.*?)</desc>', content)
    assert told is not None
    assert "macl on toy / one / quick: better" in told[1]
    assert "two / quick" not in told[1]
    assert len(re.findall('<a href="#toy', content)) == 4
    links = [value for name, value in page.attributes if name == "href" and value]
    assert {link.removeprefix("#") for link in links} <= set(page.ids)
