"""AMCL: its temperatures and regulariser, several heads over one φ, and the top-κ objective against the formula."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from oracle_cases import compare, make_call

from tempplug import ContrastiveLoss, create_objective, create_strategy
from tempplug.errors import ConfigError, ShapeError
from tempplug.strategies.maps import PairTemperatureMap
from tempplug.testing import oracle_loss

LAYOUTS = ["two-view", "two-view+hard", "cross-view", "symmetric+hard", "queue", "masks-one"]


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("top_k", [1, 3])
def test_the_mean_of_the_most_similar_negatives_is_that_of_the_oracle(layout: str, top_k: int, engine: str) -> None:
    call = make_call(layout, "amcl", 17, 3, torch.float64)
    compare("amcl:dimension=D", f"amcl-top:top_k={top_k},beta=0.02", call, 1e-10, engine)


def test_the_loss_of_many_tiles_is_that_of_the_oracle() -> None:
    """More rows than a tile holds."""
    call = make_call("two-view", "amcl", 1000, 3, torch.float64)
    compare("amcl:dimension=D", "dcl", call, 1e-10, "tiled")


def test_fewer_negatives_than_top_k_are_all_taken_and_warned_of_once() -> None:
    call = make_call("cross-view", "amcl", 5, 3, torch.float64)
    loss_fn = ContrastiveLoss("amcl:dimension=3", "amcl-top:top_k=9,beta=0.1", "cross-view", engine="dense").double()
    with pytest.warns(RuntimeWarning, match="top_k=9 of objective 'amcl-top' is more than the 4 negatives of an anchor"):
        value = loss_fn(*call.views)
    learned = list(loss_fn.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = loss_fn(*call.views)
    expected = oracle_loss(
        *call.views,
        layout="cross-view",
        strategy="amcl",
        strategy_options={"dimension": 3},
        objective="amcl-top",
        objective_options={"top_k": 4, "beta": 0.1},
        learned=learned,
    )
    assert value.item() == again.item() == pytest.approx(expected.item(), rel=1e-12)


def test_top_k_needs_the_temperature_of_every_pair_and_both_options() -> None:
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    with pytest.raises(
        ConfigError, match="objective 'amcl-top' needs a temperature for every pair: use it with strategy 'amcl'"
    ):
        ContrastiveLoss("macl", "amcl-top:top_k=2,beta=1")(a, b)
    with pytest.raises(ConfigError, match="objective 'amcl-top' needs beta="):
        create_objective("amcl-top:top_k=2")
    with pytest.raises(ConfigError, match="several positives"):
        ContrastiveLoss("amcl:dimension=3", "amcl-top:top_k=2,beta=1", "labels")(a, b, labels=torch.zeros(4).long())
    with pytest.raises(ConfigError, match="engine='triton' computes log-sum-exps alone"):
        ContrastiveLoss("amcl:dimension=3", "amcl-top:top_k=2,beta=1", engine="triton")(a, b)


def test_the_weight_of_the_regulariser_is_the_objective_s() -> None:
    a, b = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    values = []
    for beta in (0.0, 5.0):
        torch.manual_seed(0)
        strategy = f"amcl:dimension=3,beta={beta}"
        values.append(ContrastiveLoss(strategy, "amcl-top:top_k=2,beta=0.3").double()(a, b).item())
    assert values[0] == values[1]


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


def test_without_regulariser_and_with_one_temperature_it_is_the_fixed_loss() -> None:
    """The soft InfoNCE form with constant τ equals InfoNCE whatever β, since Ω cancels."""
    a, b = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    loss_fn = ContrastiveLoss("amcl:dimension=3,span=0.3,floor=0.05,beta=2", "infonce").double()
    with torch.no_grad():
        for parameter in loss_fn.parameters():
            parameter.zero_()
    assert loss_fn(a, b).item() == pytest.approx(ContrastiveLoss("fixed:temperature=0.2")(a, b).item(), rel=1e-12)
    assert loss_fn.record.numbers()["temperature_mean"] == pytest.approx(0.2, rel=1e-12)


def test_heads_share_phi_and_their_losses_are_summed() -> None:
    views = [[torch.randn(6, 3, dtype=torch.float64) for _ in range(3)] for _ in range(2)]
    loss_fn = ContrastiveLoss("amcl:dimension=3", "dcl").double()
    total = loss_fn(*views)
    alone = [loss_fn(a, b) for a, b in zip(*views, strict=True)]
    assert total.item() == pytest.approx(sum(each.item() for each in alone), rel=1e-12)
    ours = torch.autograd.grad(total, loss_fn.strategy.phi.weight)[0]
    theirs = sum(torch.autograd.grad(each, loss_fn.strategy.phi.weight)[0] for each in alone)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_another_dimension_is_named() -> None:
    with pytest.raises(ShapeError, match="dimension=8 of strategy 'amcl' must be 3, the dimension of the embeddings"):
        ContrastiveLoss("amcl:dimension=8", "dcl")(torch.randn(4, 3), torch.randn(4, 3))


def test_a_floor_that_invites_collapse_warns() -> None:
    with pytest.warns(RuntimeWarning, match="floor=0.0001 of strategy 'amcl' is below 0.001"):
        create_strategy("amcl:dimension=4,floor=0.0001")


def test_second_derivatives_are_those_of_autograd() -> None:
    """A third party's penalty may differentiate the gradient once more: the dense engine allows it."""
    a = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(5, 3, dtype=torch.float64)
    loss_fn = ContrastiveLoss("amcl:dimension=3", "dcl", engine="dense").double()
    assert torch.autograd.gradcheck(lambda x: torch.autograd.grad(loss_fn(x, b), x, create_graph=True)[0], (a,))
