"""The plots of the HTML report: scores, differences and cost of arms, and training curves.

A plot is empty if the results lack its data. Outlying arms are clipped: an arrow marks the end of the axis, and the value is
printed beside the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.profile import Metric
from tempplug_benchmarks.report.comparison import Comparison
from tempplug_benchmarks.report.drawing import (
    COLOURS,
    DASHED,
    EDGE,
    LETTER,
    PAGE_STYLE,
    THEME,
    WIDTH,
    inline,
    label_ratios,
    limits,
    padded,
    panel,
    place,
    shortened,
)
from tempplug_benchmarks.report.tables import STILL, format_difference, format_summary, ordered, tone
from tempplug_benchmarks.results import Summary

TIMES = 4.0
"""An axis is logarithmic if the largest value is more than this many times the smallest."""
_ROW, _LINE, _LEFT, _HIGH = 31, 16, 40, 142
_TEMPERATURES = ("temperature", "base_temperature", "initial_temperature", "temperature_init")
_PAIRS = (("tolerance", "tolerance: higher keeps classes together"), ("alignment", "alignment: lower is closer"))


@dataclass(frozen=True)
class Mark:
    """One line of a plot of arms.

    Attributes:
        label: text above the line on the left.
        words: text above the line on the right.
        value: position of the dot.
        low: lower end of the interval.
        high: upper end.
        seeds: positions of the small dots of single seeds.
        kind: kind of the dot: ``better``, ``worse``, ``reference`` or empty.
    """

    label: str
    words: str
    value: float
    low: float
    high: float
    seeds: Sequence[float] = ()
    kind: str = ""

    @property
    def colours(self) -> tuple[str, str]:
        """The colours of the dot and of its edge."""
        return (THEME["page"], THEME["ink"]) if self.kind == "reference" else (THEME[self.kind or "mark"], THEME["page"])


def score_plot(comparison: Comparison) -> str:
    """Returns a plot of the primary metric by arm with a dashed line at the baseline; empty without finished runs."""
    metric = comparison.primary
    measured = {row.label: (row, row.summaries[metric.name]) for row in ordered(comparison) if metric.name in row.summaries}
    kinds = {label: tone(row.significance) for label, (row, _) in measured.items()} | {comparison.baseline: "reference"}
    marks = [_mark(label, format_summary(each, metric), each, kinds[label]) for label, (_, each) in measured.items()]
    reference = measured[comparison.baseline][1].mean if comparison.baseline in measured else None
    return _arms(f"{metric.name} of every arm, mean ± standard deviation over seeds", marks, reference)


def difference_plot(comparison: Comparison) -> str:
    """Returns a plot of the primary metric's paired differences with a dashed line at zero; empty if all arms have one seed."""
    metric, marks = comparison.primary, []
    differences = [(row, found) for row in ordered(comparison) if (found := row.differences.get(metric.name))]
    if all(found.count == 1 for _, found in differences):
        return ""
    for row, found in differences:
        low, high = (found.mean if end is None else end for end in (found.low, found.high))
        marks.append(Mark(row.label, format_difference(found, metric), found.mean, low, high, kind=tone(row.significance)))
    return _arms(f"{metric.name} minus that of {comparison.baseline}, with 95 % intervals", marks, 0.0)


def cost_plot(comparison: Comparison) -> str:
    """Returns a plot of the seconds per run of each arm; empty without finished runs."""
    marks = []
    for row in ordered(comparison):
        if row.trainings:
            seconds = row.trainings.seconds
            words = format_summary(seconds, Metric(name="", summary="", decimals=0 if seconds.mean >= 10 else 1))
            marks.append(_mark(row.label, f"{words} s", seconds, "reference" * (row.label == comparison.baseline), least=0.0))
    return _arms("seconds a run, training and evaluation, mean ± standard deviation over seeds", marks, None)


def _mark(label: str, words: str, summary: Summary, kind: str, least: float = -float("inf")) -> Mark:
    std, seeds = summary.std or 0.0, tuple(summary.values.values())
    ends = max(least, summary.mean - std), summary.mean + std
    return Mark(label, words, summary.mean, *ends, seeds if len(seeds) > 1 else (), kind)


@rc_context(PAGE_STYLE)
def _arms(title: str, marks: Sequence[Mark], reference: float | None) -> str:
    if not marks:
        return ""
    ends = [end for mark in marks for end in (mark.low, mark.high, *mark.seeds)]
    halves = [(mark.high - mark.low) / 2 for mark in marks]
    low, high = limits([mark.value for mark in marks], halves, ends, reference)
    figure, axes = panel(4, _ROW * len(marks), 22)
    axes.set(xlim=(low, high), ylim=(len(marks), 0), yticks=[])
    axes.locator_params("x", nbins=5)
    if reference is not None:
        axes.axvline(reference, color=THEME["soft"], linewidth=1, linestyle=DASHED, gid="base")
    margin = (EDGE - 2) / (WIDTH - 2 * EDGE)
    told = []
    for position, mark in enumerate(marks):
        y, inside = position + 0.68, low <= mark.value <= high
        above: Any = {"y": position + 0.36, "transform": axes.get_yaxis_transform()}
        axes.text(-margin, s=shortened(mark.label, WIDTH - 16 - LETTER * len(mark.words)), **above)
        axes.text(1 + margin, s=mark.words, ha="right", color=THEME["soft"], **above)
        axes.plot([max(low, mark.low), min(high, mark.high)], [y, y], color=THEME["mark"], linewidth=2, gid="bar")
        seeds = [seed for seed in mark.seeds if low <= seed <= high]
        axes.plot(seeds, [y] * len(seeds), "o", color=THEME["mark"], alpha=0.4, markersize=5, markeredgewidth=0)
        fill, edge = mark.colours
        if inside:
            axes.plot(mark.value, y, "o", color=fill, markeredgecolor=edge, markersize=9, gid=f"dot {mark.kind}".strip())
        for end, arrow, beyond in ((low, "<", mark.low < low), (high, ">", mark.high > high)):
            if beyond:
                axes.plot(end, y, arrow, color=THEME["mark"] if inside else fill, markeredgewidth=0, markersize=9, gid="off")
        told.append(f"{mark.label}: {mark.words}{'' if inside else ' (off the axis)'}")
    return inline(figure, title, "; ".join(told))


@rc_context(PAGE_STYLE)
def course_plot(comparison: Comparison, quantity: str, told: str) -> str:
    """Returns a plot of a quantity over the training steps for each arm; empty if not recorded.

    Arms with a constant temperature are thin grey lines, except for the baseline.

    Args:
        comparison: of one task.
        quantity: key of `Trainings.course`.
        told: the quantity with its unit, in words.
    """
    figure, axes = panel()
    words, moving = [], 0
    for row in ordered(comparison):
        course = row.trainings.course if row.trainings else {}
        if quantity not in course:
            continue
        style: Any = {"color": THEME["soft"], "linewidth": 1, "label": "other arms, of constant temperature"}
        if row.label == comparison.baseline:
            style = {"color": THEME["ink"], "label": f"{row.label} (baseline)", "gid": "curve reference"}
        elif max(course["temperature"]) - min(course["temperature"]) > STILL * max(course["temperature"]):
            style = {**_numbered(moving), "label": row.label}
            moving += 1
        steps, values = course["step"], course[quantity]
        if min(values) == max(values):  # two points draw the same line
            steps, values = [steps[0], steps[-1]], [values[0], values[0]]
        axes.plot(steps, values, **style)
        words.append(f"{row.label}: {course[quantity][0]:.3g} at first, {course[quantity][-1]:.3g} at last")
    axes.set_xlabel("step")
    return _curves(figure, axes, f"{told} over the steps of the training", words)


@rc_context(PAGE_STYLE)
def temperature_plot(comparison: Comparison) -> str:
    """Returns a plot of the primary metric against configured temperatures, one line for arms that differ only in these.

    Empty if no two arms do.
    """
    metric = comparison.primary
    groups: dict[str, dict[float, Summary]] = {}
    for row in comparison.rows:
        if metric.name in row.summaries and (given := _given_temperature(row.label)) is not None:
            groups.setdefault(given[0], {})[given[1]] = row.summaries[metric.name]
    figure, axes = panel()
    axes.set(xscale="log", xlabel="temperature τ")
    label_ratios(axes.xaxis)
    words: list[str] = []
    for group, found in groups.items():
        if len(found) > 1:
            means = dict(sorted(found.items()))
            bars: Any = {"yerr": [each.std or 0.0 for each in means.values()], "ecolor": THEME["soft"], "elinewidth": 1}
            style = {**_numbered(len(words)), "marker": "o", "markersize": 7, "label": group}
            axes.errorbar([*means], [each.mean for each in means.values()], **bars, **style)
            words.append("; ".join(f"{group} at {at:g}: {format_summary(each, metric)}" for at, each in means.items()))
    told = f"{metric.name} against the temperature given, mean ± standard deviation over seeds"
    return _curves(figure, axes, told, words)


def _numbered(number: int) -> dict[str, Any]:
    """Returns the line style of a curve, unique within its plot."""
    style = DASHED if number >= len(COLOURS) else "-"
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": style, "zorder": 3, "gid": "curve"}


def _given_temperature(label: str) -> tuple[str, float] | None:
    """Returns the arm without its configured temperature, and that temperature; None if it has none."""
    parts = Arm(label).parts
    strategy, options = parse_spec(parts[0]) if parts else ("", {})
    if not parts or (given := next((option for option in _TEMPERATURES if option in options), None)) is None:
        return None
    others = ",".join(f"{option}={value}" for option, value in options.items() if option != given)
    changes = "".join(label.partition("@")[1:])
    try:
        return f"{strategy}{':' if others else ''}{others}+{parts[1]}{changes}", float(options[given])
    except ValueError:
        return None


def _curves(figure: Figure, axes: Axes, title: str, words: Sequence[str]) -> str:
    """Returns a plot of the lines on the axes with a legend below; empty without lines."""
    (left, right), (low, high) = axes.dataLim.intervalx, axes.dataLim.intervaly
    if not words or left == right:
        return ""
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    place(figure, axes, 8, _HIGH, 42 + _LINE * len(named), _LEFT)
    axes.set_xlim(left, right)
    if 0 < TIMES * low < high:
        axes.set(yscale="log", ylim=(low / 1.1, high * 1.1))
        label_ratios(axes.yaxis)
    else:
        axes.set_ylim(padded([low, high]))
    below: Any = {"loc": "upper left", "bbox_to_anchor": (-_LEFT / (WIDTH - EDGE - _LEFT), -40 / _HIGH), "borderaxespad": 0}
    axes.legend(named.values(), [shortened(label, WIDTH - 30) for label in named], handlelength=1.6, labelspacing=0.25, **below)
    return inline(figure, title, "; ".join(words))


def spread_plot(comparison: Comparison) -> tuple[str, str]:
    """Returns a title, and a plot of uniformity against tolerance, or against alignment if there is no tolerance.

    Each dot is an arm. Values are metrics of the task, or the last recorded step of the training. Empty if neither exists.
    """
    measured = {row.label: {metric: each.mean for metric, each in row.summaries.items()} for row in ordered(comparison)}
    looked = {
        row.label: {quantity: values[-1] for quantity, values in row.trainings.course.items()}
        for row in ordered(comparison)
        if row.trainings
    }
    for quantity, told in _PAIRS:
        for values, whence in ((measured, ""), (looked, ", last batch of the training")):
            both = {label: each for label, each in values.items() if {"uniformity", quantity} <= each.keys()}
            if len(both) > 1:
                title = f"Uniformity against {quantity}{whence}"
                return title, _scatter(
                    title, told, {label: (each["uniformity"], each[quantity]) for label, each in both.items()}
                )
    return "", ""


@rc_context(PAGE_STYLE)
def _scatter(title: str, told: str, found: Mapping[str, tuple[float, float]]) -> str:
    (left, right), (low, high) = (limits([point[side] for point in found.values()]) for side in (0, 1))
    below = 46 + _LINE * len(found)
    figure, axes = panel(24, _HIGH - 16, below, _LEFT)
    axes.set(xlim=(left, right), ylim=(low, high), xlabel="uniformity: lower is more spread")
    axes.locator_params(nbins=5)
    figure.text(0, 1 - 14 / 72 / figure.get_figheight(), told, color=THEME["soft"])
    words = []
    for number, (label, (x, y)) in enumerate(found.items(), 1):
        inside = left <= x <= right and low <= y <= high
        at = min(max(x, left), right), min(max(y, low), high)
        fill, edge, ink = (THEME["mark"], THEME["page"], THEME["page"]) if inside else ("none", THEME["mark"], THEME["ink"])
        axes.plot(*at, "o", color=fill, markeredgecolor=edge, markersize=14, zorder=3)
        axes.text(*at, str(number), ha="center", va="center_baseline", size=9, color=ink, gid="number")
        figures = f"{x:.3f}, {y:.3f}{'' if inside else ' (off the axes)'}"
        line = (below - 42 - _LINE * number + 12) / 72 / figure.get_figheight()
        figure.text(2 / WIDTH, line, f"{number} {shortened(label, WIDTH - 30 - LETTER * len(figures))}")
        figure.text(1 - 2 / WIDTH, line, figures, ha="right", color=THEME["soft"])
        words.append(f"{number} {label}: {figures}")
    return inline(figure, title, "; ".join(words))
