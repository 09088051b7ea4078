"""How exact the tiled engine is in float32: against plain formulas in float64, and never worse than those in float32.

And what small temperatures do: sums of exp as they are as long as these keep their digits, around the largest logit beyond.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss

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


def plain(layout: str, logit: Map, a: Tensor, b: Tensor, extra: Tensor | None = None) -> Tensor:
    """The loss as one writes it in plain torch, in the dtype of its inputs; ``extra`` is a queue or hard negatives."""
    a, b = normalize(a), normalize(b)
    rows = torch.arange(len(a))
    if layout == "two-view":
        both = torch.cat([a, b])
        logits = logit(both @ both.T)
        own = torch.eye(len(both), dtype=torch.bool)
        return cross_entropy(logits.masked_fill(own, -torch.inf), torch.cat([rows + len(a), rows]))
    if layout == "queue" and extra is not None:
        return cross_entropy(logit(torch.cat([(a * b).sum(1, keepdim=True), a @ normalize(extra).T], 1)), rows * 0)
    logits = logit(a @ (b if extra is None else torch.cat([b, normalize(extra)])).T)
    if layout.startswith("cross-view"):
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


@pytest.mark.parametrize("temperature", [0.01, 0.02, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "symmetric", "cross-view+hard", "queue"])
@pytest.mark.parametrize(("rows", "dimension"), [(32, 128), (200, 64)])
def test_gradients_of_small_batches_are_not_worse_than_those_of_plain_torch(
    rows: int, dimension: int, layout: str, temperature: float
) -> None:
    loss_fn = loss_of(f"fixed:temperature={temperature}", layout.partition("+")[0])
    given = {"queue": "queue", "cross-view+hard": "hard_negatives"}.get(layout)

    def gradient(ours: bool, dtype: torch.dtype, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        a, noise, extra = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
        leaves = [each.to(dtype).requires_grad_() for each in (a, a + 2 * noise, *([extra] if given else []))]
        inputs = {given: leaves[2]} if given else {}
        value = loss_fn(*leaves[:2], **inputs) if ours else plain(layout, scaled(temperature), *leaves)
        return torch.cat(torch.autograd.grad(value, leaves)).double()

    def error(ours: bool, seed: int) -> float:
        return relative_error(gradient(ours, torch.float32, seed), gradient(False, torch.float64, seed))

    # Of several batches, because which of two roundings is the luckier changes from one to the next.
    found, eager = (statistics.median(error(ours, seed) for seed in range(7)) for ours in (True, False))
    assert found <= max(1.5 * eager, 6e-7)


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


# Per cloud: how to make it, its rows and dimensions.
CLOUDS = {"poles": (poles, 2, 8), "antipodes": (antipodes, 40, 8), "gaussian": (views, 300, 128)}


@pytest.mark.parametrize("layout", ["two-view", "symmetric"])
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_small_temperatures_are_exact(temperature: float, cloud: str, layout: str) -> None:
    make, rows, dimension = CLOUDS[cloud]
    a, b = make(rows, dimension)
    loss_fn = loss_of(f"fixed:temperature={temperature}", layout, objective="dcl")
    ours = value_and_gradient(loss_fn, a, b, torch.float32)
    exact = value_and_gradient(lambda a, b: margin(layout, temperature, a, b), a, b, torch.float64)
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


def test_incoming_gradients_of_any_size_keep_their_digits_at_small_temperatures() -> None:
    a, b = (each.requires_grad_() for each in views(17, 6))
    rows = loss_of("fixed:temperature=0.015", "two-view", reduction="none")(a, b)
    usual = torch.autograd.grad(rows.sum(), [a, b], retain_graph=True)
    for factor in (2.0**-100, 2.0**60):
        for ours, other in zip(torch.autograd.grad((rows * factor).sum(), [a, b], retain_graph=True), usual, strict=True):
            torch.testing.assert_close(ours, other * factor, rtol=1e-5, atol=1e-43)


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
