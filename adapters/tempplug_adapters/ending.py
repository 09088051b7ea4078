"""The last lines of a command: its results, their place, and the next command to type. It imports no framework."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tempplug.cli import printable

LINES, WIDTH = 15, 80
"""Largest number of lines of an ending, and of columns of a line, except a command."""
_MOST_COLUMNS = 3


def number(value: float) -> str:
    """Returns a figure with at most four significant digits; from 10,000 on rounded to an integer.

    >>> [number(each) for each in (61.0, 61.538, -2.34567, 0.00012345, 123456.0)]
    ['61', '61.54', '-2.346', '0.0001234', '123456']
    """
    return f"{value:.0f}" if math.isfinite(value) and abs(value) >= 1e4 else f"{value:.4g}"


def ending(said: Sequence[str], figures: Mapping[str, float], then: str, *, more: str = "metrics.json") -> str:
    """Returns at most `LINES` lines of at most `WIDTH` columns: notes, figures side by side where they are many, the next step.

    Args:
        said: notes, one per line; they are not cut, because they may contain paths. Control characters of names are escaped.
        figures: by name.
        then: the next command to type, which is not cut.
        more: file that has all figures, named if they do not fit.

    >>> print(ending(["wrote out"], {"knn": 61.5, "uniformity": -2.34567}, "tempplug embed out digits --output vectors.npy"))
    wrote out
    knn                              61.5
    uniformity                     -2.346
    next: tempplug embed out digits --output vectors.npy
    """
    room = LINES - len(said) - 1
    columns = min(_MOST_COLUMNS, max(1, math.ceil(len(figures) / max(1, room))))
    width = min(37, (WIDTH + 3) // columns - 3)
    cells = []
    for name, value in figures.items():
        shown = number(value)
        cells.append(f"{name[: width - len(shown) - 1]:<{width - len(shown)}}{shown}")
    rows = math.ceil(len(cells) / columns)
    lines = ["   ".join(cells[row::rows]) for row in range(rows)]
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(cells) - (room - 1) * columns} more in {more}"[:WIDTH]]
    return "\n".join(map(printable, [*said, *lines, f"next: {then}"]))
