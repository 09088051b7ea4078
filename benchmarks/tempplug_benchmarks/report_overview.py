"""The picture above the table of all modalities: what is shown of every strategy on every task, on one screen of a phone.

It must not know the page.
"""

from __future__ import annotations

from html import escape

from tempplug_benchmarks.report_cross import MARKS, QUIET, CrossTable
from tempplug_benchmarks.report_svg import WIDTH, drawing, shortened
from tempplug_benchmarks.report_tables import title

_ROW, _HEAD, _LEFT = 20.0, 118.0, 106.0
_WIDEST = 26.0
KEY = (("better", "▲ better"), ("worse", "▼ worse"), ("", "no difference shown"), ("quiet", "no signal, or one seed"))


def overview(found: CrossTable, name: str) -> str:
    """Returns the picture: a square for each strategy and task, coloured by the verdict after correction.

    Args:
        found: the table.
        name: of the plot on its page.
    """
    width = min(_WIDEST, (WIDTH - _LEFT) / len(found.columns))
    parts = []
    for position, column in enumerate(found.columns):
        x = _LEFT + width * (position + 0.5) + 4
        task = f"{column.comparison.suite} {column.comparison.task.name}"
        heading = escape(shortened(task, _HEAD))
        parts.append(f'<text transform="translate({x:.1f} {_HEAD - 6:g}) rotate(-90)">{heading}</text>')
    told = []
    for line, (strategy, cells) in enumerate(found.cells.items()):
        y = _HEAD + _ROW * line
        parts.append(f'<text x="2" y="{y + 14:g}">{escape(shortened(strategy, _LEFT - 4))}</text>')
        for position, cell in enumerate(cells):
            if not cell.figure:
                continue
            x = _LEFT + width * position
            kind = "quiet" if cell.verdict in QUIET else cell.verdict if cell.verdict in MARKS else ""
            parts.append(
                f'<rect class="cell {kind}" x="{x + 1:.1f}" y="{y + 1:g}" width="{width - 2:.1f}" height="{_ROW - 2:g}"/>'
            )
            if kind in MARKS:
                parts.append(
                    f'<text class="number" x="{x + width / 2:.1f}" y="{y + 14:g}" text-anchor="middle">{MARKS[kind]}</text>'
                )
                told.append(f"{strategy} on {title(found.columns[position].comparison)}: {cell.verdict}")
    bottom = _HEAD + _ROW * len(found.cells) + 6
    for position, (kind, words) in enumerate(KEY):
        x, y = 2 + 150 * (position % 2), bottom + 18 * (position // 2)
        parts.append(f'<rect class="cell {kind}" x="{x:g}" y="{y:g}" width="12" height="12"/>')
        parts.append(f'<text x="{x + 17:g}" y="{y + 10:g}">{words}</text>')
    words = "; ".join(told) or "no strategy is shown to be better or worse than its baseline on any task"
    return drawing(name, "what is shown of every strategy on every task, after correction", words, bottom + 34, parts)
