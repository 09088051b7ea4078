"""Draws the gallery of ``docs/strategies.md``: the temperature of each strategy, computed by the library, as SVG files.

Run it after a change of a strategy: ``python docs/tools/curves.py``. A test compares what it draws with the files that are
there. Each picture brings its own background, light or dark as the reader's system is, so that it can be read on any page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import torch
from torch import Tensor

import tempplug
from tempplug.strategies.maps import PairTemperatureMap
from tempplug_benchmarks.plot import Curve, curves

FOLDER = Path(__file__).resolve().parents[1] / "images" / "strategies"
WIDTH, HEIGHT, LEFT, TOP, PLOT = 420, 300, 58, 44, (340, 200)
SIMILARITY = "similarity s of a pair"
STYLE = """\
svg{color-scheme:light dark}.back{fill:#fff}text{font:13px system-ui,sans-serif;fill:#1c2430}.title{font-weight:600}
.grid{stroke:#e3e6ec}.line{fill:none;stroke-width:2.4}
.c0{stroke:#2563a8}.c1{stroke:#d9622b}.c2{stroke:#2f8f5b}.c3{stroke:#8a4fae}.c4{stroke:#8b6d1f}
.d1{stroke-dasharray:9 4}.d2{stroke-dasharray:3 3}.d3{stroke-dasharray:10 4 2 4}.d4{stroke-dasharray:7 2 2 2}
@media(prefers-color-scheme:dark){.back{fill:#1e2129}text{fill:#e2e6ee}.grid{stroke:#3a4150}
.c0{stroke:#6ea8ec}.c1{stroke:#f0905f}.c2{stroke:#62c48e}.c3{stroke:#c08ee0}.c4{stroke:#d0b25a}}"""


@dataclass(frozen=True)
class Line:
    """A curve: its label, and x and y of its points, [P] each."""

    label: str
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Panel:
    """Curves over one axis.

    Attributes:
        title: what y is.
        axis: what x is.
        lines: at most five.
        log: whether equal ratios of y are equal steps.
    """

    title: str
    axis: str
    lines: Sequence[Line]
    log: bool = False


def of_similarity(labels: dict[str, str]) -> list[Panel]:
    """Temperature and slope of the logit over the similarity of a pair, of strategies whose map does not move."""
    found = [(label, spec, curve) for label, spec in labels.items() for curve in curves(spec)]
    drawn = [(label or curve.label.removeprefix(f"{spec}, "), curve) for label, spec, curve in found]
    return [
        Panel("temperature τ", SIMILARITY, [Line(name, each.similarity[::4], each.temperature[::4]) for name, each in drawn]),
        Panel("slope of the logit, dl/ds", SIMILARITY, [_above_zero(name, each) for name, each in drawn], log=True),
    ]


def _above_zero(label: str, curve: Curve) -> Line:
    """The slope where it is one: a clamped similarity has none, and a logarithm no place for it."""
    slope = curve.gradient[::4]
    return Line(label, curve.similarity[::4][slope > 0], slope[slope > 0])


def scale_of(strategy: tempplug.Strategy, positive_similarity: float = 0.0, labels: Tensor | None = None) -> float:
    """The temperature that a strategy with one for all pairs, or for all of one row, has now."""
    batch = tempplug.Batch(positive_similarity=torch.tensor([positive_similarity], dtype=torch.float64), labels=labels)
    with torch.no_grad():
        return float(strategy.prepare(batch).temperature(torch.zeros(1, 1, dtype=torch.float64)))


def of_positives(labels: dict[str, str]) -> list[Panel]:
    """Temperature over the mean similarity of the positives."""
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)
    lines = []
    for label, spec in labels.items():
        strategy = tempplug.create_strategy(spec)
        strategy.warned_of_bounds = True  # the floor is part of the picture
        lines.append(Line(label, x, torch.tensor([scale_of(strategy, each) for each in x.tolist()])))
    return [Panel("temperature τ", "mean similarity A of the batch's positives", lines)]


def of_epochs(labels: dict[str, str], clusters: Sequence[int] = (0,)) -> list[Panel]:
    """Temperature over the epochs of a training, of each cluster where it differs."""
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
    """128 generated pairs of width 32; more noise makes the positives less similar."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(128, 32, generator=generator, dtype=torch.float64)
    return common, common + noise * torch.randn(128, 32, generator=generator, dtype=torch.float64)


def learned() -> list[Panel]:
    """The one learned temperature over the steps of a training that moves nothing else."""
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
    """The mean temperature, over steps, of examples in four clusters and of examples without similar ones."""
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
    """The temperature of a pair over the product of what the learned layer makes of its two rows."""
    x = torch.linspace(-6, 6, 241, dtype=torch.float64)
    specs = {"as it comes": "amcl:dimension=32", "span=1,floor=0.2": "amcl:dimension=32,span=1,floor=0.2"}
    made = {label: tempplug.create_strategy(spec).options for label, spec in specs.items()}
    lines = [Line(label, x, PairTemperatureMap.temperature_at(x, of["span"], of["floor"])) for label, of in made.items()]
    return [Panel("temperature τ", "product ⟨φ(zᵢ), φ(zⱼ)⟩ of a pair", lines)]


def pictures() -> dict[str, list[Panel]]:
    """The panels of every strategy, by its name."""
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
    }


def svg(panels: Sequence[Panel]) -> str:
    """A picture of one panel or two, side by side."""
    most = max(len(panel.lines) for panel in panels)
    width, height = WIDTH * len(panels), HEIGHT + 20 * most
    words = " and ".join(f"{panel.title} over {panel.axis}" for panel in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(words)}</title><style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}" rx="8"/>',
    ]
    for place, panel in enumerate(panels):
        parts += [f'<g transform="translate({WIDTH * place} 0)">', *_panel(panel, legend=place == 0), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, legend: bool) -> list[str]:
    values = torch.cat([line.y for line in panel.lines]).double()
    low, high = (float(values.min()), float(values.max())) if panel.log else (0.0, float(values.max()) * 1.08)
    marks = _decades(low, high) if panel.log else _round(low, high)
    low, high = (min(low, marks[0]), max(high, marks[-1])) if panel.log else (low, high)
    places = torch.cat([line.x for line in panel.lines])
    left, right = float(places.min()), float(places.max())
    width, height = PLOT

    def across(x: float) -> float:
        return LEFT + width * (x - left) / (right - left)

    def up(y: float) -> float:
        share = math.log(y / low) / math.log(high / low) if panel.log else (y - low) / (high - low)
        return TOP + height * (1 - share)

    parts = [f'<text class="title" x="{LEFT}" y="26">{escape(panel.title)}</text>']
    for mark in marks:
        parts.append(f'<path class="grid" d="M{LEFT} {up(mark):.1f}h{width}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for mark in _round(left, right):
        parts.append(f'<text x="{across(mark):.1f}" y="{TOP + height + 20}" text-anchor="middle">{mark:g}</text>')
    parts.append(f'<text x="{LEFT + width / 2:g}" y="{TOP + height + 40}" text-anchor="middle">{escape(panel.axis)}</text>')
    for number, line in enumerate(panel.lines):
        style = f'class="line c{number} d{number}"'
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True))
        parts.append(f'<polyline {style} points="{points}"/>')
        if legend:
            below = TOP + height + 60 + 20 * number
            parts.append(
                f'<path {style} d="M{LEFT} {below - 4}h34"/><text x="{LEFT + 44}" y="{below}">{escape(line.label)}</text>'
            )
    return parts


def _round(low: float, high: float) -> list[float]:
    """Three to six round numbers between two ends."""
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(each for each in (step / 5, step / 2, step, 2 * step) if (high - low) / each <= 5)
    return [step * each for each in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten that enclose two ends, or 1, 2, 5 of each where that is one decade or two."""
    first, last = math.floor(math.log10(low) + 1e-6), math.ceil(math.log10(high) - 1e-6)
    if last - first > 2:
        return [10.0**each for each in range(first, last + 1)]
    every = [part * 10.0**each for each in range(first, last + 1) for part in (1, 2, 5)]
    return [each for n, each in enumerate(every) if every[min(n + 1, len(every) - 1)] > low and every[max(n - 1, 0)] < high]


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, panels in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg(panels), encoding="utf-8")
        print(f"wrote {FOLDER / name}.svg")
