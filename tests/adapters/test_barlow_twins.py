"""Barlow Twins: the loss of its formula, AMCL's form of it over pairs of features, and no other strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from vision_method_toys import EMBEDDING, Toy, assert_resumes_bit_for_bit, gradients, head, heads, unit, views

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.barlow_twins import BarlowTwins

ROWS = 5
AMCL = f"amcl:dimension={ROWS},span=1.5,floor=0.2,beta=0.7"


def barlow_twins(strategy: str | None = None, count: int = 1, **options: object) -> BarlowTwins:
    return BarlowTwins(Toy(), head() if count == 1 else heads(count), strategy, **options).double()


def features(embeddings: Tensor) -> Tensor:
    """[D, N], each feature with mean 0 and variance 1 over the batch."""
    centred = embeddings - embeddings.mean(0)
    return (centred / (centred.square().mean(0) + 1e-5).sqrt()).T


def formula(method: BarlowTwins, embeddings_a: Tensor, embeddings_b: Tensor, weight: float) -> Tensor:
    """The loss of one head, pair of features by pair of features."""
    total = torch.zeros((), dtype=torch.float64)
    first, second = features(embeddings_a), features(embeddings_b)
    for place, a in enumerate(first):
        for other, b in enumerate(second):
            correlation = (a * b).mean()
            temperature = torch.ones((), dtype=torch.float64)
            beta = 0.0
            if method.strategy is not None:
                phi, beta = method.strategy.phi, 0.7
                temperature = 1.5 / (1 + torch.exp(phi(unit(a[None])[0]) @ phi(unit(b[None])[0]))) + 0.2
            omega = temperature.log() + 1 / temperature
            if place == other:
                total = total + (1 - correlation / temperature) ** 2 + beta * omega
            else:
                total = total + weight * correlation**2 / temperature - beta * omega / (len(first) - 1)
    return total


@pytest.mark.parametrize("strategy", [None, AMCL])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("weight", [5e-3, 0.5])
def test_it_is_its_formula_in_value_and_gradient(strategy: str | None, count: int, weight: float) -> None:
    torch.manual_seed(0)
    method = barlow_twins(strategy, count, redundancy_weight=weight)
    view_a, view_b = views(ROWS)
    loss = method(view_a, view_b)
    loss.backward()
    found = gradients(method)
    method.zero_grad()
    every = list(method.projection_head) if count > 1 else [method.projection_head]
    expected = sum(formula(method, each(method.backbone(view_a)), each(method.backbone(view_b)), weight) for each in every)
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    assert found.keys() == gradients(method).keys()
    for name, gradient in gradients(method).items():
        # φ learns from the mean over the features, everything else from their sum
        share = 1 / EMBEDDING if name.startswith("strategy.") else 1
        torch.testing.assert_close(found[name], share * gradient, rtol=1e-7, atol=1e-10)


def test_redundancy_weight_is_that_of_the_paper() -> None:
    assert barlow_twins().redundancy_weight == 5e-3


def test_a_feature_that_never_changes_gives_finite_gradients() -> None:
    method = barlow_twins(AMCL)
    with torch.no_grad():
        method.projection_head.weight[0] = 0
    loss = method(*views(ROWS))
    loss.backward()
    assert loss.isfinite()
    assert all(value.isfinite().all() for value in gradients(method).values())


def test_half_precision_is_left_before_features_are_correlated() -> None:
    torch.manual_seed(0)
    method = barlow_twins().float()
    method.backbone.layers, method.projection_head = torch.nn.Sequential(torch.nn.Flatten()), torch.nn.Identity()
    pair = views(64, dtype=torch.float32)
    exact = method(*pair)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method(*pair), exact)
    assert method(*(view.bfloat16() for view in pair)).dtype == torch.float32


@pytest.mark.parametrize("strategy", ["fixed", "macl", "schedule", "individual"])
def test_a_strategy_for_softmaxes_is_refused(strategy: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy '{strategy}' does not apply: Barlow Twins has no softmax .* 'amcl'"):
        barlow_twins(strategy)


def test_amcl_needs_batches_of_its_dimension() -> None:
    method = barlow_twins(AMCL)
    with pytest.raises(ShapeError, match=r"the batch holds 4 images where strategy 'amcl' has dimension=5: .*drop_last=True"):
        method(*views(4))


def test_a_single_image_and_a_negative_weight_are_refused() -> None:
    with pytest.raises(ShapeError, match="over the batch, which has 1 image; wanted 2"):
        barlow_twins()(*views(1))
    with pytest.raises(ConfigError, match=r"redundancy_weight=-0\.1 of Barlow Twins must be at least 0"):
        barlow_twins(redundancy_weight=-0.1)


def test_its_parameters_are_known_to_an_optimizer() -> None:
    method = barlow_twins(AMCL)
    assert method.loss_fn is None
    assert method.no_weight_decay() == {f"strategy.{name}" for name in method.strategy.no_weight_decay()} != set()


def test_it_resumes_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes_bit_for_bit(lambda: BarlowTwins(Toy(batch_norm=True), heads(2), "amcl:dimension=4"), tmp_path)
