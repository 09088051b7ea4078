"""The picture of a sweep: a metric over fixed temperatures, and a horizontal band for every strategy that needs no such choice.

As SVG, drawn by hand. It must not know where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import mean, stdev

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 460, 80, 270, 54, 60
_COLOURS = ("#d9622b", "#2f8f5b", "#8a4fae", "#b8325a", "#8b6d1f", "#3aa0a8", "#5a6270")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1c2430}.title{font-size:15px;font-weight:600}.small{font-size:11px;fill:#5a6270}"
    ".grid{stroke:#dfe4ec}.curve{stroke:#2563a8;stroke-width:2.5;fill:none}.dot{fill:#2563a8}.bar{stroke:#2563a8;stroke-width:1.5}"
)


def draw(curve: Mapping[float, Sequence[float]], bands: Mapping[str, Sequence[float]], metric: str) -> str:
    """Returns the picture as SVG: means with a standard deviation on both sides.

    Args:
        curve: values of the metric, one a seed, by fixed temperature.
        bands: the same by strategy.
        metric: its name.
    """
    spans = [_span(values) for values in (*curve.values(), *bands.values())]
    low, high = min(start for start, _, _ in spans), max(end for _, _, end in spans)
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - margin, high + margin
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    coldest, warmest = min(curve, default=0.1), max(curve, default=1.0)
    width = math.log(warmest / coldest) or 1.0

    def across(temperature: float) -> float:
        return _LEFT + 20 + math.log(temperature / coldest) / width * (right - _LEFT - 40)

    def down(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - _TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">',
        f'<style>{_STYLE}</style><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text class="title" x="{_LEFT}" y="28">{escape(metric)} over the temperature</text>',
    ]
    for value in ticks(low, high):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{down(value):.1f}" y2="{down(value):.1f}"/>')
        parts.append(f'<text class="small" x="{_LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value:.10g}</text>')
    heights = _apart([down(mean(values)) for values in bands.values()])
    for number, (name, values) in enumerate(bands.items()):
        start, middle, end = _span(values)
        colour = _COLOURS[number % len(_COLOURS)]
        height = max(2.0, down(start) - down(end))
        size = f'width="{right - _LEFT}" height="{height:.1f}"'
        parts.append(f'<rect x="{_LEFT}" y="{down(end):.1f}" {size} fill="{colour}" opacity=".15"/>')
        line = f'x1="{_LEFT}" x2="{right}" y1="{down(middle):.1f}" y2="{down(middle):.1f}"'
        parts.append(f'<line {line} stroke="{colour}" stroke-width="2" stroke-dasharray="7 4"/>')
        label = f'x="{right + 8}" y="{heights[number] + 4:.1f}" style="fill:{colour}"'
        parts.append(f"<text {label}>{escape(name[:28])} {middle:.4g}</text>")
    ordered = sorted(curve)
    points = " ".join(f"{across(each):.1f},{down(mean(curve[each])):.1f}" for each in ordered)
    parts.append(f'<polyline class="curve" points="{points}"/>')
    for temperature in ordered:
        start, middle, end = _span(curve[temperature])
        x = f"{across(temperature):.1f}"
        parts.append(f'<line class="bar" x1="{x}" x2="{x}" y1="{down(start):.1f}" y2="{down(end):.1f}"/>')
        parts.append(f'<circle class="dot" cx="{x}" cy="{down(middle):.1f}" r="4.5"/>')
        parts.append(f'<text class="small" x="{x}" y="{bottom + 18}" text-anchor="middle">{temperature:g}</text>')
    parts.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 14}" text-anchor="middle">fixed temperature</text>')
    return "\n".join([*parts, "</svg>", ""])


def _span(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns mean and a standard deviation below and above it."""
    middle, spread = mean(values), stdev(values) if len(values) > 1 else 0.0
    return middle - spread, middle, middle + spread


def _apart(heights: Sequence[float], distance: float = 16.0) -> list[float]:
    """Returns heights of labels near these, none above another."""
    placed: dict[int, float] = {}
    last = -math.inf
    for number in sorted(range(len(heights)), key=lambda each: heights[each]):
        last = placed[number] = max(heights[number], last + distance)
    return [placed[number] for number in range(len(heights))]


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
