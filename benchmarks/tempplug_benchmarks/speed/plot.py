"""The plot of a speed report: how many times better tempplug is. It must not read files.

Times are those that a training meets (`told_time`). Tasks with several sizes have a panel each, against the size of the
batch; the cases of the others share one list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tempplug_adapters.storage.files import write_file
from tempplug_benchmarks.speed.recipe import OURS, SMALL_ROWS, told_time
from tempplug_benchmarks.speed.report import Section

COLUMNS = 3
ROW = 0.27  # inches
COLOURS = ("#2563a8", "#d9622b", "#2f8f5b", "#8a4fae", "#b8325a", "#8b6d1f", "#3aa0a8", "#5a6270")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_WORDS = {"milliseconds": "time", "mebibytes": "peak memory", "gradient_error": "gradient error"}
_SOFT, _GRID = "#5a6270", "#e3e6ec"


@dataclass(frozen=True)
class Point:
    """One figure over tempplug's.

    Attributes:
        rows: N.
        ratio: above 1 where tempplug is better.
        wanted: what must be reached there, None where nothing must.
    """

    rows: int
    ratio: float
    wanted: float | None


def points(section: Section) -> dict[str, list[Point]]:
    """Returns the points of each line, by its label, from small batches to large ones.

    Losses, widths and temperatures that are the same in the whole task are left out of the label.

    Args:
        section: results of one task.
    """
    several_dimensions = len({result.case.dimension for result in section.results}) > 1
    found: dict[str, list[Point]] = {}
    for result in section.results:
        case = result.case
        # The section's label of the case without its size, which the axis shows.
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


def draw(found: Sequence[Section], out: Path) -> bool:
    """Writes the plot, a short bar wherever something is wanted.

    Args:
        found: sections of one profile and setting.
        out: file that ends in .svg or .png; missing folders are made.

    Returns:
        Whether there was anything to draw.
    """
    drawn = [(section, lines) for section in found if (lines := points(section))]
    if not drawn:
        return False
    panels = [each for each in drawn if len({result.case.rows for result in each[0].results}) > 1]
    singles = [(section, label, line[0]) for section, lines in drawn for label, line in lines.items()]
    singles = [each for each in singles if each[0] not in [section for section, _ in panels]]
    columns = min(COLUMNS, len(panels))
    grid_rows = math.ceil(len(panels) / COLUMNS)
    heights = ([4.2 * grid_rows] if panels else []) + ([ROW * len(singles) + 1.2] if singles else [])
    figure = Figure(figsize=(5.2 * COLUMNS, sum(heights) + 0.4), facecolor="white", layout="constrained")
    parts = list(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel())
    if panels:
        axes = parts.pop(0).subplots(grid_rows, columns, squeeze=False).ravel()
        for panel, (section, lines) in zip(axes, panels, strict=False):
            _against_size(panel, section, lines)
        for panel in axes[len(panels) :]:
            panel.set_visible(False)
    if singles:
        _one_size(parts.pop(0).subplots(), singles)
    first = found[0]
    title = f"{first.suite} / {first.profile} / {first.setting.slug}: times tempplug's figure, above 1 where tempplug is better"
    figure.suptitle(f"{title}; time cold up to {SMALL_ROWS} pairs where that was measured", x=0.01, ha="left")
    kind = out.suffix[1:]
    dates = {"Date": None} if kind == "svg" else None
    write_file(out, lambda temporary: figure.savefig(temporary, dpi=120, format=kind, metadata=dates))
    return True


def _against_size(panel: Axes, section: Section, lines: dict[str, list[Point]]) -> None:
    for position, (label, line) in enumerate(lines.items()):
        colour = COLOURS[position % len(COLOURS)]
        sizes, ratios = [point.rows for point in line], [point.ratio for point in line]
        panel.plot(sizes, ratios, label=label, linewidth=2.0, color=colour, marker=MARKERS[position % len(MARKERS)])
        wanted = [(point.rows, point.wanted) for point in line if point.wanted is not None]
        where, heights = [size for size, _ in wanted], [height for _, height in wanted]
        panel.plot(where, heights, linestyle="none", marker="_", markersize=16, color=colour)
    sizes = sorted({point.rows for line in lines.values() for point in line})
    panel.axhline(1.0, color=_SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
    panel.set_title(section.task.name, fontsize=12, loc="left", fontweight="bold")
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    panel.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    panel.set_yscale("log")
    _ratio_axis(panel.yaxis)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel("N, pairs in a batch")
    panel.set_ylabel(f"{_WORDS[section.figure]} over tempplug's")
    _quiet(panel)
    panel.legend(frameon=False, fontsize=8)


def _one_size(panel: Axes, singles: Sequence[tuple[Section, str, Point]]) -> None:
    tasks = list(dict.fromkeys(section.task.name for section, _, _ in singles))
    for position, (section, _, point) in enumerate(singles):
        colour = COLOURS[tasks.index(section.task.name) % len(COLOURS)]
        panel.plot([1.0, point.ratio], [position, position], color=colour, linewidth=2.0)
        panel.plot(point.ratio, position, color=colour, marker="o", markersize=6)
        if point.wanted is not None:
            panel.plot(point.wanted, position, color=_SOFT, marker="|", markersize=14, markeredgewidth=2)
    panel.axvline(1.0, color=_SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
    labels = [f"{section.task.name}, N={point.rows}: {label}" for section, label, point in singles]
    panel.set_yticks(range(len(singles)), labels, fontsize=8)
    panel.set_ylim(len(singles) - 0.5, -0.5)
    panel.set_xscale("log")
    _ratio_axis(panel.xaxis)
    panel.set_xlabel("over tempplug's")
    _quiet(panel)


def _ratio_axis(axis: Axis) -> None:
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.set_minor_locator(NullLocator())


def _quiet(panel: Axes) -> None:
    panel.grid(color=_GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
