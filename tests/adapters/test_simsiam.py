"""SimSiam: the loss of its formula with its stop-gradient, AMCL's form of it, and no other strategy."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vision_method_toys import EMBEDDING, Toy, assert_resumes_bit_for_bit, gradients, head, heads, unit, views

import tempplug
from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.simsiam import SimSiam

AMCL = f"amcl:dimension={EMBEDDING},span=1.5,floor=0.2,beta=0.7"


def simsiam(strategy: str | None = None, count: int = 1) -> SimSiam:
    projection_head, prediction_head = (head(), head(EMBEDDING)) if count == 1 else (heads(count), heads(count, EMBEDDING))
    return SimSiam(Toy(), projection_head, prediction_head, strategy).double()


def similarity(prediction: Tensor, embedding: Tensor) -> Tensor:
    return (unit(prediction) * unit(embedding.detach())).sum(1)


def assert_matches(method: SimSiam, expected_loss: object) -> None:
    """Compares value and all gradients with those of a function of (method, h_a, h_b, p_a, p_b)."""
    view_a, view_b = views()
    loss = method(view_a, view_b)
    loss.backward()
    found = gradients(method)
    method.zero_grad()
    several = isinstance(method.projection_head, torch.nn.ModuleList)
    pairs = (
        zip(method.projection_head, method.prediction_head, strict=True)
        if several
        else [(method.projection_head, method.prediction_head)]
    )
    expected = torch.zeros((), dtype=torch.float64)
    for project, predict in pairs:
        h_a, h_b = (project(method.backbone(view)) for view in (view_a, view_b))
        expected = expected + expected_loss(method, h_a, h_b, predict(h_a), predict(h_b))
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    assert found.keys() == gradients(method).keys()
    for name, gradient in gradients(method).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def plain(method: SimSiam, h_a: Tensor, h_b: Tensor, p_a: Tensor, p_b: Tensor) -> Tensor:
    return (-similarity(p_a, h_b) / 2 - similarity(p_b, h_a) / 2).mean()


def with_amcl(method: SimSiam, h_a: Tensor, h_b: Tensor, p_a: Tensor, p_b: Tensor) -> Tensor:
    phi, total = method.strategy.phi, []
    for prediction, embedding in ((p_a, h_b), (p_b, h_a)):
        for p, h in zip(unit(prediction), unit(embedding.detach()), strict=True):
            temperature = 1.5 / (1 + torch.exp(phi(p) @ phi(h))) + 0.2
            total.append(-(p @ h) / (2 * temperature) + 0.7 * (temperature.log() + 1 / temperature))
    return torch.stack(total).sum() / len(p_a)


@pytest.mark.parametrize("count", [1, 3])
def test_without_strategy_it_is_the_negative_cosine(count: int) -> None:
    torch.manual_seed(0)
    assert_matches(simsiam(count=count), plain)


@pytest.mark.parametrize("count", [1, 3])
def test_amcl_is_its_formula_in_value_and_gradient(count: int) -> None:
    torch.manual_seed(0)
    assert_matches(simsiam(AMCL, count), with_amcl)


def test_amcl_is_the_paper_s_equation_in_units_of_its_dimension() -> None:
    """-s/(2τ) + β·((D/2)·ln τ + 1/τ) with τ = 2u/D, per D/2: the same but for the constant of ln(2/D)."""
    torch.manual_seed(0)
    method, half = simsiam(AMCL), EMBEDDING / 2
    h_a, h_b = (method.embed(view)[0] for view in views())
    p_a, p_b = method.prediction_head(h_a), method.prediction_head(h_b)
    total = torch.zeros(len(p_a), dtype=torch.float64)
    for p, h in ((p_a, h_b), (p_b, h_a)):
        temperature = method.strategy.temperature_of(p, h) / half
        total += -similarity(p, h) / (2 * temperature) + 0.7 * (half * (half * temperature).log() + 1 / temperature)
    torch.testing.assert_close(method(*views()), total.mean() / half, rtol=1e-12, atol=0)


def test_equal_views_and_perfect_predictions_give_minus_one() -> None:
    method = simsiam()
    method.prediction_head = torch.nn.Identity()
    view, _ = views()
    assert method(view, view).item() == pytest.approx(-1)


@pytest.mark.parametrize("strategy", ["fixed", "macl:alpha=1", "individual", "head-tail", "learnable"])
def test_a_strategy_for_softmaxes_is_refused(strategy: str) -> None:
    name = strategy.split(":")[0]
    with pytest.raises(ConfigError, match=f"strategy '{name}' does not apply: SimSiam has no softmax .* Only 'amcl'"):
        simsiam(strategy)


def test_instances_are_judged_alike() -> None:
    amcl = tempplug.create_strategy(AMCL)
    assert SimSiam(Toy(), head(), head(EMBEDDING), amcl).strategy is amcl
    for wrong in (tempplug.create_strategy("macl"), tempplug.ContrastiveLoss("macl"), tempplug.ContrastiveLoss(AMCL), 0.1):
        with pytest.raises(ConfigError, match="SimSiam has no softmax"):
            SimSiam(Toy(), head(), head(EMBEDDING), wrong)  # type: ignore[arg-type]


def test_its_parameters_are_known_to_an_optimizer() -> None:
    method = simsiam(AMCL)
    assert method.loss_fn is None
    assert {"strategy.phi.weight", "strategy.phi.bias"} <= {name for name, _ in method.named_parameters()}
    assert method.no_weight_decay() == {f"strategy.{name}" for name in method.strategy.no_weight_decay()} != set()


def test_amcl_of_another_dimension_is_refused() -> None:
    with pytest.raises(ShapeError, match=f"dimension=9.* must be {EMBEDDING}"):
        simsiam("amcl:dimension=9")(*views())
    with pytest.raises(ConfigError, match="needs dimension="):
        simsiam("amcl")


def test_heads_must_match() -> None:
    with pytest.raises(ConfigError, match="prediction_head has 1 heads where projection_head has 2"):
        SimSiam(Toy(), heads(2), head(EMBEDDING))


@pytest.mark.parametrize("strategy", [None, AMCL])
def test_half_precision_is_left_before_similarities(strategy: str | None) -> None:
    torch.manual_seed(0)
    method = simsiam(strategy).float()
    method.backbone.layers, method.projection_head = torch.nn.Flatten(), torch.nn.Flatten()
    method.prediction_head = torch.nn.Flatten()
    pair = [view.flatten(1)[:, :EMBEDDING] for view in views(64, dtype=torch.float32)]
    exact = method(*pair)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method(*pair), exact)


def test_it_trains_under_autocast() -> None:
    method = simsiam(AMCL).float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(*views(dtype=torch.float32))
    loss.backward()
    assert loss.dtype == torch.float32
    assert math.isfinite(loss.item())
    assert all(value.isfinite().all() for value in gradients(method).values())


def test_it_resumes_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes_bit_for_bit(lambda: SimSiam(Toy(batch_norm=True), heads(2), heads(2, EMBEDDING), AMCL), tmp_path)
