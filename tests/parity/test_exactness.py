"""How exact the tiled engine is in float32: against plain formulas in float64, and never worse than those in float32.

And what small temperatures do: a static shift as long as sums keep their digits, the dense formulas slab by slab beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss
from tempplug.engine import tiled
from tempplug.types import RowStatistics

Map = Callable[[Tensor], Tensor]
Cloud = Callable[[int, int], tuple[Tensor, Tensor]]
TEMPERATURES = [0.02, 0.0138, 0.0125, 0.01, 0.007, 0.005, 0.002]


def scaled(temperature: float) -> Map:
    return lambda s: s / temperature


def dystress(s: Tensor) -> Tensor:
    temperature = 0.1 + 0.1 * 0.5 * (1 + torch.cos(math.pi * (1 + s.detach())))
    return s / temperature


def log_odds(s: Tensor) -> Tensor:
    clamped = s.clamp(-1 + 1e-4, 1 - 1e-4)
    return torch.log((1 + clamped) / (1 - clamped))


def plain(layout: str, logit: Map, a: Tensor, b: Tensor) -> Tensor:
    """The loss as one writes it in plain torch, in the dtype of its inputs."""
    a, b = normalize(a), normalize(b)
    rows = torch.arange(len(a))
    if layout == "two-view":
        both = torch.cat([a, b])
        logits = logit(both @ both.T)
        own = torch.eye(len(both), dtype=torch.bool)
        return cross_entropy(logits.masked_fill(own, -torch.inf), torch.cat([rows + len(a), rows]))
    logits = logit(a @ b.T)
    if layout == "cross-view":
        return cross_entropy(logits, rows)
    return (cross_entropy(logits, rows) + cross_entropy(logits.T, rows)) / 2


def loss_of(strategy: str, layout: str, **options: Any) -> ContrastiveLoss:
    name = "cross-view" if layout == "symmetric" else layout
    return ContrastiveLoss(strategy, layout=name, symmetric=layout == "symmetric", engine="tiled", **options)


def value_and_gradient(loss_fn: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The loss [] and the gradients of both views, one behind the other, in float64."""
    leaves = [each.to(dtype).requires_grad_() for each in (a, b)]
    loss = loss_fn(*leaves)
    return [loss.detach().double(), torch.cat(torch.autograd.grad(loss, leaves)).double()]


def relative_error(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).abs().max() / exact.abs().max()).item()


def views(rows: int, dimension: int, noise: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + dimension)
    a = torch.randn(rows, dimension, generator=generator)
    return a, a + noise * torch.randn(rows, dimension, generator=generator)


def cone(rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Views of mean cosine 0.9, as they are early in training."""
    generator = torch.Generator().manual_seed(1)
    center = torch.randn(dimension, generator=generator)
    a, b = (center + 0.33 * torch.randn(rows, dimension, generator=generator) for _ in range(2))
    assert 0.88 < (normalize(a) @ normalize(b).T).mean().item() < 0.92
    return a, b


@pytest.mark.parametrize("rows", [64, 700])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "symmetric"])
@pytest.mark.parametrize(
    ("strategy", "logit"),
    [
        ("fixed:temperature=0.05", scaled(0.05)),
        ("fixed:temperature=0.1", scaled(0.1)),
        ("fixed:temperature=0.5", scaled(0.5)),
        ("dystress", dystress),
        ("temperature-free", log_odds),
    ],
    ids=["0.05", "0.1", "0.5", "dystress", "temperature-free"],
)
def test_gradients_are_right_to_1e_6_and_not_worse_than_plain_torch(strategy: str, logit: Map, layout: str, rows: int) -> None:
    a, b = views(rows, 128)
    exact = value_and_gradient(lambda a, b: plain(layout, logit, a, b), a, b, torch.float64)
    eager = value_and_gradient(lambda a, b: plain(layout, logit, a, b), a, b, torch.float32)
    ours = value_and_gradient(loss_of(strategy, layout), a, b, torch.float32)
    assert relative_error(ours[1], exact[1]) <= min(1e-6, relative_error(eager[1], exact[1]))
    assert ours[0].item() == pytest.approx(exact[0].item(), rel=1e-6)


def poles(rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Two rows, as good as opposite: every negative lies at the far end of the range."""
    generator = torch.Generator().manual_seed(2)
    up = torch.randn(dimension, generator=generator)
    a, b = (torch.stack([up, -up]) + 0.05 * torch.randn(2, dimension, generator=generator) for _ in range(2))
    return a, b


def antipodes(rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Every positive is as good as opposite."""
    a, _ = views(rows, dimension)
    return a, -a + 0.01 * a.roll(1, 0)


def margin(layout: str, temperature: float, a: Tensor, b: Tensor) -> Tensor:
    """Mean of the negatives' log-sum-exp minus the positive logit: its gradient does not fade where positives win."""
    a, b = normalize(a), normalize(b)
    if layout == "two-view":
        a, b = torch.cat([a, b]), torch.cat([b, a])
        logits, apart = a @ a.T / temperature, torch.eye(len(a), dtype=torch.bool)
        apart |= apart.roll(len(a) // 2, 0)
    else:
        logits, apart = a @ b.T / temperature, torch.eye(len(a), dtype=torch.bool)
    rows = logits.masked_fill(apart, -torch.inf).logsumexp(1)
    columns = logits.masked_fill(apart, -torch.inf).logsumexp(0)
    return ((rows + columns) / 2 - (a * b).sum(1) / temperature).mean()


# Per cloud: how to make it, its rows and dimensions, and down to which temperature its sums are exact without a maximum.
CLOUDS = {"poles": (poles, 2, 8, 0.02), "antipodes": (antipodes, 40, 8, 0.005), "gaussian": (views, 300, 128, 0.007)}


@pytest.mark.parametrize("layout", ["two-view", "symmetric"])
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_small_temperatures_are_exact_on_both_paths(
    temperature: float, cloud: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, rows, dimension, smallest = CLOUDS[cloud]
    a, b = make(rows, dimension)
    by_slabs = []

    def watched(*arguments: Any) -> RowStatistics:
        by_slabs.append(arguments)
        return slabs(*arguments)

    slabs = tiled._by_slabs
    monkeypatch.setattr(tiled, "_by_slabs", watched)
    loss_fn = loss_of(f"fixed:temperature={temperature}", layout, objective="dcl")
    ours = value_and_gradient(loss_fn, a, b, torch.float32)
    exact = value_and_gradient(lambda a, b: margin(layout, temperature, a, b), a, b, torch.float64)
    assert bool(by_slabs) == (temperature < smallest)
    # Half a unit in the last place of a similarity is 6e-8; a logit is that much off times the scale.
    tolerance = 1e-7 / temperature
    assert ours[0].item() == pytest.approx(exact[0].item(), rel=1e-6)
    assert relative_error(ours[1], exact[1]) <= tolerance


@pytest.mark.parametrize("upstream", [1e-8, 1e-4, 1.0, 1e4, 1e10])
@pytest.mark.parametrize(("make", "temperature"), [(cone, 0.05), (cone, 0.0125), (cone, 0.01), (poles, 0.02), (poles, 0.015)])
def test_size_of_the_upstream_gradient_does_not_matter(make: Cloud, temperature: float, upstream: float) -> None:
    """A weight of the loss, or a scaler's factor, must not make its quotient by very large or small sums leave the range."""
    a, b = make(300, 64)
    loss_fn = loss_of(f"fixed:temperature={temperature}", "two-view", objective="dcl")
    ours = value_and_gradient(lambda a, b: loss_fn(a, b) * upstream, a, b, torch.float32)
    exact = value_and_gradient(lambda a, b: margin("two-view", temperature, a, b), a, b, torch.float64)
    assert relative_error(ours[1] / upstream, exact[1]) <= 1e-5


@pytest.mark.parametrize("layout", ["two-view", "cross-view", "symmetric"])
def test_no_gradient_is_filtered(layout: str) -> None:
    """In a cone all softmax weights are near 1/N: who skips what is small skips everything."""
    a, b = cone(1500, 32)
    ours = value_and_gradient(loss_of("fixed:temperature=0.1", layout), a, b, torch.float32)
    exact = value_and_gradient(lambda a, b: plain(layout, scaled(0.1), a, b), a, b, torch.float64)
    assert (ours[1] != 0).any(1).all()
    lengths = torch.linalg.vector_norm(exact[1], dim=1)
    errors = torch.linalg.vector_norm(ours[1] - exact[1], dim=1)
    assert (errors / lengths).max().item() <= 1e-5
