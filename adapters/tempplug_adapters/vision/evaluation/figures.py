"""Drawings as files: colours that most eyes tell apart, matplotlib where it is installed, the same bytes for the same drawing.

It must not know what is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug_adapters.storage.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours, without the yellow that white paper swallows."""


def check_format(path: Path) -> None:
    """Makes sure that a file ends in a format that can be drawn.

    Raises:
        ConfigError: it does not.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"path={path} of a drawing must end in {', '.join(FORMATS)}.")


def check_matplotlib() -> None:
    """Makes sure that drawings can be made.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(f"a drawing needs matplotlib: pip install matplotlib ({error}).") from error


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Returns a blank figure with one panel; it belongs to no window and to no global state.

    Args:
        width: inches.
        height: inches.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    return figure, figure.subplots()


def save_figure(figure: Figure, path: Path, title: str) -> None:
    """Writes a figure; missing folders are made, and nothing in the file depends on the hour.

    Args:
        figure: of `new_figure`.
        path: file that ends in .png, .svg or .pdf.
        title: what the drawing shows, for readers that cannot see it.

    Raises:
        ConfigError: the file has another ending.
        DataError: it cannot be written.
    """
    from matplotlib import rc_context

    check_format(path)
    kind = path.suffix.lower()
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[kind]
    with rc_context({"svg.hashsalt": "tempplug"}):
        metadata = {"Title": title, **dates}
        write_file(path, lambda temporary: figure.savefig(temporary, dpi=150, format=kind[1:], metadata=metadata))
