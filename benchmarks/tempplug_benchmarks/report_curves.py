"""Plots of a report with two figures against each other: what went on in trainings, scores against temperatures, spread against
tolerance. Each is empty where the results do not hold what it shows. This module must not know the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.comparison import ArmRow, Comparison
from tempplug_benchmarks.report_svg import LETTER, WIDTH, Axis, below, beside, drawing, horizontal, limits, padded, shortened
from tempplug_benchmarks.report_tables import STILL, format_summary, ordered

COLOURS = 8
"""How many classes ``c0`` to ``c7`` the page has; the next line is dashed and has the first again."""
TIMES = 4.0
"""An axis is logarithmic where the largest value is more than so many times the smallest."""
_TEMPERATURES = ("temperature", "base_temperature", "initial_temperature", "temperature_init")
_LEFT, _HIGH, _LINE = 40.0, 150.0, 16.0
_PAIRS = (("tolerance", "tolerance: higher keeps classes together"), ("alignment", "alignment: lower is closer"))


@dataclass(frozen=True)
class Line:
    """One curve, with dots or without.

    Attributes:
        label: in the legend; a line without one is not named.
        points: (x, y) each, x not falling.
        style: classes of the page.
        words: what it shows.
    """

    label: str
    points: Sequence[tuple[float, float]]
    style: str
    words: str = ""


def course_plot(comparison: Comparison, name: str, quantity: str, told: str) -> str:
    """Returns a plot of what every arm's trainings looked like over their steps; empty where no run noted it.

    Arms whose temperature stands still are thin grey lines, but for the baseline.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
        quantity: of `Trainings.course`.
        told: what that is, in words with its unit.
    """
    known = [row for row in ordered(comparison) if row.trainings and quantity in row.trainings.course]
    lines: list[Line] = []
    still: list[Line] = []
    for row in known:
        course = row.trainings.course if row.trainings else {}
        points = list(zip(course["step"], course[quantity], strict=True))
        words = f"{row.label}: {points[0][1]:.3g} at first, {points[-1][1]:.3g} at last"
        if row.label == comparison.baseline:
            still.append(Line(f"{row.label} (baseline)", points, "curve reference", words))
        elif _moves(course["temperature"]):
            lines.append(Line(row.label, points, _style(len(lines)), words))
        else:
            still.append(Line("", points, "curve still", words))
    if any(not line.label for line in still):
        still.append(Line("other arms whose temperature stands still", [], "curve still"))
    return _draw(name, f"{told} over the steps of the training", [*still, *lines], "step", False)


def temperature_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric against temperatures that were given, a line for arms that differ in nothing else.

    Empty where no two arms do.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
    """
    metric = comparison.primary
    groups: dict[str, dict[float, ArmRow]] = {}
    for row in comparison.rows:
        if metric.name in row.summaries and (found := _given_temperature(row.label)) is not None:
            group, temperature = found
            groups.setdefault(group, {})[temperature] = row
    lines: list[Line] = []
    for group, rows in groups.items():
        if len(rows) > 1:
            means = [(temperature, rows[temperature].summaries[metric.name]) for temperature in sorted(rows)]
            words = "; ".join(f"{group} at {each:g}: {format_summary(summary, metric)}" for each, summary in means)
            points = [(each, summary.mean) for each, summary in means]
            lines.append(Line(group, points, f"{_style(len(lines))} dotted", words))
    bars = [
        Line("", [(at, summary.mean - std), (at, summary.mean + std)], "whisker")
        for rows in groups.values()
        for at, row in rows.items()
        if len(rows) > 1 and (std := (summary := row.summaries[metric.name]).std or 0.0)
    ]
    title = f"{metric.name} against the temperature given, mean ± standard deviation over seeds"
    return _draw(name, title, [*bars, *lines], "temperature τ", True) if lines else ""


def spread_plot(comparison: Comparison, name: str) -> tuple[str, str]:
    """Returns what is plotted, and a plot of uniformity against tolerance, or alignment where there is no tolerance.

    A dot stands for each arm. Figures are the task's metrics, or the last look at the training where the task has no such
    metrics. Empty where neither is.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
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


def _moves(temperatures: Sequence[float]) -> bool:
    return max(temperatures) - min(temperatures) > STILL * max(temperatures)


def _style(number: int) -> str:
    return f"curve c{number % COLOURS}{' dashed' if number >= COLOURS else ''}"


def _draw(name: str, title: str, lines: Sequence[Line], along: str, logarithmic: bool) -> str:
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    if left == right:
        return ""
    x_axis = horizontal(left, right, logarithmic=logarithmic, start=_LEFT)
    lowest, highest = min(y for _, y in points), max(y for _, y in points)
    ratios = 0 < TIMES * lowest < highest
    ends = (lowest / 1.1, highest * 1.1) if ratios else padded([lowest, highest])
    y_axis = Axis(*ends, _HIGH, 8, logarithmic=ratios)
    parts = [*below(x_axis, 8, _HIGH, along), *beside(y_axis, _LEFT)]
    parts += [each for line in lines if line.points for each in _curve(line, x_axis.at, y_axis.at)]
    top = _HIGH + 40
    for line in lines:
        if line.label:
            parts.append(f'<path class="{line.style}" d="M2 {top + 4:g}h18"/>')
            parts.append(f'<text x="26" y="{top + 8:g}">{escape(shortened(line.label, WIDTH - 30))}</text>')
            top += _LINE
    told = "; ".join(line.words for line in lines if line.words)
    return drawing(name, title, told, top + 2, parts)


def _curve(line: Line, across: Callable[[float], float], up: Callable[[float], float]) -> list[str]:
    placed = [(across(x), up(y)) for x, y in line.points]
    parts = [f'<path class="{line.style}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in placed)}"/>']
    if "dotted" in line.style:
        parts += [f'<circle class="{line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in placed]
    return parts


def _scatter(name: str, title: str, told: str, found: Mapping[str, tuple[float, float]]) -> str:
    x_axis = horizontal(*limits([x for x, _ in found.values()]), start=_LEFT)
    y_axis = Axis(*limits([y for _, y in found.values()]), _HIGH, 24)
    parts = [*below(x_axis, 24, _HIGH, "uniformity: lower is more spread"), *beside(y_axis, _LEFT, told)]
    top = _HIGH + 46
    words = []
    for number, (label, (x, y)) in enumerate(found.items(), 1):
        right, down = x_axis.at(x), y_axis.at(y)
        kind = "" if x_axis.inside(x) and y_axis.inside(y) else " outside"
        parts.append(f'<circle class="dot{kind}" cx="{right:.1f}" cy="{down:.1f}" r="7"/>')
        parts.append(f'<text class="number{kind}" x="{right:.1f}" y="{down + 3:.1f}" text-anchor="middle">{number}</text>')
        figures = f"{x:.3f}, {y:.3f}{' (off the axes)' if kind else ''}"
        room = WIDTH - 30 - LETTER * len(figures)
        parts.append(f'<text x="2" y="{top:g}">{number} {escape(shortened(label, room))}</text>')
        parts.append(f'<text class="figure" x="{WIDTH - 2}" y="{top:g}" text-anchor="end">{figures}</text>')
        words.append(f"{number} {label}: {figures}")
        top += _LINE
    return drawing(name, title, "; ".join(words), top, parts)
