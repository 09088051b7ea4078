"""AMCL trains with its defaults for each method: temperatures that move, a loss of moderate size, and no others than needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tempplug import create_strategy
from tempplug_adapters.vision.amcl_defaults import AMCL_OPTIONS
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.projection_heads import (
    barlow_twins_projection_head,
    moco_projection_head,
    nnclr_prediction_head,
    nnclr_projection_head,
    projection_heads,
    simclr_projection_head,
    simsiam_prediction_head,
    simsiam_projection_head,
)
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import StepModule

BATCH, WIDTH, PIXELS = 64, 32, 48
DIMENSIONS = {"simclr": 128, "moco": 128, "nnclr": 256, "simsiam": 256, "barlow-twins": BATCH}


def heads(make: Callable[[], nn.Module]) -> nn.ModuleList:
    return projection_heads(3, make)


def method(name: str, options: dict[str, float]) -> StepModule:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
    backbone.dimension = WIDTH
    size = DIMENSIONS[name]
    strategy = create_strategy("amcl", dimension=size, **options)
    match name:
        case "simclr":
            return SimCLR(backbone, heads(lambda: simclr_projection_head(WIDTH)), strategy, "dcl")
        case "moco":
            head = heads(lambda: moco_projection_head(WIDTH))
            return MoCo(backbone, head, strategy, "dcl", queue_size=256, momentum=0.99, symmetric=True)
        case "nnclr":
            head = heads(lambda: nnclr_projection_head(WIDTH, hidden_dimension=WIDTH))
            predictor = heads(lambda: nnclr_prediction_head(hidden_dimension=WIDTH))
            return NNCLR(backbone, head, predictor, strategy, "dcl", queue_size=256)
        case "simsiam":
            head = heads(lambda: simsiam_projection_head(WIDTH, out_dimension=size, layers=2))
            return SimSiam(backbone, head, heads(lambda: simsiam_prediction_head(size)), strategy)
    return BarlowTwins(backbone, heads(lambda: barlow_twins_projection_head(WIDTH, out_dimension=128)), strategy)


def images() -> Tensor:
    """A few patterns, little changed, so that other images are as similar to a view as its own: no softmax is sure."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(16, 3, 4, 4, generator=generator)
    return patterns[torch.arange(512) % 16] + 0.2 * torch.randn(512, 3, 4, 4, generator=generator)


def train(name: str, options: dict[str, float], steps: int) -> tuple[float, dict[str, float]]:
    """Returns the loss and what the method measured at the end."""
    torch.manual_seed(0)
    module = method(name, options)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.06, momentum=0.9)
    pictures = images()
    for _ in range(steps):
        chosen = pictures[torch.randperm(len(pictures))[:BATCH]]
        loss = module(chosen + 0.5 * torch.randn_like(chosen), chosen + 0.5 * torch.randn_like(chosen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), module.measure()


@pytest.mark.parametrize("name", ["simclr", "nnclr", "simsiam", "barlow-twins"])
def test_temperatures_keep_off_their_bounds(name: str) -> None:
    loss, measured = train(name, dict(AMCL_OPTIONS[name]), steps=60)
    assert measured["temperature_at_bound"] < 0.01
    assert measured["temperature_max"] > 1.05 * measured["temperature_min"]
    assert math.isfinite(loss)
    assert abs(loss) < 1000


@pytest.mark.parametrize("name", AMCL_OPTIONS)
def test_they_are_options_of_the_strategy_that_differ_from_its_own(name: str) -> None:
    given = AMCL_OPTIONS[name]
    own, changed = (create_strategy("amcl", dimension=4, **options).options for options in ({}, given))
    assert {option for option in own if own[option] != changed[option]} == set(given)
