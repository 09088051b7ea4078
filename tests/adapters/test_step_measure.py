"""What a step module measures of its last call: the record's numbers, or AMCL's temperatures where there is no softmax.

And with AMCL's options by method, these temperatures keep off their bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from vision_method_toys import EMBEDDING, Toy, head, heads, views

from tempplug import create_strategy
from tempplug.errors import ConfigError
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.projection_heads import (
    barlow_twins_projection_head,
    simsiam_prediction_head,
    simsiam_projection_head,
)
from tempplug_adapters.vision.recipes import AMCL_OPTIONS
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
def test_temperatures_on_a_bound_are_counted_and_warned_of_once(make: Maker) -> None:
    without = make(amcl=False)
    without(*views(ROWS))
    assert without.measure() == {}, "without AMCL there is nothing to measure"
    method = make()
    with torch.no_grad():
        method.strategy.phi.weight.zero_()
        method.strategy.phi.bias.fill_(9.0)
    method(*views(ROWS))
    told = r"strategy 'amcl': nearly all temperatures lie on a bound.* 100\.0% on floor=0\.05"
    with pytest.warns(RuntimeWarning, match=told):
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


BATCH, WIDTH, FEATURES = 32, 32, 128


def wide(name: str) -> WithoutSoftmax:
    """Three heads, and embeddings so wide that the paper's Ω would be lowest far below the floor."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
    backbone.dimension = WIDTH
    strategy = create_strategy("amcl", dimension=FEATURES if name == "simsiam" else BATCH, **AMCL_OPTIONS[name])
    if name == "barlow-twins":
        head = nn.ModuleList(barlow_twins_projection_head(WIDTH, out_dimension=FEATURES) for _ in range(3))
        return BarlowTwins(backbone, head, strategy)
    head = nn.ModuleList(simsiam_projection_head(WIDTH, out_dimension=FEATURES, layers=2) for _ in range(3))
    return SimSiam(backbone, head, nn.ModuleList(simsiam_prediction_head(FEATURES) for _ in range(3)), strategy)


@pytest.mark.parametrize("name", ["simsiam", "barlow-twins"])
def test_temperatures_keep_off_their_bounds(name: str) -> None:
    torch.manual_seed(0)
    module, images = wide(name), torch.randn(256, 3, 4, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.06, momentum=0.9)
    for _ in range(30):
        chosen = images[torch.randperm(len(images))[:BATCH]]
        loss = module(*(chosen + 0.5 * torch.randn_like(chosen) for _ in "ab"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    measured = module.measure()
    assert measured["temperature_at_bound"] < 0.01
    assert measured["temperature_max"] > 1.02 * measured["temperature_min"]
    assert abs(loss.item()) < 3 * FEATURES
