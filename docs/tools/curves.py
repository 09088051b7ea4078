"""Draws the gallery of ``docs/strategies.md``: the temperature of each strategy, computed by the library, as SVG files.

Run it after a change of a strategy: ``python docs/tools/curves.py``. A test compares what it draws with the files that are
there. Each picture has its own background, light or dark as the reader's system is, so that it can be read on any page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor

import tempplug
from tempplug.strategies.maps import PairTemperatureMap
from tempplug_adapters.figures import COLOURS, svg_text
from tempplug_benchmarks.plot import Curve, curves
from tempplug_benchmarks.report.drawing import label_ratios

FOLDER = Path(__file__).resolve().parents[1] / "images" / "strategies"
SIMILARITY = "similarity s of a pair"
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (4, 1)))


@dataclass(frozen=True)
class Line:
    """A curve: its label, and x and y of its points, [P] each."""

    label: str
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Panel:
    """At most five curves; ``title`` describes y, ``axis`` describes x, and ``log`` chooses a logarithmic y axis."""

    title: str
    axis: str
    lines: Sequence[Line]
    log: bool = False


def of_similarity(labels: dict[str, str]) -> list[Panel]:
    """Returns temperature and slope of the logit over the similarity of a pair, for maps that do not change."""
    found = [(label, spec, curve) for label, spec in labels.items() for curve in curves(spec)]
    drawn = [(label or curve.label.removeprefix(f"{spec}, "), curve) for label, spec, curve in found]
    return [
        Panel("temperature τ", SIMILARITY, [Line(name, each.similarity[::4], each.temperature[::4]) for name, each in drawn]),
        Panel("slope of the logit, dl/ds", SIMILARITY, [_above_zero(name, each) for name, each in drawn], log=True),
    ]


def _above_zero(label: str, curve: Curve) -> Line:
    """Returns the slope where it is positive; a clamped similarity has slope 0, which a logarithmic axis cannot show."""
    slope = curve.gradient[::4]
    return Line(label, curve.similarity[::4][slope > 0], slope[slope > 0])


def scale_of(strategy: tempplug.Strategy, positive_similarity: float = 0.0, labels: Tensor | None = None) -> float:
    """Returns the current temperature of a strategy that has one for all pairs, or one for each row."""
    batch = tempplug.Batch(positive_similarity=torch.tensor([positive_similarity], dtype=torch.float64), labels=labels)
    with torch.no_grad():
        return float(strategy.prepare(batch).temperature(torch.zeros(1, 1, dtype=torch.float64)))


def of_positives(labels: dict[str, str]) -> list[Panel]:
    """Returns the temperature over the mean similarity of the positives."""
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)
    lines = []
    for label, spec in labels.items():
        strategy = tempplug.create_strategy(spec)
        strategy.warned_of_bounds = True  # the floor is part of the picture
        lines.append(Line(label, x, torch.tensor([scale_of(strategy, each) for each in x.tolist()])))
    return [Panel("temperature τ", "mean similarity A of the batch's positives", lines)]


def of_epochs(labels: dict[str, str], clusters: Sequence[int] = (0,)) -> list[Panel]:
    """Returns the temperature over the epochs of a training, for each of the clusters."""
    x = torch.linspace(0, 20, 401, dtype=torch.float64)
    lines = []
    for label, spec in labels.items():
        for cluster in clusters:
            strategy, values = tempplug.create_strategy(spec), []
            for epoch in x.tolist():
                strategy.set_progress(epoch)
                values.append(scale_of(strategy, labels=torch.tensor([cluster])))
            lines.append(Line(label.format(*strategy.options.get("class_counts", ())[cluster:]), x, torch.tensor(values)))
    return [Panel("temperature τ", "epochs done", lines)]


def pairs(noise: float) -> tuple[Tensor, Tensor]:
    """Returns 128 pairs of width 32; more noise makes the positives less similar."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(128, 32, generator=generator, dtype=torch.float64)
    return common, common + noise * torch.randn(128, 32, generator=generator, dtype=torch.float64)


def learned() -> list[Panel]:
    """Returns the learned temperature over the steps of a training of that temperature alone."""
    lines = []
    for label, noise, begins in (("similar positives, from 0.5", 0.5, 0.5), ("less similar, from 0.5", 1.2, 0.5)):
        loss_fn = tempplug.ContrastiveLoss(f"learnable:initial_temperature={begins}", layout="cross-view").double()
        optimizer = torch.optim.Adam(loss_fn.parameters(), lr=0.01)
        a, b = pairs(noise)
        values = []
        for _ in range(501):
            values.append(scale_of(loss_fn.strategy))
            optimizer.zero_grad()
            loss_fn(a, b).backward()
            optimizer.step()
        lines.append(Line(label, torch.arange(501.0), torch.tensor(values)))
    bound = torch.full((2,), 0.01)
    lines.append(Line("bound 1/max_scale", torch.tensor([0.0, 500.0]), bound))
    return [Panel("temperature τ", "steps, the embeddings held", lines, log=True)]


def of_examples(spec: str, objective: str) -> list[Panel]:
    """Returns the mean temperature over steps, of examples in four clusters and of examples without similar ones."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(68, 32, generator=generator, dtype=torch.float64)
    whose = torch.cat([torch.arange(4).repeat(16), torch.arange(4, 68)])
    common = directions[whose] + 0.5 * torch.randn(128, 32, generator=generator, dtype=torch.float64)
    other = common + 0.2 * torch.randn(128, 32, generator=generator, dtype=torch.float64)
    loss_fn = tempplug.ContrastiveLoss(spec, objective, layout="cross-view").double()
    learned, seen = list(loss_fn.parameters()), []
    optimizer = torch.optim.Adam(learned, lr=0.003) if learned else None
    rows = torch.nn.functional.normalize(common)
    batch = tempplug.Batch(rows[:, 0], rows, rows, index=torch.arange(128))
    for _ in range(301):
        seen.append(loss_fn.strategy.prepare(batch).temperature(torch.zeros(128, dtype=torch.float64)).clone())
        loss = loss_fn(common, other, index=torch.arange(128))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    course, x = torch.stack(seen), torch.arange(301.0)
    lines = [
        Line("64 examples of four crowds, mean", x, course[:, :64].mean(1)),
        Line("64 examples like no other, mean", x, course[:, 64:].mean(1)),
    ]
    return [Panel("temperature τ", "steps, the embeddings held", lines)]


def of_products() -> list[Panel]:
    """Returns the temperature of a pair over the product of its two rows after the learned layer."""
    x = torch.linspace(-6, 6, 241, dtype=torch.float64)
    specs = {"as it comes": "amcl:dimension=32", "span=1,floor=0.2": "amcl:dimension=32,span=1,floor=0.2"}
    made = {label: tempplug.create_strategy(spec).options for label, spec in specs.items()}
    lines = [Line(label, x, PairTemperatureMap.temperature_at(x, of["span"], of["floor"])) for label, of in made.items()]
    return [Panel("temperature τ", "product ⟨φ(zᵢ), φ(zⱼ)⟩ of a pair", lines)]


def pictures() -> dict[str, list[Panel]]:
    """Returns the panels of every strategy, by name."""
    dystress = {name: f"dystress:profile={name}" for name in ("cosine", "linear", "exponential", "monotonic")}
    dystress["shifted"] = "dystress:profile=shifted,shift=-0.4"
    macl = {"as it comes": "macl", "SimCSE's": "macl:base_temperature=0.05,alpha=2,threshold=0.8", "alpha=1": "macl:alpha=1"}
    return {
        "fixed": of_similarity({f"τ = {value}": f"fixed:temperature={value}" for value in (0.05, 0.1, 0.5)}),
        "learnable": learned(),
        "macl": of_positives(macl),
        "dystress": of_similarity(dystress),
        "temperature-free": of_similarity({"temperature-free": "temperature-free", "fixed, τ = 0.5": "fixed:temperature=0.5"}),
        "schedule": of_epochs({name: f"schedule:shape={name},period=10" for name in ("cosine", "triangle", "step", "random")}),
        "head-tail": of_similarity({"": "head-tail:class_counts=450/270/162"}),
        "amcl": of_products(),
        "individual": of_examples("individual:size=128", "sogclr:size=128"),
        "tempnet": of_examples("tempnet:dimension=32,temperature_min=0.05,temperature_max=1", "sogclr:size=128,rho=0.3"),
        "mm-ts": of_epochs({"cluster of {}": "mm-ts:class_counts=450/270/162,period=10"}, clusters=(0, 1, 2)),
        "uncertainty": of_similarity({"": "uncertainty"}),
        "by-group": of_similarity({"": "by-group:temperatures=0.05/0.1/0.2"}),
    }


@rc_context({"path.simplify": False, "font.size": 10})
def svg(panels: Sequence[Panel]) -> str:
    """Returns a picture of one panel or two, side by side, with one legend."""
    most = max(len(panel.lines) for panel in panels)
    figure = Figure(figsize=(4.4 * len(panels), 3 + 0.2 * most), facecolor="white", layout="constrained")
    for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        for line, colour, dashes in zip(panel.lines, COLOURS, DASHES, strict=False):
            axes.plot(line.x.numpy(), line.y.numpy(), color=colour, linestyle=dashes, linewidth=2, label=line.label)
        axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=11)
        axes.set(xlabel=panel.axis, facecolor="none", **({"yscale": "log"} if panel.log else {}))
        axes.grid(axis="y", color="#e3e6ec")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
        if panel.log:
            decades = math.log10(axes.dataLim.y1 / axes.dataLim.y0)
            label_ratios(axes.yaxis, factors=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,))
        else:
            axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", frameon=False, handlelength=3.4)
    return svg_text(figure, " and ".join(f"{panel.title} over {panel.axis}" for panel in panels))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, panels in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg(panels), encoding="utf-8")
        print(f"wrote {FOLDER / name}.svg")
