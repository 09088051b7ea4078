"""Writes matplotlib figures reproducibly: equal figures give equal files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError
from tempplug_adapters.storage.files import write_file, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours for colour-blind readers, without yellow, which has little contrast on white."""
DARK = {
    **{"#000000": "#e7eaf0", "#ffffff": "#13161c", "#0072b2": "#2f93d4"},
    **dict.fromkeys(("#dfe4ec", "#e3e6ec", "#e8ecf2", "#b0b0b0", "#cccccc"), "#333a48"),
}
"""Colours of an SVG on a dark page, where they differ."""
_DATES: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_format(path: Path) -> None:
    """Raises `ConfigError` if the extension of a file is none of `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"path={path} of a drawing must end in {', '.join(FORMATS)}.")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Returns an empty figure with one panel, of a size in inches, without matplotlib's global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    return figure, figure.subplots()


def save_figure(figure: Figure, path: Path, title: str) -> None:
    """Writes a figure reproducibly to .png, .svg or .pdf; raises ConfigError for other extensions, DataError if it cannot."""
    check_format(path)
    kind = path.suffix.lower()
    if kind == ".svg":
        write_text(path, svg_text(figure, title))
    else:
        write_file(path, lambda temporary: _draw(figure, temporary, kind, title))


def svg_text(figure: Figure, title: str) -> str:
    """Returns a figure as SVG with selectable text."""
    stream = io.StringIO()
    _draw(figure, stream, ".svg", title)
    return with_dark_colours(stream.getvalue(), DARK)


def with_dark_colours(svg: str, dark: Mapping[str, str]) -> str:
    """Returns an SVG of matplotlib with other colours for readers who prefer dark pages (``prefers-color-scheme``).

    Args:
        svg: the text of a file.
        dark: colours on a dark page by those on a light one, ``#rrggbb`` each; black is that of text.
    """
    rules = [f"svg{{fill:{dark['#000000']}}}"]  # matplotlib writes no colour where it is black
    for light, other in dark.items():
        for style in ("fill", "stroke"):
            if f"{style}: {light}" in svg:
                rules.append(f'[style*="{style}: {light}"]{{{style}:{other}!important}}')
    scheme = f"<style>@media(prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    return svg.replace(" <defs>", f" {scheme}\n <defs>", 1)


def _draw(figure: Figure, target: Any, kind: str, title: str) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "tempplug", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(target, dpi=150, format=kind[1:], metadata={"Title": title, **_DATES[kind]})
