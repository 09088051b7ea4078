"""The picture of ``tempplug demo``: a row a strategy; temperatures, and where the gradient goes.

As SVG, drawn by hand, because bars and words need no plotting library, and as lines of a terminal. It must not know how
the numbers came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tempplug_adapters.demo.effects import HARDEST, Effect

_LEFT, _COLUMN, _GAP, _ROW, _WIDTH = 220, 190, 34, 30, 1130
_LETTERS = 122
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1c2430}.title{font-size:15px;font-weight:600}.head{font-weight:600}"
    ".small{font-size:11px;fill:#5a6270}.bar{fill:#2563a8}.rest{fill:#e8ecf2}.range{stroke:#2563a8;stroke-width:6;"
    "stroke-linecap:round;opacity:.45}.dot{fill:#2563a8}.grid{stroke:#dfe4ec}"
)
Column = tuple[str, str]


def columns(negatives: int) -> tuple[Column, Column, Column]:
    """Returns title and unit of the three columns of bars.

    Args:
        negatives: of each anchor.
    """
    hardest = max(1, math.ceil(HARDEST * negatives))
    return (
        ("on the hardest", f"share of the {hardest} hardest negatives"),
        ("negatives that count", f"effective number, of {negatives}"),
        ("gradient scale", "1 - probability of the positive"),
    )


def shares(effect: Effect, negatives: int) -> tuple[tuple[float, str], ...]:
    """Returns length, in [0, 1], and words of the three bars of a strategy."""
    return (
        (effect.hardest, f"{effect.hardest:.0%}"),
        (effect.effective / negatives, f"{effect.effective:.3g}"),
        (effect.scale, f"{effect.scale:.2g}"),
    )


def temperatures(effect: Effect) -> str:
    """Returns the temperature in words, its range where there is one."""
    begins = "" if effect.begins is None else f", began at {effect.begins:.2g}"
    if effect.high - effect.low < 0.01 * effect.mean:
        return f"{effect.mean:.2g}{begins}"
    return f"{effect.low:.2g} to {effect.high:.2g}, mean {effect.mean:.2g}{begins}"


def bars(found: Sequence[Effect], negatives: int) -> list[str]:
    """Returns the lines that a terminal shows.

    Args:
        found: what strategies do.
        negatives: of each anchor.
    """
    cells = [("strategy", "temperature", *(title for title, _ in columns(negatives)))]
    for effect in found:
        drawn = (f"{_bar(length)} {words}" for length, words in shares(effect, negatives))
        cells.append((effect.label, temperatures(effect), *drawn))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _bar(length: float, letters: int = 12) -> str:
    full = round(min(max(length, 0.0), 1.0) * letters)
    return "█" * full + "░" * (letters - full)


def draw(found: Sequence[Effect], negatives: int, sentence: str) -> str:
    """Returns the picture as SVG.

    Args:
        found: what strategies do, at least one.
        negatives: of each anchor.
        sentence: above the picture.
    """
    lines = _wrapped(sentence)
    top = 30 + 20 * len(lines) + 44
    bottom = top + _ROW * len(found)
    height = bottom + 34
    low = 10 ** math.floor(math.log10(min(effect.low for effect in found)) + 1e-6)
    high = 10 ** math.ceil(math.log10(max(effect.high for effect in found)) - 1e-6)
    high = high if high > low else 10 * low
    starts = [_LEFT + number * (_COLUMN + _GAP) for number in range(4)]

    def across(temperature: float) -> float:
        return starts[0] + math.log(temperature / low) / math.log(high / low) * _COLUMN

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *(f'<text class="title" x="16" y="{30 + 20 * number}">{escape(line)}</text>' for number, line in enumerate(lines)),
    ]
    heads = (("temperature", "range and mean over all pairs"), *columns(negatives))
    for start, (title, unit) in zip(starts, heads, strict=True):
        parts.append(f'<text class="head" x="{start}" y="{top - 28}">{escape(title)}</text>')
        parts.append(f'<text class="small" x="{start}" y="{top - 13}">{escape(unit)}</text>')
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        x = across(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{10.0**power:g}</text>')
    for row, effect in enumerate(found):
        y = top + _ROW * (row + 0.5)
        said = f"{effect.label}: temperature {temperatures(effect)}"
        parts.append(f"<g><title>{escape(said)}</title>")
        parts.append(f'<text x="{_LEFT - 14}" y="{y + 4}" text-anchor="end">{escape(_short(effect.label))}</text>')
        ends = f'x1="{across(effect.low):.1f}" x2="{across(effect.high):.1f}"'
        parts.append(f'<line class="range" {ends} y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="dot" cx="{across(effect.mean):.1f}" cy="{y}" r="5"/>')
        for start, (length, words) in zip(starts[1:], shares(effect, negatives), strict=True):
            room = _COLUMN - 50
            parts.append(f'<rect class="rest" x="{start}" y="{y - 7}" width="{room}" height="14"/>')
            parts.append(f'<rect class="bar" x="{start}" y="{y - 7}" width="{room * length:.1f}" height="14"/>')
            parts.append(f'<text x="{start + room + 6}" y="{y + 4}">{words}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _short(label: str, letters: int = 29) -> str:
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _wrapped(sentence: str) -> list[str]:
    lines = [""]
    for word in sentence.split():
        if len(lines[-1]) + len(word) > _LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
