"""The plot of a speed report: how many times better tempplug is, against the size of the batch.

Times are those that a training meets (`told_time`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tempplug_adapters.storage.files import write_file
from tempplug_benchmarks.speed.recipe import OURS, SMALL_ROWS, told_time
from tempplug_benchmarks.speed.report import Section

COLUMNS = 3
COLOURS, MARKERS = 10, "os^Dv"
"""How many colours matplotlib has in turn, and the markers of lines that have the same one."""
_WORDS = {"milliseconds": "time", "mebibytes": "peak memory", "gradient_error": "gradient error"}


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
    """Writes the plot, a panel for each task, with a short bar wherever something is wanted.

    Args:
        found: sections of one profile and setting.
        out: file that ends in .svg or .png; missing folders are made.

    Returns:
        Whether there was anything to draw.
    """
    drawn = [(section, lines) for section in found if (lines := points(section))]
    if not drawn:
        return False
    rows = math.ceil(len(drawn) / COLUMNS)
    figure = Figure(figsize=(6.4 * COLUMNS, 4.2 * rows + 0.4), facecolor="white", layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel in axes[len(drawn) :]:
        panel.set_visible(False)
    for panel, (section, lines) in zip(axes, drawn, strict=False):
        _panel(panel, section, lines)
    first = found[0]
    title = f"{first.suite} / {first.profile} / {first.setting.slug}: times tempplug's figure, above 1 where tempplug is better"
    figure.suptitle(f"{title}; time cold up to {SMALL_ROWS} pairs where that was measured", x=0.01, ha="left")
    kind = out.suffix[1:]
    dates = {"Date": None} if kind == "svg" else None
    write_file(out, lambda temporary: figure.savefig(temporary, dpi=120, format=kind, metadata=dates))
    return True


def _panel(panel: Axes, section: Section, lines: Mapping[str, Sequence[Point]]) -> None:
    for position, (label, line) in enumerate(lines.items()):
        sizes, ratios = [point.rows for point in line], [point.ratio for point in line]
        (drawn,) = panel.plot(sizes, ratios, label=label, marker=MARKERS[position // COLOURS % len(MARKERS)])
        wanted = [(point.rows, point.wanted) for point in line if point.wanted is not None]
        panel.plot(*zip(*wanted, strict=True), linestyle="none", marker="_", markersize=16, color=drawn.get_color())
    sizes = sorted({point.rows for line in lines.values() for point in line})
    panel.axhline(1.0, color="grey", linewidth=1.0, linestyle="--")
    panel.set_title(section.task.name, loc="left", fontweight="bold")
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    panel.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
    panel.set(xlabel="N, pairs in a batch", ylabel=f"{_WORDS[section.figure]} over tempplug's")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
