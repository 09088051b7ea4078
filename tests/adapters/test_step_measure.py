"""What a step module measures of its last call: the record's numbers, or AMCL's temperatures where there is no softmax."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from vision_method_toys import EMBEDDING, Toy, head, heads, views

from tempplug.errors import ConfigError
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import WithoutSoftmax

ROWS = 5
NAMES = {"temperature", "temperature_min", "temperature_max", "temperature_at_bound"}


def simsiam(options: str = "", amcl: bool = True) -> SimSiam:
    return SimSiam(Toy(), heads(2), heads(2, EMBEDDING), f"amcl:dimension={EMBEDDING}{options}" if amcl else None).double()


def barlow_twins(options: str = "", amcl: bool = True) -> BarlowTwins:
    return BarlowTwins(Toy(), heads(2), f"amcl:dimension={ROWS}{options}" if amcl else None).double()


MAKERS = [simsiam, barlow_twins]
Maker = Callable[..., WithoutSoftmax]


def temperatures(method: WithoutSoftmax) -> Tensor:
    """All temperatures of both heads, pair by pair."""
    embeddings_a, embeddings_b = (method.embed(view) for view in views(ROWS))
    if isinstance(method, BarlowTwins):
        pairs = []
        for a, b in zip(embeddings_a, embeddings_b, strict=True):
            first, second = ((each - each.mean(0)).T for each in (a, b))
            square = torch.stack([method.strategy.temperature_of(row.expand_as(second), second) for row in first])
            pairs += [square.diagonal(), square.flatten()]
        return torch.cat(pairs)
    pairs = [
        method.strategy.temperature_of(predict(one), other)
        for ours, theirs in ((embeddings_a, embeddings_b), (embeddings_b, embeddings_a))
        for predict, one, other in zip(method.prediction_head, ours, theirs, strict=True)
    ]
    return torch.cat(pairs)


@pytest.mark.parametrize("make", MAKERS)
def test_without_a_softmax_it_is_the_temperatures_of_the_last_call(make: Maker) -> None:
    torch.manual_seed(0)
    method = make(",span=0.7,floor=0.2")
    assert method.measure() == {}
    method(*views(ROWS, seed=1))
    method(*views(ROWS)).backward()
    found, expected = method.measure(), temperatures(method).detach()
    assert found.keys() == NAMES
    assert found["temperature"] == pytest.approx(expected.mean().item(), rel=1e-3)  # normalisation adds 1e-5
    assert found["temperature_min"] == pytest.approx(expected.min().item(), rel=1e-3)
    assert found["temperature_max"] == pytest.approx(expected.max().item(), rel=1e-3)
    assert found["temperature_at_bound"] == 0
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize("make", MAKERS)
def test_without_a_softmax_and_amcl_there_is_nothing_to_measure(make: Maker) -> None:
    method = make(amcl=False)
    method(*views(ROWS))
    assert method.measure() == {}


@pytest.mark.parametrize("make", MAKERS)
def test_temperatures_on_a_bound_are_counted_and_warned_of_once(make: Maker) -> None:
    method = make()
    with torch.no_grad():
        method.strategy.phi.weight.zero_()
        method.strategy.phi.bias.fill_(9.0)
    method(*views(ROWS))
    with pytest.warns(
        RuntimeWarning, match=r"strategy 'amcl': nearly all temperatures lie on a bound.* 100\.0% on floor=0\.05"
    ):
        assert method.measure()["temperature_at_bound"] == 1
    assert method.measure()["temperature_at_bound"] == 1


def test_many_features_are_sampled_evenly() -> None:
    torch.manual_seed(0)
    method = BarlowTwins(Toy(), torch.nn.Linear(6, 300), f"amcl:dimension={ROWS}")
    method(*views(ROWS, dtype=torch.float32))
    kept = sum(each.numel() for each in method._temperatures)
    assert kept == 300 + 60 * 60
    assert all(each.untyped_storage().nbytes() == 4 * each.numel() and not each.requires_grad for each in method._temperatures)


def test_with_a_softmax_it_is_the_record_under_the_names_of_a_log() -> None:
    method = SimCLR(Toy(), head(), "macl").double()
    with pytest.raises(ConfigError, match="record is empty"):
        method.measure()
    method(*views())
    found, numbers = method.measure(), method.loss_fn.record.numbers()
    assert found.keys() >= NAMES
    assert found["temperature"] == numbers["temperature_mean"]
    assert found["gradient_scale"] == numbers["gradient_scale"]
