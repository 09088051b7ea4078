"""Draws pictures of measured figures in the guides from the result files: ``python -m studies.pictures``.

A test compares what it draws with the files that are there. The figures are those of the tables of ``docs/measured.py``, and
the pictures look like those of ``docs/tools/curves.py``. This file must not depend on the text of a guide.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.cells import Measured
from studies.centring.tables import over_temperature, unseen
from studies.equal_budgets.tables import arms_by_budget, regrets
from studies.gains import intervals
from studies.negatives.tables import by_negatives, gains
from studies.tables import CENTRED, FAIR, LAW, NEGATIVES, OTHER_RATES, RATES, cells_of
from studies.temperature_rate_length.picture import draw_losses
from tempplug_adapters.figures import COLOURS, new_figure, svg_text
from tempplug_benchmarks.arm import UNTRAINED
from tempplug_benchmarks.report.drawing import label_ratios
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.store import Result

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "images" / "measured"
MEASURED = runpy.run_path(str(DOCS / "measured.py"))
LENGTHS = "retrieval/small quora scifact squad"
MINILM = "pydoc-minilm medquad-minilm scifact-minilm squad-minilm quora-minilm"
FINE_TUNED = f"retrieval/small {MINILM} | fixed:temperature=0.05+infonce"
EPOCHS = {"cora-short": "50", "cora": "200", "cora-long": "1,000"}
TAUS = (0.1, 0.25, 0.5, 1.0)
PASSES = {"short": 1, "recipe": 4, "long": 16}
GREY = "#7d8590"
"""Readable on a light page and on a dark one."""
Style = tuple[str, str, str]
"""Colour, marker and dashes of a series."""
STYLES: tuple[Style, ...] = tuple(zip((*COLOURS, GREY), "osD^osD^", ("-",) * 4 + ("--",) * 4, strict=True))
"""The first four are those of fixed temperatures."""

Points = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""All x and all y of a series, by its label."""
Rows = Mapping[str, tuple[float, float, float]]
"""A dot, and the ends of the line through it or from it, by the label of the row."""


def over_length(differences: Mapping[str, Mapping[str, Sequence[float]]]) -> Points:
    """Returns the mean differences over the passes, a line for each arm that is trained."""
    passes = [PASSES[length] for length in differences]
    arms = [label for label in next(iter(differences.values())) if label != UNTRAINED.label]
    names = map(_short, arms)
    means = [[fmean(of[label]) for of in differences.values()] for label in arms]
    return {name: (passes, y) for name, y in zip(names, means, strict=True)}


def by_arm(differences: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Rows]:
    """Returns the mean difference of each arm at each length, and a line from it to the worst data set."""
    ordered = sorted(next(iter(differences.values())), key=lambda label: -fmean(differences["recipe"][label]))
    return {
        length: {_short(label): (fmean(of[label]), min(of[label]), fmean(of[label])) for label in ordered}
        for length, of in differences.items()
    }


def best_temperatures(cells: Sequence[Measured]) -> Points:
    """Returns the best temperature over the steps, a point for each cell."""
    starts = {"vectors": "start from pretrained vectors", "random": "start from random vectors"}
    by_start = {label: [each for each in cells if each.cell.start == start] for start, label in starts.items()}
    return {label: ([each.steps for each in of], [math.exp(each.best()) for each in of]) for label, of in by_start.items()}


def normalised(results: Sequence[Result]) -> Points:
    """Returns F1-micro over the temperature minus that of the best one without normalisation, by head and epochs."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for more, name in (("", ""), ("@last_batch_norm=true", ", normalised")):
        for task, epochs in EPOCHS.items():
            arms = {tau: f"fixed:temperature={tau:g}+infonce" for tau in TAUS}
            values = {
                arm: [each.metrics["F1-micro 10/10/80"] for each in results if (each.task, each.arm) == (task, arm)]
                for plain in arms.values()
                for arm in (plain, f"{plain}@last_batch_norm=true")
            }
            best = max(fmean(values[plain]) for plain in arms.values() if values[plain])
            of = {tau: fmean(values[plain + more]) - best for tau, plain in arms.items() if values[plain + more]}
            found[f"{epochs} epochs{name}"] = ([*of], [*of.values()])
    return found


def lost(cells: Sequence[Measured]) -> dict[str, Rows]:
    """Returns what each strategy loses by budget: the mean, and a line from it to the worst cell."""
    found = {budget: {name: regrets(cells, of) for name, of in arms.items()} for budget, arms in arms_by_budget(cells).items()}
    return {budget: {name: (fmean(of), min(of), fmean(of)) for name, of in rows.items()} for budget, rows in found.items()}


def gained(cells: Sequence[Measured]) -> dict[str, Rows]:
    """Returns what each term gains, by the negatives of the batches: the mean, and its 95 % interval."""
    found = {f"batches: {name}": intervals(of, gains(of)) for name, of in by_negatives(cells).items()}
    return {name: {term: each[:3] for term, each in of.items()} for name, of in found.items()}


def draw_points(title: str, axis: str, points: Points, joined: bool = True, styles: Sequence[Style] = STYLES) -> Figure:
    """Returns lines with their labels beside their ends; not joined: points over a logarithmic y axis too, with a legend."""
    figure, axes = new_figure(7.2, 4.2)
    for (label, (x, y)), (colour, marker, dashes) in zip(points.items(), styles, strict=False):
        style = {"linestyle": dashes} if joined else {"linestyle": "none", "alpha": 0.65}
        axes.plot(x, y, color=colour, marker=marker, markersize=6.5, linewidth=2, label=label, **style)
    axes.set_xscale("log")
    _style(axes, title, axis, "y")
    if not joined:
        axes.set_yscale("log")
        for each in (axes.xaxis, axes.yaxis):
            label_ratios(each)
        figure.legend(loc="outside lower left", frameon=False, ncols=len(points))
        return figure
    axes.axhline(0, color=GREY, linewidth=1, zorder=1)
    place, (low, high) = math.inf, axes.get_ylim()
    for (label, (x, y)), (colour, *_) in sorted(zip(points.items(), styles, strict=False), key=lambda each: -each[0][1][1][-1]):
        place = min(y[-1], place - (high - low) / 20)
        line = {"arrowstyle": "-", "color": colour, "relpos": (0, 0.5)}
        axes.annotate(label, (x[-1], y[-1]), (1.25 * x[-1], place), va="center", arrowprops=line)
    return figure


def draw_rows(title: str, axis: str, series: Mapping[str, Rows]) -> Figure:
    """Returns one row for each label with a dot and a line in the colour of each series, and a line at 0."""
    labels = list(next(iter(series.values())))
    figure, axes = new_figure(7.2, 1.4 + 0.42 * len(labels))
    axes.axvline(0, color=GREY, linewidth=1, zorder=1)
    for number, ((name, rows), (colour, marker, _)) in enumerate(zip(series.items(), STYLES, strict=False)):
        places = [place + 0.32 * (number - (len(series) - 1) / 2) for place in range(len(labels))]
        dots, low, high = zip(*(rows[label] for label in labels), strict=True)
        axes.hlines(places, low, high, color=colour, linewidth=1.5)
        axes.plot(dots, places, color=colour, marker=marker, markersize=6.5, linestyle="none", label=name)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    _style(axes, title, axis, "x")
    figure.legend(loc="outside lower left", frameon=False, ncols=len(series))
    return figure


def _short(label: str) -> str:
    return label.removesuffix("+infonce").replace(":temperature=", " ")


def _style(axes: Axes, title: str, axis: str, grid: Literal["x", "y"]) -> None:
    axes.set_title(title, loc="left", fontweight="bold", fontsize=11)
    axes.set(xlabel=axis, facecolor="none", axisbelow=True)
    axes.grid(axis=grid, color="#e3e6ec")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)


def length() -> Figure:
    """Returns the picture of `over_length`."""
    title = "nDCG@10, % above or below the best fixed temperature by held-out pairs"
    axis = "passes over the pairs; means over the data sets"
    figure = draw_points(title, axis, over_length(MEASURED["differences_of"](LENGTHS)))
    figure.axes[0].set_xticks([*PASSES.values()], [f"{passes}\n{name}" for name, passes in PASSES.items()])
    figure.axes[0].minorticks_off()
    return figure


def fine_tuning() -> Figure:
    """Returns the picture of `by_arm` for MiniLM."""
    found = by_arm(MEASURED["differences_of"](FINE_TUNED))
    passes = {"short": "half a pass", "recipe": "2 passes", "long": "8 passes"}
    axis = "nDCG@10, % above or below fixed 0.05: mean of five sets, line to the worst"
    return draw_rows("fine-tuning all-MiniLM-L6-v2", axis, {passes[length]: rows for length, rows in found.items()})


def best_temperature() -> Figure:
    """Returns the picture of `best_temperatures`."""
    cells = cells_of(LAW)
    tried = [math.exp(each) for each, _ in cells[0].fixed(cells[0].held_out)]
    axis = f"steps of the training; temperatures from {tried[0]:g} to {tried[-1]:g} were tried"
    title = "best temperature τ by held-out pairs, one point per cell"
    return draw_points(title, axis, best_temperatures(cells), joined=False)


def budgets() -> Figure:
    """Returns the picture of `lost`."""
    axis = "nDCG@10, %: a dot at the mean, and a line from it to the worst cell"
    return draw_rows("what each strategy loses to the best arm of a cell", axis, lost(cells_of(FAIR)))


def negatives() -> Figure:
    """Returns the picture of `gained`."""
    axis = "nDCG@10, %: mean, and 95 % interval over the data sets"
    return draw_rows("gain of each term over none", axis, gained(cells_of(NEGATIVES)))


def centring() -> Figure:
    """Returns the picture of `over_temperature` for the first plan."""
    title = "nDCG@10, % above or below the tuned temperature without centring"
    points = over_temperature(unseen(cells_of(CENTRED[:1])))
    styles = [(*each[:2], dashes) for dashes in ("--", "-") for each in STYLES[: len(points) // 2]]
    figure = draw_points(title, "temperature τ; means over four data sets", points, styles=styles)
    label_ratios(figure.axes[0].xaxis)
    return figure


def last_batch_norm() -> Figure:
    """Returns the picture of `normalised`."""
    points = normalised(load_results(MEASURED["RESULTS"] / "node" / "small").results)
    title = "F1-micro, points above or below the best temperature without normalisation"
    styles = [(*each[:2], dashes) for dashes in ("--", "-") for each in STYLES[: len(points) // 2]]
    figure = draw_points(title, "temperature τ; GRACE on Cora", points, styles=styles)
    label_ratios(figure.axes[0].xaxis)
    return figure


def temperature_rate() -> Figure:
    """Returns the picture of `draw_losses`."""
    title = "nDCG@10, % below the temperature and rate that held-out pairs choose; means over the data sets"
    return draw_losses({plan: cells_of([plan]) for plan in RATES}, title)


def temperature_rate_others() -> Figure:
    """Returns the same of a small BERT, of images and of nodes."""
    title = "nDCG@10 (bert), kNN accuracy (images, nodes), % below the choice on held-out data; means over the data sets"
    return draw_losses({plan: cells_of([plan]) for plan in OTHER_RATES}, title)


def svg(figure: Figure) -> str:
    """Returns a picture as the text of a file."""
    return svg_text(figure, figure.get_suptitle() or figure.axes[0].get_title(loc="left"))


PICTURES = {
    "centring": centring,
    "last-batch-norm": last_batch_norm,
    "length": length,
    "fine-tuning": fine_tuning,
    "best-temperature": best_temperature,
    "budgets": budgets,
    "negatives": negatives,
    "temperature-rate": temperature_rate,
    "temperature-rate-others": temperature_rate_others,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(svg(picture()), encoding="utf-8")
        print(f"wrote {FOLDER / name}.svg")
