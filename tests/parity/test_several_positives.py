"""How exact the loss of labels and masks is in float32: against plain formulas in float64, and as exact as those in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.engine import gemm


def supcon(view: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The loss as one writes it in plain torch, in the dtype of its inputs."""
    unit = normalize(view)
    own = torch.eye(len(unit), dtype=torch.bool)
    positive = (labels[:, None] == labels[None, :]) & ~own
    likely = torch.log_softmax((unit @ unit.T / temperature).masked_fill(own, -1e9), 1)
    return -((likely * positive).sum(1) / positive.sum(1)).mean()


def masked(view: Tensor, sample: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """PyGCL's InfoNCE, in the dtype of its inputs."""
    similarity = normalize(view) @ normalize(sample).T / temperature
    likely = similarity - (similarity.exp() * (positive | negative)).sum(1, keepdim=True).log()
    return -((likely * positive).sum(1) / positive.sum(1)).mean()


def value_and_gradient(loss_fn: Callable[..., Tensor], views: list[Tensor], dtype: torch.dtype) -> tuple[float, Tensor]:
    leaves = [each.to(dtype).requires_grad_() for each in views]
    loss = loss_fn(*leaves)
    return loss.item(), torch.cat(torch.autograd.grad(loss, leaves)).double()


def worst(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).abs().max() / exact.abs().max()).item()


def overall(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).norm() / exact.norm()).item()


def views_of(rows: int, count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, 64, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("rows", [64, 700])
@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("layout", ["labels", "masks", "masks, one positive"])
def test_gradients_are_as_exact_as_those_of_plain_torch(
    layout: str, temperature: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the products that plain torch takes; the faster ones of some processors round a little more."""
    loss_fn = ContrastiveLoss(f"fixed:temperature={temperature}", layout="labels" if layout == "labels" else "masks")
    plain: Callable[..., Tensor]
    ours: Callable[..., Tensor]
    if layout == "labels":
        views, labels = views_of(rows, 1), torch.arange(rows) * 7 % 10
        plain, ours = (lambda a: supcon(a, labels, temperature)), (lambda a: loss_fn(a, labels=labels))
    else:
        views, own = views_of(rows), torch.eye(rows, dtype=torch.bool)
        positive = own if "one" in layout else own | own.roll(3, 1)
        negative = ~positive & ~own.roll(9, 1)
        plain = lambda a, b: masked(a, b, positive, negative, temperature)  # noqa: E731
        ours = lambda a, b: loss_fn(a, b, positive_mask=positive, negative_mask=negative)  # noqa: E731
    value, exact = value_and_gradient(plain, views, torch.float64)
    found, gradient = value_and_gradient(ours, views, torch.float32)
    assert found == pytest.approx(value, rel=1e-6)
    assert worst(gradient, exact) <= 2e-6
    monkeypatch.setattr(gemm, "product_route", lambda: "mm")
    eager = overall(value_and_gradient(plain, views, torch.float32)[1], exact)
    assert overall(value_and_gradient(ours, views, torch.float32)[1], exact) <= 1.5 * eager


@pytest.mark.parametrize("cloud", ["duplicates", "cone"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.0125", "fixed:temperature=0.01", "temperature-free"])
def test_upstream_gradients_of_any_size_beside_sums_far_from_1(strategy: str, cloud: str) -> None:
    """At similarity 1 and -1 sums are as far from 1 as they come, and the log-odds clamp; in a cone all are near 1."""
    a = views_of(30, 1)[0]
    a = torch.cat([a, a[:5], -a[:5]]) if cloud == "duplicates" else views_of(40, 1)[0] * 0.33 + views_of(1, 1)[0]
    labels = torch.arange(40) % 4
    results = []
    for dtype, factor in ((torch.float64, 1.0), (torch.float32, 1e8), (torch.float32, 1e-10)):
        loss_fn = ContrastiveLoss(strategy, "dcl", "labels")
        leaf = a.to(dtype, copy=True).requires_grad_()
        (loss_fn(leaf, labels=labels) * factor).backward()
        assert leaf.grad is not None
        results.append(leaf.grad.double() / factor)
    assert worst(results[1], results[0]) <= 2e-5
    assert worst(results[2], results[0]) <= 2e-5


def test_temperatures_too_small_for_plain_sums_are_exact() -> None:
    labels, views = torch.arange(40) % 4, views_of(40, 1)
    loss_fn = ContrastiveLoss("fixed:temperature=0.002", layout="labels")
    value, exact = value_and_gradient(lambda a: supcon(a, labels, 0.002), views, torch.float64)
    found, gradient = value_and_gradient(lambda a: loss_fn(a, labels=labels), views, torch.float32)
    assert loss_fn.record.engine == "tiled"
    assert found == pytest.approx(value, rel=1e-5)
    assert worst(gradient, exact) <= 1e-4


def test_a_lone_positive_without_negatives_has_loss_0_to_the_last_digit() -> None:
    a, b = views_of(4)
    own = torch.eye(4, dtype=torch.bool)
    with pytest.warns(RuntimeWarning, match="4 of 4 anchors without a negative"):
        assert ContrastiveLoss(layout="masks")(a, b, positive_mask=own, negative_mask=own & ~own).item() == 0
    with pytest.warns(RuntimeWarning, match="2 of 2 anchors without a negative"):
        assert ContrastiveLoss(layout="labels")(a[:2], labels=torch.zeros(2).long()).item() == 0
