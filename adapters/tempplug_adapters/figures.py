"""Writes matplotlib figures reproducibly: equal figures give equal files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError
from tempplug_adapters.storage.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours for colour-blind readers, without yellow, which has little contrast on white."""
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
    write_file(path, lambda temporary: _save(figure, temporary, path.suffix.lower(), title))


def svg_text(figure: Figure, title: str) -> str:
    """Returns a figure as SVG with selectable text."""
    stream = io.StringIO()
    _save(figure, stream, ".svg", title)
    return stream.getvalue()


def _save(figure: Figure, target: Any, kind: str, title: str) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "tempplug", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(target, dpi=150, format=kind[1:], metadata={"Title": title, **_DATES[kind]})
