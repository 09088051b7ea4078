"""The command ``tempplug plot``: temperature, logit and gradient against similarity, for any spec strings.

All inputs that a strategy may use are put into one batch. A map that differs between anchors is drawn once for each distinct
anchor. This module must not depend on any particular strategy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tempplug import Batch, LogitMap, Strategy, create_strategy
from tempplug.errors import ConfigError
from tempplug.parser import Parser
from tempplug_benchmarks.report.drawing import COLOURS, STYLE, THEME, label_ratios, save

FORMATS = (".png", ".svg", ".pdf")
POINTS = 801
UNCERTAINTIES = (-2.0, 0.0, 2.0)
_DASHES: tuple[tuple[float, tuple[float, ...] | None], ...] = ((0, None), (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))


@dataclass(frozen=True)
class Curve:
    """The response of one strategy to similarity.

    Attributes:
        label: the spec string, followed by the anchor if the map differs between anchors.
        similarity: [P], from -1 to 1.
        temperature: [P].
        logit: [P], nats.
        gradient: [P], nats per unit of similarity.
    """

    label: str
    similarity: Tensor
    temperature: Tensor
    logit: Tensor
    gradient: Tensor


def curves(spec: str, positive_similarity: float = 0.8, epoch: float = 0.0) -> list[Curve]:
    """Returns the curve of a strategy, or one for each distinct anchor if the map differs between anchors.

    Args:
        spec: spec string of a strategy.
        positive_similarity: mean similarity of the positives, in [-1, 1], for strategies that depend on it.
        epoch: at least 0, for strategies that depend on the epoch.

    Raises:
        ConfigError: a number is out of range, or the strategy needs embeddings or another input that a plot cannot provide.
        UnknownNameError: the strategy or an option is unknown.

    >>> [curve.label for curve in curves("head-tail:class_counts=450/270/162")]
    ['head-tail:class_counts=450/270/162, classes 0, 1', 'head-tail:class_counts=450/270/162, class 2']
    """
    if not -1 <= positive_similarity <= 1:
        raise ConfigError(f"positive_similarity={positive_similarity:g} of a plot must be at least -1 and at most 1.")
    if not (math.isfinite(epoch) and epoch >= 0):
        raise ConfigError(f"epoch={epoch:g} of a plot must be a finite number of at least 0.")
    strategy = create_strategy(spec)
    strategy.set_progress(epoch)
    names, batch = _batch(strategy, positive_similarity)
    try:
        whole = strategy.prepare(batch)
    except ConfigError as error:
        raise ConfigError(f"'{spec}' cannot be drawn as a curve over similarity alone: {error}") from error
    if whole.uniform:
        return [_curve(spec, whole)]
    found: dict[tuple[float, ...], tuple[Curve, list[str]]] = {}
    for row, name in enumerate(names):
        curve = _curve(spec, whole.restrict(slice(row, row + 1), slice(0, POINTS)))
        found.setdefault(tuple(curve.logit.tolist()), (curve, []))[1].append(name)
    return [replace(curve, label=f"{spec}, {_together(anchors)}") for curve, anchors in found.values()]


@rc_context(STYLE)
def draw(found: Sequence[Curve], out: Path, caption: str) -> None:
    """Writes a figure with three panels: temperature, logit and gradient against similarity.

    Args:
        found: at least one curve.
        out: path ending in .png, .svg or .pdf; missing folders are created.
        caption: one line above the legend.

    Raises:
        ConfigError: the path has another ending.
        DataError: the file cannot be written.
    """
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(f"output={out} of a plot must end in {', '.join(FORMATS)}.")
    columns = 1 if max(len(curve.label) for curve in found) > 60 else 2
    height = 4.2 + 0.22 * math.ceil(len(found) / columns)
    figure = Figure(figsize=(12.6, height), layout="constrained")
    panels = figure.subplots(1, 3)
    for position, curve in enumerate(found):
        style = {"color": COLOURS[position % len(COLOURS)], "linestyle": _DASHES[position % len(_DASHES)], "linewidth": 2.2}
        for panel, values in zip(panels, (curve.temperature, curve.logit, curve.gradient), strict=True):
            panel.plot(curve.similarity.numpy(), values.numpy(), label=curve.label, **style)
    names = (("temperature", "τ"), ("logit", "l, nats"), ("gradient of the logit", "dl/ds, nats per unit of similarity"))
    for panel, (name, unit) in zip(panels, names, strict=True):
        panel.set(title=name, xlabel="similarity s", ylabel=unit, xlim=(-1, 1), xticks=(-1, -0.5, 0, 0.5, 1))
    panels[0].set_ylim(bottom=0)
    _scale_gradient(panels[2], torch.cat([curve.gradient for curve in found]))
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, title=caption, loc="outside lower center", ncols=columns, fontsize=10, handlelength=3.4
    )
    legend.get_title().set(fontsize=9, color=THEME["soft"])
    save(figure, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns 0.

    Args:
        arguments: command-line arguments after ``tempplug plot``; None uses those of the process.

    Raises:
        TempplugError: the command failed.
    """
    parser = Parser(
        prog="tempplug plot",
        description="Draw temperature, logit and gradient against similarity.",
        epilog="example: tempplug plot fixed:temperature=0.1 macl temperature-free dystress --output curves.png",
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC", help="spec string of a strategy; `tempplug list` shows the names")
    add = parser.add_argument
    add("--output", type=Path, default=Path("curves.png"), metavar="FILE", help=".png, .svg or .pdf (curves.png)")
    mean = "mean similarity of the positives, in [-1, 1], for strategies that follow it (0.8)"
    add("--positive-similarity", type=float, default=0.8, metavar="A", help=mean)
    add("--epoch", type=float, default=0.0, metavar="E", help="for strategies that follow training (0)")
    options = parser.parse_args(arguments)
    found = [curve for spec in options.specs for curve in curves(spec, options.positive_similarity, options.epoch)]
    caption = f"drawn at a mean positive similarity of {options.positive_similarity:g} and epoch {options.epoch:g}"
    draw(found, options.output, caption)
    print(f"wrote {options.output}")
    return 0


def _batch(strategy: Strategy, positive_similarity: float) -> tuple[list[str], Batch]:
    """Returns the names of the anchors, and a batch with every input that does not require embeddings."""
    counts, groups = (strategy.options.get(name) for name in ("class_counts", "temperatures"))
    word, table = ("class", counts) if counts else ("group", groups)
    names = [f"{word} {number}" for number in range(len(table))] if table else [f"u = {u:g}" for u in UNCERTAINTIES]
    batch = Batch(
        positive_similarity=torch.full((len(names),), positive_similarity, dtype=torch.float64),
        labels=torch.arange(len(names)) if counts else None,
        groups=torch.arange(len(names)) if groups else None,
        uncertainty=None if table else torch.tensor(UNCERTAINTIES, dtype=torch.float64),
    )
    return names, batch


def _scale_gradient(panel: Axes, gradients: Tensor) -> None:
    """Uses a logarithmic scale, since log-odds reach 2/eps near s = ±1, unless a gradient is negative."""
    if bool((gradients < 0).any()):
        return
    panel.set_yscale("log", nonpositive="mask")  # leaves a gap where a gradient is 0, outside a clamp
    positive = gradients[gradients > 0]
    decades = math.log10(float(positive.max() / positive.min()))
    label_ratios(panel.yaxis, factors=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,))


def _curve(label: str, logit_map: LogitMap) -> Curve:
    similarity = torch.linspace(-1, 1, POINTS, dtype=torch.float64)
    with torch.no_grad():
        values = [values(similarity[None])[0] for values in (logit_map.temperature, logit_map.logit, logit_map.slope)]
    return Curve(label, similarity, *values)


def _together(anchors: Sequence[str]) -> str:
    """Joins ``class 0`` and ``class 1`` to ``classes 0, 1``; a single name is returned unchanged."""
    if len(anchors) == 1:
        return anchors[0]
    return "classes " + ", ".join(name.removeprefix("class ") for name in anchors)
