"""The style and axes of all plots, and conversion of matplotlib figures to files and inline SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import rc_context, rc_params_from_file
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tempplug_adapters.figures import DARK, with_dark_colours
from tempplug_adapters.storage.files import write_file, write_text

WIDTH = 332
"""Width of a plot in pixels, narrow enough for phones to show without scaling."""
LETTER = 6.2  # pixels, a generous mean at 11 px
FAR = 6.0
"""Distance of the ends of an axis from the median, in typical distances; see `limits`."""
EDGE = 8
"""Pixels between a plot and the right side of its page."""
_TEMPLATES = files("tempplug_benchmarks.report").joinpath("templates")
_CSS = _TEMPLATES.joinpath("report.css").read_text(encoding="utf-8")
THEME, _DARK = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in _CSS.split("@media")[:2])
"""Colours of the page by name, those of its light scheme, and those of its dark one."""
_VARIABLES = {colour: f"var(--{name})" for name, colour in THEME.items()}
_CLASSES = {f'style="{style}"': f'class="{name}"' for name, style in re.findall(r"^svg \.([\w-]+) \{ (\S+) \}$", _CSS, re.M)}
COLOURS = tuple(THEME[f"c{number}"] for number in range(8))
DASHED = (0, (4, 3))
_GRID = re.compile('<path d="([^"]*)" class="grid"/>')


def _style(name: str) -> Any:
    return rc_params_from_file(str(_TEMPLATES.joinpath(f"{name}.mplstyle")), use_default_template=False)


_COLOURED = {"axes.labelcolor": "soft", "grid.color": "line", "text.color": "ink"}
STYLE: Any = {**_style("plot"), **{setting: THEME[name] for setting, name in _COLOURED.items()}}
"""Settings of matplotlib for every plot."""
PAGE_STYLE: Any = {**STYLE, **_style("page"), "xtick.color": THEME["soft"], "ytick.color": THEME["soft"]}
"""Settings for plots of a page."""
_UNDATED = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def panel(above: float = 8, height: float = 142, below: float = 42, left: float = EDGE) -> tuple[Figure, Axes]:
    """Creates a figure for a page and its axes; sizes are in pixels, and ``height`` is that of the axes."""
    figure = Figure(facecolor="none")
    axes = figure.add_axes((0, 0, 1, 1), facecolor="none")
    place(figure, axes, above, height, below, left)
    return figure, axes


def place(figure: Figure, axes: Axes, above: float, height: float, below: float, left: float = EDGE) -> None:
    """Sets the sizes of a figure and its axes, see `panel`."""
    total = above + height + below
    figure.set_size_inches(WIDTH / 72, total / 72)
    axes.set_position((left / WIDTH, below / total, (WIDTH - EDGE - left) / WIDTH, height / total))


def label_ratios(axis: Axis, unit: str = "", factors: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Labels a logarithmic axis at these multiples of each power of ten."""
    axis.set_major_locator(LogLocator(subs=factors))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.set_minor_locator(NullLocator())


def save(figure: Figure, out: Path) -> None:
    """Writes a figure reproducibly in the format given by the file extension."""
    kind = out.suffix[1:].lower()
    undated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
    if kind != "svg":
        write_file(out, lambda temporary: figure.savefig(temporary, dpi=150, format=kind, metadata=undated))
        return
    written = io.StringIO()
    figure.savefig(written, format=kind, metadata=undated)
    write_text(out, with_dark_colours(written.getvalue(), DARK | {THEME[name]: colour for name, colour in _DARK.items()}))


def inline(figure: Figure, title: str, description: str) -> str:
    """Returns a figure as inline SVG with the colours of the page and a text alternative for screen readers.

    The ``gid`` of an element becomes the class of its group. Equal markers have equal ids in all figures.

    Args:
        figure: created with `PAGE_STYLE`.
        title: short title.
        description: text alternative.
    """
    written = io.StringIO()
    with rc_context({**PAGE_STYLE, "svg.hashsalt": "tempplug"}):
        figure.savefig(written, format="svg", metadata=_UNDATED)
    drawn = re.sub(r"<clipPath.*?</clipPath>|<!--.*?-->", "", written.getvalue().partition("</defs>")[2], flags=re.S)
    drawn = re.sub(r">\s+<", "><", re.sub("<[^>]*>", _tag, drawn)).replace("<defs></defs>", "").strip()
    drawn = re.sub(r'<path [^>]*style="fill:none"/>', "", drawn).replace('<text style="fill:var(--ink)"', "<text")
    grid = "".join(re.findall(_GRID, drawn))
    drawn = _without_plain_groups(re.sub(_GRID, "", drawn).removesuffix("</svg>"))
    height = figure.get_figheight() * 72
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    told = f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>"
    return f'<svg {size} role="img">{told}\n<path d="{grid}" class="grid"/>{drawn}</svg>'


def _without_plain_groups(drawn: str) -> str:
    """Removes the tags of groups without attributes."""
    named: list[bool] = []

    def tag(found: re.Match[str]) -> str:
        if found[0] != "</g>":
            named.append(found[0] != "<g>")
            return found[0] * named[-1]
        return found[0] * named.pop()

    return re.sub("<g>|<g [^>]*>|</g>", tag, re.sub("<g[^>]*/>", "", drawn))


def _tag(found: re.Match[str]) -> str:
    """Rewrites a tag of matplotlib's SVG: page colours, names and frequent styles as classes, one decimal, no defaults."""
    tag = found[0]
    for pattern, new in (
        (r"\s+", " "),
        (r' clip-path="[^"]*"| transform="rotate\(-0 [^)]*\)"| font-family: [^;"]*;?|(?<=<g) id="[\w.]+_\d+"', ""),
        (r"(?<=<g) id=", " class="),
        (r"xlink:href", "href"),
        (r"(\.\d)\d+", r"\1"),
        (r"(?<=\d)\.0(?!\d)", ""),
        (r"([:;]) ", r"\1"),
        (r"font-size:11px;|text-anchor:start;?", ""),
        (r" ?([MLCz]) ", r"\1"),
        (r' (?="[ />])', ""),
        (r'(?<=["#]m)(\w{4})\w{6}(?=")', r"\1"),
    ):
        tag = re.sub(pattern, new, tag)
    tag = re.sub(r"#\w{6}", lambda colour: _VARIABLES.get(colour[0], colour[0]), tag)
    tag = re.sub(r'style="[^"]*"', lambda style: _CLASSES.get(style[0], style[0]), tag)
    return re.sub(r'(?<="M)[-\d. ]+L[-\d. L]+(?=")', _relative, tag)


def _relative(line: re.Match[str]) -> str:
    """Rewrites a line of positions as its first position and the distances between points."""
    points = [[float(each) for each in point.split()] for point in line[0].split("L")]
    steps = (f"{round(b - a, 1):g}" for ends in pairwise(points) for a, b in zip(*ends, strict=True))
    return f"{line[0].partition('L')[0]}l{re.sub(r'(?<![0-9])0[.]', '.', ' '.join(steps)).replace(' -', '-')}"


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """Returns axis limits with a margin around all values, of which there is at least one."""
    low, high = min(values), max(values)
    margin = (high - low) * share or abs(low) * share or 1.0
    return low - margin, high + margin


def limits(
    values: Sequence[float], halves: Sequence[float] = (), ends: Sequence[float] = (), reference: float | None = None
) -> tuple[float, float]:
    """Returns axis limits, at most `FAR` typical distances from the median, so that outliers do not compress the plot.

    The typical distance is 1.5 times the median absolute deviation, or the median of ``halves`` if that is larger.

    Args:
        values: positions of dots, at least one.
        halves: half the length of each interval.
        ends: other positions, such as ends of intervals.
        reference: a position that is always included; None for none.
    """
    middle, always = median(values), [] if reference is None else [reference]
    usual = max(1.5 * median(abs(value - middle) for value in values), median(halves or (0.0,)))
    if not usual:
        return padded([*values, *ends, *always])
    low, high = (pick([middle + way * FAR * usual, *always]) for pick, way in ((min, -1), (max, 1)))
    return padded([min(max(end, low), high) for end in (*values, *ends, *always)])


def shortened(text: str, room: float) -> str:
    """Returns text truncated to a width in pixels."""
    letters = int(room / LETTER)
    return text if len(text) <= letters else text[: max(1, letters - 1)] + "…"
