"""Temperatures on a strategy's bounds: the share that the record tells, and the one warning that nearly all lie there."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from tempplug import ContrastiveLoss, create_strategy
from tempplug.call.record import describe_temperatures

GENERATOR = torch.Generator().manual_seed(0)
A, B = torch.randn(2, 6, 3, generator=GENERATOR).unbind()
INDEX = torch.arange(6)


def amcl(bias: float, options: str = "") -> ContrastiveLoss:
    """All products of φ are ``bias`` squared (times 3), so that every temperature is the same."""
    loss_fn = ContrastiveLoss(f"amcl:dimension=3{options}", "dcl", "cross-view")
    with torch.no_grad():
        loss_fn.strategy.phi.weight.zero_()
        loss_fn.strategy.phi.bias.fill_(bias)
    return loss_fn


def at_max_scale() -> ContrastiveLoss:
    loss_fn = ContrastiveLoss("learnable:initial_temperature=0.5,max_scale=4", layout="cross-view")
    with torch.no_grad():
        loss_fn.strategy.log_scale.fill_(9.0)
    return loss_fn


def all_at(bound: float) -> ContrastiveLoss:
    loss_fn = ContrastiveLoss("individual:size=6", layout="cross-view").eval()
    loss_fn.strategy.temperatures.fill_(bound)
    return loss_fn


CASES = {
    "floor of amcl": (lambda: amcl(9.0), "100.0% on floor=0.05. To let them adapt, choose a smaller beta"),
    "max_scale of learnable": (at_max_scale, "100.0% on 1/max_scale=0.25. To let them adapt, raise max_scale"),
    "lower of individual": (lambda: all_at(0.05), "100.0% on temperature_min=0.05. To let them adapt, widen temperature_min"),
    "upper of individual": (lambda: all_at(1.0), "100.0% on temperature_max=1. To let them adapt, widen temperature_min"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_record_warns_once_where_all_temperatures_lie_on_a_bound(case: str) -> None:
    make, message = CASES[case]
    loss_fn = make()
    loss_fn(A, B, **loss_fn.accepted(index=INDEX))  # says nothing: a training step must not wait for the device
    name = loss_fn.strategy.name
    twin = copy.deepcopy(loss_fn)
    twin(A, B, **loss_fn.accepted(index=INDEX))
    for each in (twin, loss_fn):
        with pytest.warns(RuntimeWarning, match=f"strategy '{name}': nearly all temperatures lie on a bound, .*: {message}"):
            record = each.record
    assert record.temperature_at_bound.item() == 1
    assert record.numbers()["temperature_at_bound"] == 1
    loss_fn(A, B, **loss_fn.accepted(index=INDEX))
    assert loss_fn.record.temperature_at_bound.item() == 1


@pytest.mark.parametrize(
    "spec", ["fixed", "learnable", "macl", "temperature-free", "dystress", "uncertainty", "individual:size=6"]
)
def test_temperatures_that_may_move_are_on_no_bound(spec: str) -> None:
    loss_fn = ContrastiveLoss(spec, layout="cross-view")
    loss_fn(A, A + 0.1 * B, **loss_fn.accepted(index=INDEX, uncertainty=torch.zeros(6)))
    assert loss_fn.record.temperature_at_bound.item() == 0


def test_the_share_counts_both_bounds_and_what_is_within_a_hundredth_of_them() -> None:
    strategy = create_strategy("amcl:dimension=3,floor=0.5,span=1.5")
    temperatures = torch.tensor([0.5, 0.5049, 0.506, 1.0, 1.979, 1.981, 2.0, 1.2])
    found = describe_temperatures(strategy, temperatures)
    assert found["temperature_at_bound"].item() == 0.5
    assert found["temperature_mean"].item() == pytest.approx(temperatures.mean().item())
    assert found["temperature_min"].item() == 0.5
    assert found["temperature_max"].item() == 2.0


def test_98_of_a_hundred_are_not_nearly_all_and_both_bounds_are_named() -> None:
    strategy = create_strategy("amcl:dimension=3,floor=0.5,span=1.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        describe_temperatures(strategy, torch.tensor([0.5] * 50 + [2.0] * 48 + [1.0] * 2))
    with pytest.warns(RuntimeWarning, match=r"25\.0% on floor=0\.5 and 75\.0% on floor \+ span=2\. To let"):
        describe_temperatures(strategy, torch.tensor([0.5] * 25 + [2.0] * 75))
