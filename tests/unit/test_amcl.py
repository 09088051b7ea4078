"""AMCL: its temperatures and regulariser, several heads over one φ, and the top-κ objective against the formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss, create_strategy
from tempplug.errors import ConfigError, ShapeError
from tempplug.strategies.maps import PairTemperatureMap


def test_temperatures_lie_between_floor_and_floor_plus_span_and_fall_with_the_product() -> None:
    strategy = create_strategy("amcl:dimension=2,span=2,floor=0.05")
    with torch.no_grad():
        strategy.phi.weight.copy_(3 * torch.eye(2))
        strategy.phi.bias.zero_()
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    temperature = strategy.temperature_of(rows[:1].expand(3, 2), rows)
    expected = [2 / (1 + math.exp(product)) + 0.05 for product in (9.0, 0.0, -9.0)]
    assert temperature.tolist() == pytest.approx(expected, rel=1e-5)
    half = strategy.temperature_of(rows.bfloat16(), rows.bfloat16())
    assert half.dtype == torch.float32


def test_the_regulariser_is_smallest_at_two_over_the_dimension() -> None:
    temperatures = torch.tensor([0.014, 2 / 128, 0.017], dtype=torch.float64)
    values = PairTemperatureMap.regularizer_at(temperatures, 128)
    assert values[1].item() == pytest.approx(-202.17, abs=0.005)
    assert values.argmin() == 1
    relative = create_strategy("amcl:dimension=128").relative_regularizer(64 * temperatures)
    torch.testing.assert_close(64 * relative - 64 * math.log(64), values, rtol=1e-12, atol=0)


def test_temperatures_between_all_rows_are_those_of_pairs_and_phi_may_learn_in_smaller_steps() -> None:
    strategy = create_strategy("amcl:dimension=3").double()
    first, second = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(5, 3, dtype=torch.float64)
    pairs = torch.stack([strategy.temperature_of(first, row.expand(4, 3)) for row in second], dim=1)
    leaves = [first, *strategy.parameters()]
    expected = torch.autograd.grad(pairs.square().sum(), leaves)
    for share in (1.0, 0.25):
        every = strategy.temperature_between(first, second, share)
        torch.testing.assert_close(every, pairs, rtol=1e-12, atol=0)
        of_rows, *of_phi = torch.autograd.grad(every.square().sum(), leaves)
        torch.testing.assert_close(of_rows, expected[0])
        for found, wanted in zip(of_phi, expected[1:], strict=True):
            torch.testing.assert_close(found, share * wanted)


def views(seed: int = 0, count: int = 2) -> list[Tensor]:
    return list(torch.randn(count, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def loss_of(strategy: str, objective: str) -> ContrastiveLoss:
    torch.manual_seed(0)
    return ContrastiveLoss(f"amcl:dimension=3{strategy}", objective).double()


def test_the_top_objective_has_a_weight_of_the_regulariser_of_its_own() -> None:
    values = [loss_of(f",beta={beta}", "amcl-top:top_k=2,beta=0.3")(*views()).item() for beta in (0.0, 5.0)]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("strategy", "objective", "arguments", "error", "message"),
    [
        ("macl", "amcl-top:top_k=2,beta=1", {}, ConfigError, "needs a temperature for every pair: use it with strategy 'amcl'"),
        ("amcl:dimension=3", "amcl-top:top_k=2", {}, ConfigError, "objective 'amcl-top' needs beta="),
        ("amcl:dimension=3", "amcl-top:top_k=2,beta=1", {"layout": "labels"}, ConfigError, "several positives"),
        ("amcl:dimension=3", "amcl-top:top_k=2,beta=1", {"engine": "triton"}, ConfigError, "computes log-sum-exps alone"),
        (
            "amcl:dimension=8",
            "dcl",
            {},
            ShapeError,
            "dimension=8 of strategy 'amcl' must be 3, the dimension",
        ),
    ],
)
def test_what_amcl_cannot_do_is_refused(
    strategy: str, objective: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    labels = {"labels": torch.zeros(6).long()} if arguments.get("layout") else {}
    with pytest.raises(error, match=message):
        ContrastiveLoss(strategy, objective, **arguments)(*(each.float() for each in views()), **labels)


def test_heads_share_phi_and_their_losses_are_summed() -> None:
    heads, loss_fn = [views(count=3), views(1, count=3)], loss_of("", "dcl")
    total = loss_fn(*heads)
    alone = sum(loss_fn(a, b) for a, b in zip(*heads, strict=True))
    gradients = [torch.autograd.grad(each, loss_fn.strategy.phi.weight)[0] for each in (total, alone)]
    torch.testing.assert_close((total, gradients[0]), (alone, gradients[1]), rtol=1e-10, atol=1e-12)
