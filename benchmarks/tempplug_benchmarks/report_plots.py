"""Plots of a report as inline SVG: arms downwards, a figure with its error bar to the right. It must not know the page.

Drawn by hand because a dozen lines and dots need no plotting library, take the page's colours and stay sharp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.profile import Metric
from tempplug_benchmarks.report_tables import format_difference, format_summary

_WIDTH, _ROW, _TOP, _BOTTOM, _RIGHT = 560, 24, 10, 30, 22
_LETTER = 7.0  # pixels, a generous mean at 12 px


@dataclass(frozen=True)
class Mark:
    """One line of a plot.

    Attributes:
        label: left of it.
        value: where the dot stands.
        low: lower end of the error bar.
        high: upper end.
        seeds: where the small dots of single seeds stand.
        words: shown when the pointer rests on it.
    """

    label: str
    value: float
    low: float
    high: float
    seeds: tuple[float, ...]
    words: str


def metric_plot(comparison: Comparison, metric: Metric) -> str:
    """Returns a plot of a metric over the arms, a dashed line at the baseline; empty where nothing has finished."""
    marks = []
    baseline = None
    for row in comparison.rows:
        summary = row.summaries.get(metric.name)
        if summary is None:
            continue
        if row.label == comparison.baseline:
            baseline = summary.mean
        std = summary.std or 0.0
        seeds = tuple(summary.values.values()) if summary.count > 1 else ()
        words = f"{row.label}: {format_summary(summary, metric)}"
        marks.append(Mark(row.label, summary.mean, summary.mean - std, summary.mean + std, seeds, words))
    return _draw(marks, baseline)


def difference_plot(comparison: Comparison) -> str:
    """Returns a plot of the primary metric's paired differences, a dashed line at zero; empty where there is none."""
    metric = comparison.primary
    marks = []
    for row in comparison.rows:
        difference = row.differences.get(metric.name)
        if difference is None:
            continue
        low = difference.mean if difference.low is None else difference.low
        high = difference.mean if difference.high is None else difference.high
        marks.append(Mark(row.label, difference.mean, low, high, (), f"{row.label}: {format_difference(difference, metric)}"))
    return _draw(marks, 0.0)


def ticks(low: float, high: float) -> list[float]:
    """Returns three to nine round positions within [low, high], ``low`` less than ``high``.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 8
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, digits) for number in range(first, last + 1)]


def _draw(marks: Sequence[Mark], reference: float | None) -> str:
    if not marks:
        return ""
    ends = [end for mark in marks for end in (mark.low, mark.high, *mark.seeds)]
    ends += [] if reference is None else [reference]
    margin = (max(ends) - min(ends)) * 0.05 or abs(ends[0]) * 0.05 or 1.0
    low, high = min(ends) - margin, max(ends) + margin
    left = min(max(len(mark.label) for mark in marks) * _LETTER + 12, _WIDTH * 0.55)
    bottom = _TOP + _ROW * len(marks)

    def across(value: float) -> float:
        return left + (value - low) / (high - low) * (_WIDTH - left - _RIGHT)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}" width="{_WIDTH}" height="{bottom + _BOTTOM}" role="img">']
    positions = ticks(low, high)
    digits = max((len(f"{tick:.10g}".partition(".")[2]) for tick in positions), default=0)
    for tick in positions:
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{tick:.{digits}f}</text>')
    if reference is not None:
        x = across(reference)
        parts.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
    for position, mark in enumerate(marks):
        y = _TOP + _ROW * (position + 0.5)
        parts.append(f"<g><title>{escape(mark.words)}</title>")
        parts.append(f'<text x="{left - 10:.1f}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(mark.label, left))}</text>')
        if mark.high > mark.low:
            parts.append(f'<line class="bar" x1="{across(mark.low):.1f}" x2="{across(mark.high):.1f}" y1="{y}" y2="{y}"/>')
        parts += [f'<circle class="seed" cx="{across(seed):.1f}" cy="{y}" r="2.5"/>' for seed in mark.seeds]
        parts.append(f'<circle class="dot" cx="{across(mark.value):.1f}" cy="{y}" r="4.5"/></g>')
    return "\n".join([*parts, "</svg>"])


def _short(label: str, left: float) -> str:
    room = int((left - 12) / _LETTER)
    return label if len(label) <= room else label[: room - 1] + "…"
