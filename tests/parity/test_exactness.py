"""How exact the loss is: the formulas of plain torch in float64, and in float32 never worse than those.

And what small temperatures do: sums of exp as they are as long as these keep their digits, around the largest logit beyond.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest
import torch
from covering import every_pair
from plain_losses import PLAIN, Map, leaves_of, ours, value_and_gradient
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.engine import gemm

Cloud = Callable[[int, int], list[Tensor]]
TEMPERATURES = [0.02, 0.0138, 0.0125, 0.01, 0.007, 0.005, 0.002]


def scaled(temperature: float) -> Map:
    return lambda s: s / temperature


def dystress(s: Tensor) -> Tensor:
    temperature = 0.1 + 0.1 * 0.5 * (1 + torch.cos(math.pi * (1 + s.detach())))
    return s / temperature


def log_odds(s: Tensor) -> Tensor:
    clamped = s.clamp(-1 + 1e-4, 1 - 1e-4)
    return torch.log((1 + clamped) / (1 - clamped))


def plain(name: str, logit: Map) -> Callable[..., Tensor]:
    return lambda *leaves: PLAIN[name](logit, *leaves)


def worst(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).abs().max() / exact.abs().max()).item()


def overall(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("name", PLAIN)
def test_fixed_is_the_loss_that_users_write_by_hand(name: str, dtype: torch.dtype, tolerance: float) -> None:
    leaves = leaves_of(name, 13, 5)
    loss_fn = ours(name, "fixed:temperature=0.2")
    expected = value_and_gradient(plain(name, scaled(0.2)), leaves, torch.float64)
    for found, exact in zip(value_and_gradient(loss_fn, leaves, dtype), expected, strict=True):
        assert (found - exact).abs().max().item() <= tolerance * max(1.0, exact.abs().max().item())
    assert loss_fn(*(each.to(dtype) for each in leaves)).dtype == dtype


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.2", "temperature-free", "dystress"])
def test_logits_are_those_of_the_cross_view_loss(strategy: str) -> None:
    a, b = (each.double() for each in leaves_of("cross-view", 13, 5))
    loss_fn = ContrastiveLoss(strategy, layout="cross-view")
    logits = loss_fn.logits(a, b)
    assert logits.shape == (13, 13)
    assert abs((loss_fn(a, b) - torch.nn.functional.cross_entropy(logits, torch.arange(13))).item()) <= 1e-12


MAPS = {f"fixed:temperature={each}": scaled(each) for each in (0.05, 0.1, 0.5)}


@pytest.mark.parametrize(
    ("strategy", "name", "rows"),
    every_pair([*MAPS, "dystress", "temperature-free"], ["two-view", "cross-view", "symmetric"], [64, 700]),
)
def test_gradients_are_right_to_1e_6_and_not_worse_than_plain_torch(strategy: str, name: str, rows: int) -> None:
    leaves = leaves_of(name, rows, 128)
    formula = plain(name, (MAPS | {"dystress": dystress, "temperature-free": log_odds})[strategy])
    value, exact = value_and_gradient(formula, leaves, torch.float64)
    _, eager = value_and_gradient(formula, leaves, torch.float32)
    found, gradient = value_and_gradient(ours(name, strategy, "tiled"), leaves, torch.float32)
    assert worst(gradient, exact) <= min(1e-6, worst(eager, exact))
    assert found.item() == pytest.approx(value.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("temperature", "name", "size"),
    every_pair(
        [0.01, 0.05, 0.5],
        ["two-view", "cross-view", "symmetric", "cross-view+hard", "queue"],
        [(32, 128), (200, 64)],
    ),
)
def test_gradients_of_small_batches_are_not_worse_than_those_of_plain_torch(
    temperature: float, name: str, size: tuple[int, int]
) -> None:
    both = ours(name, f"fixed:temperature={temperature}", "tiled"), plain(name, scaled(temperature))

    def errors(seed: int) -> list[float]:
        leaves = leaves_of(name, *size, seed)
        _, exact = value_and_gradient(both[1], leaves, torch.float64)
        return [worst(value_and_gradient(each, leaves, torch.float32)[1], exact) for each in both]

    # Of several batches, because which of two roundings is the luckier changes from one to the next.
    found, eager = (statistics.median(each) for each in zip(*map(errors, range(7)), strict=True))
    assert found <= max(1.5 * eager, 6e-7)


@pytest.mark.parametrize(
    ("name", "temperature", "rows"),
    every_pair(["labels+one view", "masks", "masks+one positive"], [0.05, 0.1, 0.5], [64, 700]),
)
def test_gradients_of_labels_and_masks_are_as_exact_as_those_of_plain_torch(
    name: str, temperature: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the products that plain torch takes; the faster ones of some processors round a little more."""
    leaves, formula = leaves_of(name, rows, 64), plain(name, scaled(temperature))
    loss_fn = ours(name, f"fixed:temperature={temperature}")
    value, exact = value_and_gradient(formula, leaves, torch.float64)
    found, gradient = value_and_gradient(loss_fn, leaves, torch.float32)
    assert found.item() == pytest.approx(value.item(), rel=1e-6)
    assert worst(gradient, exact) <= 2e-6
    monkeypatch.setattr(gemm, "product_route", lambda: "mm")
    eager = overall(value_and_gradient(formula, leaves, torch.float32)[1], exact)
    assert overall(value_and_gradient(loss_fn, leaves, torch.float32)[1], exact) <= 1.5 * eager


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.5])
def test_error_of_reduced_precision_is_not_above_that_of_plain_torch(temperature: float, dtype: torch.dtype) -> None:
    """Both start from the same rounded embeddings; plain torch then computes in the dtype that it was given."""
    leaves = [each.to(dtype) for each in leaves_of("cross-view", 33, 16, noise=0.7)]
    exact, largest = value_and_gradient(plain("cross-view", scaled(temperature)), leaves, torch.float64)
    found = value_and_gradient(ours("cross-view", f"fixed:temperature={temperature}"), leaves, dtype)
    eager = value_and_gradient(plain("cross-view", scaled(temperature)), leaves, dtype)
    epsilon = torch.finfo(torch.float32).eps
    assert abs(found[0] - exact) <= abs(eager[0] - exact) + 2 * epsilon * max(1.0, exact.item())
    our_error, plain_error = ((each[1] - largest).abs().max().item() for each in (found, eager))
    assert our_error <= plain_error + 2 * max(epsilon, torch.finfo(dtype).eps / 2) * largest.abs().max().item()


def cone(rows: int, dimension: int) -> list[Tensor]:
    """Views of mean cosine 0.9, as they are early in training."""
    generator = torch.Generator().manual_seed(1)
    center = torch.randn(dimension, generator=generator)
    a, b = (center + 0.33 * torch.randn(rows, dimension, generator=generator) for _ in range(2))
    assert 0.88 < (normalize(a) @ normalize(b).T).mean().item() < 0.92
    return [a, b]


def poles(rows: int, dimension: int) -> list[Tensor]:
    """Two rows, as good as opposite: every negative lies at the far end of the range."""
    generator = torch.Generator().manual_seed(2)
    up = torch.randn(dimension, generator=generator)
    return [torch.stack([up, -up]) + 0.05 * torch.randn(2, dimension, generator=generator) for _ in range(2)]


def antipodes(rows: int, dimension: int) -> list[Tensor]:
    """Every positive is as good as opposite."""
    a, _ = leaves_of("two-view", rows, dimension)
    return [a, -a + 0.01 * a.roll(1, 0)]


def gaussian(rows: int, dimension: int) -> list[Tensor]:
    return leaves_of("two-view", rows, dimension)


def margin(name: str, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean of the negatives' log-sum-exp minus the positive logit: its gradient does not fade where positives win."""

    def loss(a: Tensor, b: Tensor) -> Tensor:
        a, b = normalize(a), normalize(b)
        apart = torch.eye(len(a), dtype=torch.bool)
        if name == "two-view":
            a, b = torch.cat([a, b]), torch.cat([b, a])
            apart = apart.repeat(2, 2)
        logits = a @ (a if name == "two-view" else b).T / temperature
        rows, columns = (logits.masked_fill(apart, -torch.inf).logsumexp(each) for each in (1, 0))
        return ((rows + columns) / 2 - (a * b).sum(1) / temperature).mean()

    return loss


CLOUDS = [(poles, 2, 8), (antipodes, 40, 8), (gaussian, 300, 128)]


@pytest.mark.parametrize(("temperature", "cloud", "name"), every_pair(TEMPERATURES, CLOUDS, ["two-view", "symmetric"]))
def test_small_temperatures_are_exact(
    temperature: float, cloud: tuple[Callable[..., list[Tensor]], int, int], name: str
) -> None:
    make, rows, dimension = cloud
    leaves = make(rows, dimension)
    loss_fn = ours(name, f"fixed:temperature={temperature}", "tiled", "dcl")
    found, gradient = value_and_gradient(loss_fn, leaves, torch.float32)
    value, exact = value_and_gradient(margin(name, temperature), leaves, torch.float64)
    # Half a unit in the last place of a similarity is 6e-8; a logit is that much off times the scale.
    assert found.item() == pytest.approx(value.item(), rel=1e-6)
    assert worst(gradient, exact) <= 1e-7 / temperature


@pytest.mark.parametrize("upstream", [1e-8, 1e10])
@pytest.mark.parametrize(("make", "temperature"), [(cone, 0.05), (cone, 0.0125), (cone, 0.01), (poles, 0.02), (poles, 0.015)])
def test_size_of_the_upstream_gradient_does_not_matter(make: Cloud, temperature: float, upstream: float) -> None:
    """A weight of the loss, or a scaler's factor, must not make its quotient by very large or small sums leave the range."""
    leaves, loss_fn = make(300, 64), ours("two-view", f"fixed:temperature={temperature}", "tiled", "dcl")
    _, gradient = value_and_gradient(lambda a, b: loss_fn(a, b) * upstream, leaves, torch.float32)
    _, exact = value_and_gradient(margin("two-view", temperature), leaves, torch.float64)
    assert worst(gradient / upstream, exact) <= 1e-5


@pytest.mark.parametrize("cloud", ["duplicates", "cone"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.0125", "fixed:temperature=0.002", "temperature-free"])
def test_upstream_gradients_of_any_size_beside_several_positives(strategy: str, cloud: str) -> None:
    """At similarity 1 and -1 sums are as far from 1 as they come, and the log-odds clamp; in a cone all are near 1."""
    (a,) = leaves_of("labels+one view", 30, 64)
    a = torch.cat([a, a[:5], -a[:5]]) if cloud == "duplicates" else cone(40, 64)[0]
    loss_fn = ours("labels+one view", strategy, objective="dcl")
    _, exact = value_and_gradient(loss_fn, [a], torch.float64)
    for factor in (1e8, 1e-10):
        _, gradient = value_and_gradient(lambda leaf, factor=factor: loss_fn(leaf) * factor, [a], torch.float32)
        assert worst(gradient / factor, exact) <= 2e-5


@pytest.mark.parametrize("name", ["two-view", "cross-view", "symmetric"])
def test_no_gradient_is_filtered(name: str) -> None:
    """In a cone all softmax weights are near 1/N: a filter of small weights would leave nothing."""
    leaves = cone(1500, 32)
    _, gradient = value_and_gradient(ours(name, "fixed:temperature=0.1", "tiled"), leaves, torch.float32)
    _, exact = value_and_gradient(plain(name, scaled(0.1)), leaves, torch.float64)
    assert (gradient != 0).any(1).all()
    assert ((gradient - exact).norm(dim=1) / exact.norm(dim=1)).max().item() <= 1e-5


def amcl(a: Tensor, b: Tensor, phi: torch.nn.Linear) -> Tensor:
    """AMCL with DCL as one writes it in plain torch, in the dtype of its inputs."""
    unit = normalize(torch.cat([a, b]))
    apart = torch.eye(len(a), dtype=torch.bool).repeat(2, 2)
    rotated = torch.nn.functional.linear(unit, phi.weight.to(unit), phi.bias.to(unit))
    temperature = 2 * torch.sigmoid(-rotated @ rotated.T) + 0.05
    logits = unit @ unit.T / temperature - (unit.shape[1] / 2 * temperature.log() + 1 / temperature)
    rows = torch.arange(len(unit))
    return (logits.masked_fill(apart, -torch.inf).logsumexp(1) - logits[rows, rows.roll(len(a))]).mean()


@pytest.mark.parametrize(
    ("rows", "dimension", "steep", "upstream"),
    [(300, 128, 1.0, 1.0), (300, 128, 1.0, 1e-8), (64, 512, 1.0, 1e8), (64, 64, 30.0, 1e-8)],
)
def test_gradients_of_amcl_are_as_exact_as_those_of_plain_torch(
    rows: int, dimension: int, steep: float, upstream: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where φ spreads temperatures all over their range, logits of a row lie hundreds of nats apart."""
    monkeypatch.setattr(gemm, "product_route", lambda: "mm")
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(f"amcl:dimension={dimension}", "dcl")
    phi = loss_fn.strategy.phi
    with torch.no_grad():
        phi.weight *= steep
    views = torch.randn(2, rows, dimension)
    results = []
    for call, dtype in ((amcl, torch.float64), (amcl, torch.float32), (None, torch.float32)):
        leaves = [view.to(dtype, copy=True).requires_grad_() for view in views]
        loss = loss_fn(*leaves) if call is None else call(*leaves, phi)
        gradients = torch.autograd.grad(loss * upstream, [*leaves, *phi.parameters()])
        results.append([loss.detach().double(), *(each.double() / upstream for each in gradients)])
    exact, eager, found = results
    assert found[0].item() == pytest.approx(exact[0].item(), rel=1e-5)
    for number in range(1, 5):
        assert overall(found[number], exact[number]) <= max(1e-6, 1.5 * overall(eager[number], exact[number]))
