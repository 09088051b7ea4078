"""Axes and frames of the plots of a report, as inline SVG. It must not know what is drawn.

Every plot is as wide as a phone shows it, letters at their own size, so that none has to be made smaller; wider windows set
several side by side. Drawn by hand because lines and dots need no plotting library, take the page's colours and stay sharp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from tempplug_adapters.sweep.picture import ticks

WIDTH = 332
LETTER = 6.2  # pixels, a generous mean at 11 px
FAR = 6.0
"""An axis ends so many times the usual distance from the middle; see `limits`."""
_EDGE = 8.0


@dataclass(frozen=True)
class Axis:
    """From values to pixels.

    Attributes:
        low: value at ``start``.
        high: value at ``end``, above ``low``.
        start: pixels.
        end: pixels.
        logarithmic: whether equal ratios are equally far apart; ``low`` is above 0 then.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Returns where a value stands, at the nearer end where it lies outside."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    def inside(self, value: float) -> bool:
        """Returns whether a value lies between the ends."""
        return self.low <= value <= self.high

    def labels(self) -> list[tuple[float, str]]:
        """Returns round positions and their names; of a logarithmic axis 1, 2 and 5 of every decade."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
            inside = [value for value in found if self.inside(value)]
            return [(value, f"{value:g}") for value in inside]
        positions = ticks(self.low, self.high)
        digits = max((len(f"{tick:.10g}".partition(".")[2]) for tick in positions), default=0)
        # not more letters than there is room for
        room = abs(self.end - self.start) / (LETTER * max(len(f"{tick:.{digits}f}") + 1 for tick in positions))
        step = math.ceil(len(positions) / room) if room >= 1 else len(positions)
        return [(tick, f"{tick:.{digits}f}") for tick in positions[::step]]


def horizontal(low: float, high: float, *, logarithmic: bool = False, start: float = _EDGE) -> Axis:
    """Returns an axis over the width of a plot."""
    return Axis(low, high, start, WIDTH - _EDGE, logarithmic)


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """Returns the ends of an axis that shows all values, at least one of them, with a margin."""
    low, high = min(values), max(values)
    margin = (high - low) * share or abs(low) * share or 1.0
    return low - margin, high + margin


def limits(
    values: Sequence[float], halves: Sequence[float] = (), ends: Sequence[float] = (), reference: float | None = None
) -> tuple[float, float]:
    """Returns the ends of an axis: of all that is drawn, or `FAR` times the usual distance from the middle where that is less.

    The usual distance is 1.5 times the median distance of the values from their median, or the median half interval where that
    is more.

    Args:
        values: where dots stand, at least one.
        halves: half the length of each interval.
        ends: what else is drawn, such as the ends of the intervals.
        reference: what is always shown; None for nothing.
    """
    middle, always = median(values), [] if reference is None else [reference]
    usual = max(1.5 * median(abs(value - middle) for value in values), median(halves or (0.0,)))
    reach = [middle - FAR * usual, middle + FAR * usual, *always] if usual else [-math.inf, math.inf]
    return padded([min(max(end, min(reach)), max(reach)) for end in (*values, *ends, *always)])


def below(axis: Axis, top: float, bottom: float, name: str = "") -> list[str]:
    """Returns grid lines, ticks and the name of a horizontal axis; it needs 18 pixels below ``bottom``, 32 with a name."""
    parts = []
    for value, text in axis.labels():
        x = axis.at(value)
        parts.append(f'<path class="grid" d="M{x:.1f} {top:g}V{bottom:g}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14:g}" text-anchor="middle">{text}</text>')
    if name:
        middle = (axis.start + axis.end) / 2
        parts.append(f'<text class="tick" x="{middle:g}" y="{bottom + 28:g}" text-anchor="middle">{escape(name)}</text>')
    return parts


def beside(axis: Axis, left: float, name: str = "") -> list[str]:
    """Returns grid lines and ticks of a vertical axis, its name above it."""
    parts = []
    for value, text in axis.labels():
        y = axis.at(value)
        parts.append(f'<path class="grid" d="M{left:g} {y:.1f}H{WIDTH - _EDGE:g}"/>')
        parts.append(f'<text class="tick" x="{left - 5:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    if name:
        parts.append(f'<text class="tick" x="0" y="{min(axis.start, axis.end) - 8:g}">{escape(name)}</text>')
    return parts


def drawing(name: str, title: str, description: str, height: float, parts: Sequence[str]) -> str:
    """Returns a plot that a screen reader reads as one picture with a title and what it shows.

    Args:
        name: of the plot, unique on its page; letters, digits and minus signs.
        title: what is drawn.
        description: what it shows, in words.
        height: in pixels.
        parts: elements.
    """
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    labels = f'role="img" aria-labelledby="{name}-title" aria-describedby="{name}-words"'
    told = f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-words">{escape(description)}</desc>'
    return "\n".join([f"<svg {size} {labels}>", told, *parts, "</svg>"])


def shortened(text: str, room: float) -> str:
    """Returns text that fits into so many pixels."""
    letters = int(room / LETTER)
    return text if len(text) <= letters else text[: max(1, letters - 1)] + "…"
