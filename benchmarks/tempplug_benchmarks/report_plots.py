"""Plots of a report that have a line for each arm: its name and figure, and below them a dot with its interval.

An arm that is far from all others would leave them no room: the axis ends before it, an arrow stands at that end, and the
figure beside the name is the arm's own. This module must not know the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.report_svg import LETTER, WIDTH, Axis, below, drawing, horizontal, limits, shortened
from tempplug_benchmarks.report_tables import format_difference, format_summary, ordered, tone

_ROW, _TOP, _BOTTOM = 31, 4, 22


@dataclass(frozen=True)
class Mark:
    """One line of a plot.

    Attributes:
        label: above it, on the left.
        value: where the dot stands.
        low: lower end of the interval.
        high: upper end.
        seeds: where the small dots of single seeds stand.
        words: above it, on the right.
        kind: class of the dot: ``better``, ``worse``, ``reference`` or nothing.
    """

    label: str
    value: float
    low: float
    high: float
    seeds: tuple[float, ...]
    words: str
    kind: str = ""


def score_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric over the arms, a dashed line at the baseline; empty where nothing has finished.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
    """
    metric = comparison.primary
    marks = []
    baseline = None
    for row in ordered(comparison):
        summary = row.summaries.get(metric.name)
        if summary is None:
            continue
        is_baseline = row.label == comparison.baseline
        if is_baseline:
            baseline = summary.mean
        std = summary.std or 0.0
        seeds = tuple(summary.values.values()) if summary.count > 1 else ()
        kind = "reference" if is_baseline else tone(row.significance)
        words = format_summary(summary, metric)
        marks.append(Mark(row.label, summary.mean, summary.mean - std, summary.mean + std, seeds, words, kind))
    return _draw(name, f"{metric.name} of every arm, mean ± standard deviation over seeds", marks, baseline)


def difference_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the primary metric's paired differences, a dashed line at zero; empty where there is none.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
    """
    metric = comparison.primary
    marks = []
    for row in ordered(comparison):
        difference = row.differences.get(metric.name)
        if difference is None:
            continue
        low = difference.mean if difference.low is None else difference.low
        high = difference.mean if difference.high is None else difference.high
        words = format_difference(difference, metric)
        marks.append(Mark(row.label, difference.mean, low, high, (), words, tone(row.significance)))
    return _draw(name, f"{metric.name} minus that of {comparison.baseline}, with 95 % intervals", marks, 0.0)


def cost_plot(comparison: Comparison, name: str) -> str:
    """Returns a plot of the seconds that a run of each arm took; empty where nothing has finished.

    Args:
        comparison: whose arms.
        name: of the plot on its page.
    """
    marks = []
    for row in ordered(comparison):
        if row.trainings is None:
            continue
        seconds = row.trainings.seconds
        std = seconds.std or 0.0
        kind = "reference" if row.label == comparison.baseline else ""
        digits = 0 if seconds.mean >= 10 else 1
        words = f"{seconds.mean:.{digits}f}" + ("" if seconds.std is None else f" ± {std:.{digits}f}") + " s"
        seeds = tuple(seconds.values.values()) if seconds.count > 1 else ()
        marks.append(Mark(row.label, seconds.mean, max(0.0, seconds.mean - std), seconds.mean + std, seeds, words, kind))
    return _draw(name, "seconds a run, training and evaluation, mean ± standard deviation over seeds", marks, None)


def _draw(name: str, title: str, marks: Sequence[Mark], reference: float | None) -> str:
    if not marks:
        return ""
    ends = [end for mark in marks for end in (mark.low, mark.high, *mark.seeds)]
    halves = [(mark.high - mark.low) / 2 for mark in marks]
    axis = horizontal(*limits([mark.value for mark in marks], halves, ends, reference))
    bottom = _TOP + _ROW * len(marks)
    parts = below(axis, _TOP, bottom)
    if reference is not None:
        parts.append(f'<path class="base" d="M{axis.at(reference):.1f} {_TOP}V{bottom}"/>')
    for position, mark in enumerate(marks):
        parts += _line(mark, axis, _TOP + _ROW * position)
    outside = [mark for mark in marks if not axis.inside(mark.value)]
    told = "; ".join(f"{mark.label}: {mark.words}" + (" (off the axis)" if mark in outside else "") for mark in marks)
    return drawing(name, title, told, bottom + _BOTTOM, parts)


def _line(mark: Mark, axis: Axis, top: float) -> list[str]:
    y = top + 21
    room = WIDTH - 16 - LETTER * len(mark.words)
    parts = [
        f'<text x="2" y="{top + 11:g}">{escape(shortened(mark.label, room))}</text>',
        f'<text class="figure" x="{WIDTH - 2}" y="{top + 11:g}" text-anchor="end">{escape(mark.words)}</text>',
    ]
    if mark.high > mark.low:
        parts.append(f'<path class="bar" d="M{axis.at(mark.low):.1f} {y:g}H{axis.at(mark.high):.1f}"/>')
    seeds = "".join(f"M{axis.at(seed):.1f} {y:g}h0" for seed in mark.seeds if axis.inside(seed))
    if seeds:
        parts.append(f'<path class="seed" d="{seeds}"/>')
    if axis.inside(mark.value):
        parts.append(f'<circle class="dot {mark.kind}" cx="{axis.at(mark.value):.1f}" cy="{y:g}" r="4.5"/>')
    for x, way, out in ((axis.start, -1, mark.low < axis.low), (axis.end, 1, mark.high > axis.high)):
        if out:
            kind = "" if axis.inside(mark.value) else mark.kind
            parts.append(f'<path class="off {kind}" d="M{x:.1f} {y - 5:g}l{6 * way} 5l{-6 * way} 5z"/>')
    return parts
