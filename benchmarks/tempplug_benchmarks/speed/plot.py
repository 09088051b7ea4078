"""The plot of a speed report: the improvement of tempplug over others against the batch size.

Times are those that apply in a training (`told_time`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tempplug_benchmarks.report.drawing import COLOURS, DASHED, STYLE, THEME, label_ratios, save
from tempplug_benchmarks.speed.recipe import OURS, SMALL_ROWS, told_time
from tempplug_benchmarks.speed.report import Section

COLUMNS = 3
MARKERS = "os^Dv"
"""Markers of lines that have the same colour."""
_WORDS = {"milliseconds": "time", "mebibytes": "peak memory", "gradient_error": "gradient error"}


@dataclass(frozen=True)
class Point:
    """The ratio of another implementation's figure to tempplug's.

    Attributes:
        rows: N.
        ratio: above 1 if tempplug is better.
        wanted: target for the ratio; None without a target.
    """

    rows: int
    ratio: float
    wanted: float | None


def points(section: Section) -> dict[str, list[Point]]:
    """Returns the points of each line, by label, in order of batch size.

    Losses, widths and temperatures that are constant within the task are left out of the label.
    """
    several_dimensions = len({result.case.dimension for result in section.results}) > 1
    found: dict[str, list[Point]] = {}
    for result in section.results:
        case = result.case
        # The label of the case without its size, which the axis shows.
        what = [word for word in section.label(result).split() if "×" not in word]
        what += [f"D={case.dimension}"] if several_dimensions else []
        for name in result.implementations:
            cold = told_time(case.rows, result.implementations[name]) != "milliseconds"
            ratio = section.ratio(result, name, cold=cold)
            if name != OURS and ratio is not None and ratio > 0:
                wanted = [each.at_least for each in section.wanted(result, name) if (each.of, each.cold) == (OURS, cold)]
                point = Point(case.rows, ratio, next(iter(wanted), None))
                found.setdefault(", ".join((name, *what)), []).append(point)
    return {label: sorted(line, key=lambda point: point.rows) for label, line in found.items()}


@rc_context(STYLE)
def draw(found: Sequence[Section], out: Path) -> bool:
    """Writes the plot, with one panel for each task and a short bar at each target; returns whether there was data to draw.

    Args:
        found: sections of one profile and setting.
        out: path ending in .svg or .png; missing folders are created.
    """
    drawn = [(section, lines) for section in found if (lines := points(section))]
    if not drawn:
        return False
    rows = math.ceil(len(drawn) / COLUMNS)
    figure = Figure(figsize=(6.4 * COLUMNS, 4.2 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel in axes[len(drawn) :]:
        panel.set_visible(False)
    for panel, (section, lines) in zip(axes, drawn, strict=False):
        _panel(panel, section, lines)
    first = found[0]
    title = f"{first.suite} / {first.profile} / {first.setting.slug}: times tempplug's figure, above 1 where tempplug is better"
    figure.suptitle(f"{title}; time cold up to {SMALL_ROWS} pairs where that was measured", x=0.01, ha="left")
    save(figure, out)
    return True


def _panel(panel: Axes, section: Section, lines: Mapping[str, Sequence[Point]]) -> None:
    for position, (label, line) in enumerate(lines.items()):
        colour, marker = COLOURS[position % len(COLOURS)], MARKERS[position // len(COLOURS) % len(MARKERS)]
        sizes, ratios = [point.rows for point in line], [point.ratio for point in line]
        panel.plot(sizes, ratios, label=label, color=colour, marker=marker)
        wanted = [(point.rows, point.wanted) for point in line if point.wanted is not None]
        panel.plot(*zip(*wanted, strict=True), linestyle="none", marker="_", markersize=16, color=colour)
    sizes = sorted({point.rows for line in lines.values() for point in line})
    panel.axhline(1.0, color=THEME["soft"], linewidth=1.0, linestyle=DASHED)
    panel.set(
        title=section.task.name, yscale="log", xlabel="N, pairs in a batch", ylabel=f"{_WORDS[section.figure]} over tempplug's"
    )
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    panel.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    label_ratios(panel.yaxis, "×")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
