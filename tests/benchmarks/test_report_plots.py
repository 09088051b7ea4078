"""Plots of a report: what is drawn stands where the axis says, what is far is marked, what was not recorded is not drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from run_checks import write_result

from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.report.drawing import EDGE, WIDTH, label_ratios, limits
from tempplug_benchmarks.report.pages import page
from tempplug_benchmarks.report.plots import cost_plot, course_plot, difference_plot, score_plot, spread_plot, temperature_plot
from tempplug_benchmarks.results import load_results, summarise
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.training import TrainingReport

DOT = r'<g class="dot[^"]*">(?:<defs>.*?</defs>)?<use href="#\w+" x="([\d.]+)"'
TICK = r'<text class="tick" x="([\d.]+)"[^>]*>([-\d.]+)</text>'
CURVE = r'<path d="M([^"]*)"'


def across(drawing: str, pattern: str = DOT) -> list[float]:
    """Returns the values at which things stand, by the ticks of the axis."""
    axis = re.findall(TICK, drawing)
    (x0, low), (x1, high) = [(float(x), float(value)) for x, value in (axis[0], axis[-1])]
    return [low + (float(x) - x0) / (x1 - x0) * (high - low) for x in re.findall(pattern, drawing)]


def test_dots_stand_where_the_axis_says_and_what_leaves_it_has_an_arrow(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    drawing = score_plot(comparison)
    assert across(drawing) == pytest.approx([74.3, 73.0, 71.8, 67.5], abs=0.05)
    assert across(drawing, r'<g class="base"><path d="M([\d.]+)') == pytest.approx([73.0], abs=0.05)
    (grid,) = re.findall('d="([^"]*)" class="grid"', drawing)
    assert re.findall(r"M([\d.]+)", grid) == [x for x, _ in re.findall(TICK, drawing)]
    assert re.findall(r'class="dot ?(\w*)"', drawing) == ["better", "reference", "worse", ""]
    # an interval of two seeds, [-86, 79], beside intervals of 1.4
    drawing = difference_plot(comparison)
    assert drawing.count('class="off') == 2
    assert across(drawing) == pytest.approx([1.3, -1.2, -3.5], abs=0.05)
    single = [
        replace(row, differences={name: replace(each, low=None, high=None, count=1) for name, each in row.differences.items()})
        for row in comparison.rows
    ]
    assert difference_plot(replace(comparison, rows=tuple(single))) == "", "no interval without a second seed"
    summaries = {"STSB": summarise({0: 7.0, 1: 7.5, 2: 6.5})}
    far = replace(comparison.rows[0], label="untrained", summaries=summaries, differences={})
    drawing = score_plot(replace(comparison, rows=(*comparison.rows, far)))
    assert (len(across(drawing)), drawing.count('class="off')) == (4, 1)
    assert "untrained: 7.00 ± 0.50 (off the axis)" in drawing
    assert min(float(value) for _, value in re.findall(TICK, drawing)) > 30, "the others keep their room"


def test_a_plot_has_colours_of_its_page_common_markers_and_text_as_it_is(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    odd = replace(comparison.rows[1], label="a: b; L <c> 1.23456 #ffffff")
    changed = replace(comparison, rows=(comparison.rows[0], odd))
    drawing, other, again = (score_plot(each) for each in (changed, comparison, changed))
    assert again == drawing, "it depends on neither day nor process"
    assert "a: b; L &lt;c&gt; 1.23456 #ffffff</text>" in drawing
    tags = "".join(re.findall("<[^>]*>", drawing.partition("</desc>")[2]))
    assert "fill:var(--better)" in tags
    assert not re.search(r"#[0-9a-f]{6}|font-family|url\(", tags)
    markers = [re.findall("<defs>.*?</defs>", each) for each in (drawing, other)]
    assert set(markers[0]) < set(markers[1]), "equal ones have equal ids, so that a page needs each once"
    ElementTree.fromstring(drawing)


def test_axes_show_all_unless_it_is_far_and_ratios_at_1_2_and_5() -> None:
    assert limits([1.0, 2.0, 3.0]) == (pytest.approx(0.9), pytest.approx(3.1))
    low, high = limits([1.0, 2.0, 3.0, 1000.0], reference=-50.0)
    assert low < -50
    assert 3 < high < 20
    assert limits([5.0, 5.0]) == (4.75, 5.25)
    assert limits([5.0, 5.0, 6.0])[1] > 6, "without a usual distance nothing is far"
    figure = Figure()
    axes = figure.subplots()
    axes.set(xscale="log", xlim=(0.01, 1.0))
    label_ratios(axes.xaxis, "×")
    figure.draw_without_rendering()
    labels = {tick.get_position()[0]: tick.get_text() for tick in axes.get_xticklabels()}
    shown = [label for at, label in labels.items() if 0.009 < at < 1.1]
    assert shown == ["0.01×", "0.02×", "0.05×", "0.1×", "0.2×", "0.5×", "1×"]
    assert axes.get_xticklabels(minor=True) == []


@pytest.fixture(scope="module")
def trained(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two seeds of arms with recorded trainings, and a third seed of the baseline that took other steps."""
    folder = tmp_path_factory.mktemp("trained")
    arms = ["fixed+infonce", "fixed:temperature=0.1+infonce", "fixed:temperature=0.4+infonce", "macl+infonce"]
    for run in plan(toy.SUITE, "quick", [0, 1, 2], strategies=arms):
        moving = "macl" in run.arm.label
        course = {
            "step": [1.0, 50.0, 90.0 if run.seed == 2 else 100.0],
            "temperature": [0.1, 0.2 + 0.1 * run.seed, 0.4] if moving else [0.1, 0.1, 0.1],
            "positive_similarity": [0.2, 0.5, 0.8],
            "uniformity": [-1.0, -2.0, -3.0 - moving],
            "alignment": [0.5, 0.4, 0.3],
        }
        if run.arm.label in arms:
            score = (70.0, 71.0, 70.5)[run.seed]
            write_result(run, folder, {"STSB": score, "error": 0.5}, 2.0 + run.seed, course=course)
    (comparison,) = compare(load_results(folder), {"toy": toy.SUITE})
    return comparison


def test_the_course_of_trainings_is_the_mean_over_seeds_of_the_same_steps(trained: Comparison) -> None:
    macl = next(row for row in trained.rows if row.label == "macl+infonce")
    assert macl.trainings is not None
    assert macl.trainings.course["step"] == [1.0, 50.0, 100.0]
    assert macl.trainings.course["temperature"] == pytest.approx([0.1, 0.25, 0.4])
    assert macl.trainings.seconds.values == {0: 2.0, 1: 3.0, 2: 4.0}
    drawing = course_plot(trained, "temperature", "temperature")
    (curve,) = re.findall(rf'<g class="curve">{CURVE}', drawing)
    start, _, steps = curve.partition("l")
    x, y, *further = (float(each) for each in re.findall(r"-?[\d.]+", f"{start} {steps}"))
    # from 0.1 by 0.25 to 0.4: four times and not more, so that the axis is not logarithmic
    assert further[1::2] == pytest.approx([further[1]] * 2, abs=0.2)
    assert (x + sum(further[::2]), y + sum(further[1::2])) == pytest.approx((WIDTH - EDGE, 8 + 142 / 22), abs=0.2)
    assert drawing.count("other arms, of constant temperature") == 1
    assert "macl+infonce: 0.1 at first, 0.4 at last" in drawing
    (constant,) = re.findall(rf'<g class="curve reference">{CURVE}', drawing)
    assert len(re.findall(r"-?[\d.]+", constant)) == 4, "two points draw it"
    assert "fixed+infonce (baseline)</text>" in drawing
    assert "negative" not in page(TrainingReport((trained,), []).html_parts()), "it was not recorded"


def test_scores_are_drawn_against_temperatures_that_were_given(trained: Comparison) -> None:
    drawing = temperature_plot(trained)
    _, curve = re.findall(r'<g class="curve">(.*?</g>)', drawing)  # behind its deviations
    dots = re.findall(r'<use href="#\w+" x="([\d.]+)"', curve)
    assert len(dots) == 2, "the baseline gives none and macl another option"
    ticks = {x: value for x, value in re.findall(TICK, drawing) if value in ("0.1", "0.2")}
    assert list(ticks.values()) == ["0.1", "0.2"]
    # equal ratios are equally far apart: 0.2 stands in the middle
    low, middle = map(float, ticks)
    assert [float(x) for x in dots] == pytest.approx([low, 2 * middle - low], abs=0.2)
    assert "fixed+infonce at 0.1: 70.50 ± 0.50; fixed+infonce at 0.4: 70.50 ± 0.50" in drawing
    longer = tuple(replace(row, label=row.label.replace("0.4+infonce", "0.4+infonce@steps=20")) for row in trained.rows)
    alone = tuple(row for row in trained.rows if "0.4" not in row.label)
    for rows in (longer, alone):
        assert temperature_plot(replace(trained, rows=rows)) == "", "no two differ in the temperature alone"


def test_uniformity_stands_against_what_was_measured(trained: Comparison) -> None:
    title, drawing = spread_plot(trained)
    assert title == "Uniformity against alignment, last batch of the training"
    assert re.search(r"\d macl\+infonce: -4\.000, 0\.300", drawing)
    metrics = {"uniformity": summarise({0: -1.5}), "tolerance": summarise({0: 0.5})}
    rows = tuple(replace(row, summaries={**row.summaries, **metrics}) for row in trained.rows)
    title, drawing = spread_plot(replace(trained, rows=rows))
    assert title == "Uniformity against tolerance"
    assert re.search(r"\d fixed\+infonce: -1\.500, 0\.500", drawing)


def test_what_was_not_recorded_is_left_out(comparisons: tuple[Comparison, ...]) -> None:
    (comparison,) = comparisons
    assert course_plot(comparison, "temperature", "temperature") == ""
    assert spread_plot(comparison) == ("", "")
    assert temperature_plot(comparison) == ""
    assert "1.0 ± 0.0 s" in cost_plot(comparison)
