"""The plots of a report's page: scores, differences and cost of the arms, courses of trainings, an overview of all tasks.

Each is empty where the results do not hold what it shows. An arm that is far from all others would leave them no room: the axis
ends before it, an arrow stands at that end, and the figure beside the name is the arm's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.patches import Rectangle

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.report.across import MARKS, QUIET, CrossTable
from tempplug_benchmarks.report.comparison import ArmRow, Comparison
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
    shortened,
)
from tempplug_benchmarks.report.tables import STILL, format_difference, format_summary, ordered, title, tone
from tempplug_benchmarks.results import Summary

TIMES = 4.0
"""An axis is logarithmic where the largest value is more than so many times the smallest."""
_ROW, _LINE, _LEFT, _HIGH = 31, 16, 40, 142
_TEMPERATURES = ("temperature", "base_temperature", "initial_temperature", "temperature_init")
_PAIRS = (("tolerance", "tolerance: higher keeps classes together"), ("alignment", "alignment: lower is closer"))
_COURSES = (
    ("temperature", "temperature τ, mean over the pairs of a batch"),
    ("positive_similarity", "similarity of positive pairs"),
    ("negative_similarity", "similarity of negative pairs"),
    ("uniformity", "uniformity (lower is more spread)"),
)
_CELLS = {
    "better": ("▲ better", THEME["better"]),
    "worse": ("▼ worse", THEME["worse"]),
    "": ("no difference shown", THEME["card"]),
    "quiet": ("no signal, or one seed", THEME["quiet-back"]),
}


@dataclass(frozen=True)
class Mark:
    """One line of a plot of arms.

    Attributes:
        label: above it, on the left.
        value: where the dot stands.
        low: lower end of the interval.
        high: upper end.
        words: above it, on the right.
        seeds: where the small dots of single seeds stand.
        kind: of the dot: ``better``, ``worse``, ``reference`` or nothing.
    """

    label: str
    value: float
    low: float
    high: float
    words: str
    seeds: Sequence[float] = ()
    kind: str = ""


@dataclass(frozen=True)
class Line:
    """One curve; ``label`` is its name in the legend, empty for none, ``words`` what it shows."""

    points: Sequence[tuple[float, float]]
    colour: str
    label: str = ""
    words: str = ""
    kind: str = "curve"
    dashed: bool = False


def deciding(comparison: Comparison, name: str) -> dict[str, str]:
    """Returns the plots beside the table of the primary metric, by their captions.

    Args:
        comparison: whose arms.
        name: what the names of the plots begin with.
    """
    metric = comparison.primary.name
    return {
        f"{metric} minus baseline, 95 % interval": difference_plot(comparison, f"{name}-difference"),
        f"{metric}, mean ± standard deviation, seeds": score_plot(comparison, f"{name}-score"),
        f"{metric} by temperature": temperature_plot(comparison, f"{name}-tau"),
    }


def further(comparison: Comparison, name: str) -> dict[str, str]:
    """Returns the plots of trainings, temperatures and cost, by their captions; arguments are those of `deciding`."""
    found = {
        f"{told[0].upper()}{told[1:]}, over training": course_plot(
            comparison, f"{name}-{quantity.replace('_', '-')}", quantity, told
        )
        for quantity, told in _COURSES
    }
    caption, drawn = spread_plot(comparison, f"{name}-spread")
    return {**found, caption: drawn, "Seconds a run, training and evaluation": cost_plot(comparison, f"{name}-cost")}


def score_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric over the arms, a dashed line at the baseline; empty where nothing has finished."""
    metric, reference, marks = comparison.primary, None, []
    for row in ordered(comparison):
        if metric.name in row.summaries:
            summary, is_baseline = row.summaries[metric.name], row.label == comparison.baseline
            reference = summary.mean if is_baseline else reference
            kind = "reference" if is_baseline else tone(row.significance)
            marks.append(_mark(row.label, summary, format_summary(summary, metric), kind))
    return _arms(name, f"{metric.name} of every arm, mean ± standard deviation over seeds", marks, reference)


def difference_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric's paired differences, a dashed line at zero; empty where there is none."""
    metric, marks = comparison.primary, []
    for row in ordered(comparison):
        if found := row.differences.get(metric.name):
            low, high = (found.mean if end is None else end for end in (found.low, found.high))
            marks.append(Mark(row.label, found.mean, low, high, format_difference(found, metric), kind=tone(row.significance)))
    return _arms(name, f"{metric.name} minus that of {comparison.baseline}, with 95 % intervals", marks, 0.0)


def cost_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the seconds that a run of each arm took; empty where nothing has finished."""
    marks = []
    for row in ordered(comparison):
        if row.trainings:
            seconds = row.trainings.seconds
            digits = 0 if seconds.mean >= 10 else 1
            spread = "" if seconds.std is None else f" ± {seconds.std:.{digits}f}"
            kind = "reference" if row.label == comparison.baseline else ""
            marks.append(_mark(row.label, seconds, f"{seconds.mean:.{digits}f}{spread} s", kind, least=0.0))
    return _arms(name, "seconds a run, training and evaluation, mean ± standard deviation over seeds", marks, None)


def _mark(label: str, summary: Summary, words: str, kind: str, least: float = -float("inf")) -> Mark:
    std = summary.std or 0.0
    seeds = tuple(summary.values.values()) if summary.count > 1 else ()
    return Mark(label, summary.mean, max(least, summary.mean - std), summary.mean + std, words, seeds, kind)


@rc_context(PAGE_STYLE)
def _arms(name: str, title: str, marks: Sequence[Mark], reference: float | None) -> str:
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
    for position, mark in enumerate(marks):
        y, inside = position + 0.68, low <= mark.value <= high
        above: Any = {"y": position + 0.36, "transform": axes.get_yaxis_transform()}
        axes.text(-margin, s=shortened(mark.label, WIDTH - 16 - LETTER * len(mark.words)), **above)
        axes.text(1 + margin, s=mark.words, ha="right", color=THEME["soft"], **above)
        axes.plot([max(low, mark.low), min(high, mark.high)], [y, y], color=THEME["mark"], linewidth=2, gid="bar")
        if seeds := [seed for seed in mark.seeds if low <= seed <= high]:
            axes.plot(seeds, [y] * len(seeds), "o", color=THEME["mark"], alpha=0.4, markersize=5, markeredgewidth=0, gid="seed")
        fill, edge = (THEME.get(mark.kind, THEME["mark"]), THEME["page"])
        if mark.kind == "reference":
            fill, edge = THEME["page"], THEME["ink"]
        if inside:
            axes.plot(mark.value, y, "o", color=fill, markeredgecolor=edge, markersize=9, gid=f"dot {mark.kind}".strip())
        for end, arrow, beyond in ((low, "<", mark.low < low), (high, ">", mark.high > high)):
            if beyond:
                colour = THEME["mark"] if inside else fill
                axes.plot(end, y, arrow, color=colour, markeredgewidth=0, markersize=9, clip_on=False, gid="off")
    told = "; ".join(f"{each.label}: {each.words}{'' if low <= each.value <= high else ' (off the axis)'}" for each in marks)
    return inline(figure, name, title, told)


def course_plot(comparison: Comparison, name: str, quantity: str, told: str) -> str:
    """Returns a plot of what every arm's trainings looked like over their steps; empty where no run noted it.

    Arms whose temperature stands still are thin grey lines, but for the baseline.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
        quantity: of `Trainings.course`.
        told: what that is, in words with its unit.
    """
    lines: list[Line] = []
    still: list[Line] = []
    for row in ordered(comparison):
        if not row.trainings or quantity not in row.trainings.course:
            continue
        course = row.trainings.course
        points = list(zip(course["step"], course[quantity], strict=True))
        words = f"{row.label}: {points[0][1]:.3g} at first, {points[-1][1]:.3g} at last"
        temperatures = course["temperature"]
        if row.label == comparison.baseline:
            still.append(Line(points, THEME["ink"], f"{row.label} (baseline)", words, "curve reference"))
        elif max(temperatures) - min(temperatures) > STILL * max(temperatures):
            lines.append(_numbered(len(lines), points, row.label, words))
        else:
            named = any(line.kind == "curve still" for line in still)
            label = "" if named else "other arms whose temperature stands still"
            still.append(Line(points, THEME["soft"], label, words, "curve still"))
    return _curves(name, f"{told} over the steps of the training", [*still, *lines], "step")


def temperature_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric against temperatures that were given, a line for arms that differ in nothing else.

    Empty where no two arms do.
    """
    metric = comparison.primary
    groups: dict[str, dict[float, Summary]] = {}
    for row in comparison.rows:
        if metric.name in row.summaries and (found := _given_temperature(row.label)) is not None:
            groups.setdefault(found[0], {})[found[1]] = row.summaries[metric.name]
    groups = {group: dict(sorted(means.items())) for group, means in groups.items() if len(means) > 1}
    lines = [
        Line([(at, each.mean - each.std), (at, each.mean + each.std)], THEME["soft"], kind="whisker")
        for means in groups.values()
        for at, each in means.items()
        if each.std
    ]
    for number, (group, means) in enumerate(groups.items()):
        words = "; ".join(f"{group} at {at:g}: {format_summary(each, metric)}" for at, each in means.items())
        points = [(at, each.mean) for at, each in means.items()]
        lines.append(_numbered(number, points, group, words, "curve dotted"))
    told = f"{metric.name} against the temperature given, mean ± standard deviation over seeds"
    return _curves(name, told, lines, "temperature τ", logarithmic=True)


def _numbered(number: int, points: Sequence[tuple[float, float]], label: str, words: str, kind: str = "curve") -> Line:
    """Returns a curve that no other has the look of."""
    return Line(points, COLOURS[number % len(COLOURS)], label, words, kind, number >= len(COLOURS))


def _given_temperature(label: str) -> tuple[str, float] | None:
    """Returns the arm without the temperature that was given to it, and that temperature; None where none was."""
    parts = Arm(label).parts
    if not parts:
        return None
    strategy, options = parse_spec(parts[0])
    given = next((option for option in _TEMPERATURES if option in options), None)
    if given is None:
        return None
    others = ",".join(f"{option}={value}" for option, value in options.items() if option != given)
    changes = "".join(label.partition("@")[1:])
    try:
        return f"{strategy}{':' if others else ''}{others}+{parts[1]}{changes}", float(options[given])
    except ValueError:
        return None


@rc_context(PAGE_STYLE)
def _curves(name: str, title: str, lines: Sequence[Line], along: str, *, logarithmic: bool = False) -> str:
    across, up = ([point[side] for line in lines for point in line.points] for side in (0, 1))
    if not lines or min(across) == max(across):
        return ""
    labels = sum(bool(line.label) for line in lines)
    figure, axes = panel(8, _HIGH, 42 + _LINE * labels, _LEFT)
    axes.set(xlim=(min(across), max(across)), xlabel=along)
    if logarithmic:
        axes.set_xscale("log")
        label_ratios(axes.xaxis)
    if 0 < TIMES * min(up) < max(up):
        axes.set(yscale="log", ylim=(min(up) / 1.1, max(up) * 1.1))
        label_ratios(axes.yaxis)
    else:
        axes.set_ylim(padded(up))
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            label=shortened(line.label, WIDTH - 30),
            linewidth=1 if line.kind in ("whisker", "curve still") else 1.8,
            linestyle=DASHED if line.dashed else "-",
            marker="o" if "dotted" in line.kind else None,
            markersize=7,
            clip_on=False,
            gid=line.kind,
        )
    if labels:
        place: Any = {"loc": "upper left", "bbox_to_anchor": (-_LEFT / (WIDTH - EDGE - _LEFT), -40 / _HIGH)}
        axes.legend(**place, borderpad=0, borderaxespad=0, handlelength=1.6, handletextpad=0.5, labelspacing=0.25)
    return inline(figure, name, title, "; ".join(line.words for line in lines if line.words))


def spread_plot(comparison: Comparison, name: str) -> tuple[str, str]:
    """Returns what is plotted, and a plot of uniformity against tolerance, or alignment where there is no tolerance.

    A dot stands for each arm. Figures are the task's metrics, or the last look at the training where the task has no such
    metrics. Empty where neither is.
    """
    for quantity, told in _PAIRS:
        for values, whence in ((_metrics, ""), (_last_look, ", last batch of the training")):
            found = {row.label: point for row in ordered(comparison) if (point := values(row, quantity)) is not None}
            if len(found) > 1:
                title = f"Uniformity against {quantity}{whence}"
                return title, _scatter(name, title, told, found)
    return "", ""


def _metrics(row: ArmRow, quantity: str) -> tuple[float, float] | None:
    found = row.summaries
    return (found["uniformity"].mean, found[quantity].mean) if {"uniformity", quantity} <= found.keys() else None


def _last_look(row: ArmRow, quantity: str) -> tuple[float, float] | None:
    course: Mapping[str, Sequence[float]] = row.trainings.course if row.trainings else {}
    return (course["uniformity"][-1], course[quantity][-1]) if {"uniformity", quantity} <= course.keys() else None


@rc_context(PAGE_STYLE)
def _scatter(name: str, title: str, told: str, found: Mapping[str, tuple[float, float]]) -> str:
    (left, right), (low, high) = (limits([point[side] for point in found.values()]) for side in (0, 1))
    below = 46 + _LINE * len(found)
    figure, axes = panel(24, _HIGH - 16, below, _LEFT)
    axes.set(xlim=(left, right), ylim=(low, high), xlabel="uniformity: lower is more spread")
    axes.locator_params(nbins=5)
    axes.set_title(told, x=-_LEFT / (WIDTH - EDGE - _LEFT), loc="left", fontsize=11, color=THEME["soft"])
    words = []
    for number, (label, (x, y)) in enumerate(found.items(), 1):
        inside = left <= x <= right and low <= y <= high
        place = min(max(x, left), right), min(max(y, low), high)
        fill, edge, kind = (THEME["mark"], THEME["page"], "") if inside else ("none", THEME["mark"], " outside")
        axes.plot(*place, "o", color=fill, markeredgecolor=edge, markersize=14, clip_on=False, zorder=3, gid=f"dot{kind}")
        ink = THEME["page" if inside else "ink"]
        axes.text(*place, str(number), ha="center", va="center_baseline", size=9, color=ink, gid=f"number{kind}")
        figures = f"{x:.3f}, {y:.3f}{'' if inside else ' (off the axes)'}"
        line = (below - 46 - _LINE * (number - 1) + 4) / 72 / figure.get_figheight()
        figure.text(2 / WIDTH, line, f"{number} {shortened(label, WIDTH - 30 - LETTER * len(figures))}")
        figure.text(1 - 2 / WIDTH, line, figures, ha="right", color=THEME["soft"])
        words.append(f"{number} {label}: {figures}")
    return inline(figure, name, title, "; ".join(words))


@rc_context(PAGE_STYLE)
def overview(found: CrossTable, name: str) -> str:
    """Returns a picture of the table of all tasks: a square for each strategy and task, coloured by the verdict.

    Args:
        found: the table.
        name: of the plot on its page.
    """
    left, head, row = 106, 118, 20
    figure, axes = panel(head, row * len(found.cells), 48, left)
    tasks = [f"{column.comparison.suite} {column.comparison.task.name}" for column in found.columns]
    axes.set(xlim=(-0.5, max(len(tasks), 8.5) - 0.5), ylim=(len(found.cells) - 0.5, -0.5))
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(tasks)), [shortened(task, head) for task in tasks], rotation=90, color=THEME["ink"])
    axes.set_yticks(range(len(found.cells)), [shortened(strategy, left - 4) for strategy in found.cells], color=THEME["ink"])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    told = []
    for y, (strategy, cells) in enumerate(found.cells.items()):
        for x, cell in enumerate(cells):
            if not cell.figure:
                continue
            kind = "quiet" if cell.verdict in QUIET else cell.verdict if cell.verdict in MARKS else ""
            axes.add_patch(_cell(kind, (x - 0.46, y - 0.45), 0.92, 0.9))
            if kind in MARKS:
                axes.text(x, y, MARKS[kind], ha="center", va="center", size=9, color=THEME["page"], gid="number")
                told.append(f"{strategy} on {title(found.columns[x].comparison)}: {cell.verdict}")
    key = {words: _cell(kind, (0, 0), 1, 1) for kind, (words, _) in _CELLS.items()}
    figure.legend(key.values(), key, loc="lower left", bbox_to_anchor=(0, 0), ncols=2, borderpad=0.1, handlelength=1.2)
    words = "; ".join(told) or "no strategy is shown to be better or worse than its baseline on any task"
    return inline(figure, name, "what is shown of every strategy on every task, after correction", words)


def _cell(kind: str, corner: tuple[float, float], width: float, height: float) -> Rectangle:
    style: Any = {"facecolor": _CELLS[kind][1], "edgecolor": THEME["line"], "linestyle": ":" if kind == "quiet" else "-"}
    return Rectangle(corner, width, height, linewidth=1, gid=f"cell {kind}".strip(), **style)
