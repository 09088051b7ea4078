"""AMCL's options by method: no others than needed, and without a softmax temperatures that keep off their bounds."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from tempplug import create_strategy
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.projection_heads import (
    barlow_twins_projection_head,
    projection_heads,
    simsiam_prediction_head,
    simsiam_projection_head,
)
from tempplug_adapters.vision.recipes import AMCL_OPTIONS
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import WithoutSoftmax

BATCH, WIDTH, FEATURES, PIXELS = 32, 32, 128, 48


def method(name: str) -> WithoutSoftmax:
    """Three heads, and embeddings so wide that the paper's Ω would be lowest far below the floor."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
    backbone.dimension = WIDTH
    dimension = FEATURES if name == "simsiam" else BATCH
    strategy = create_strategy("amcl", dimension=dimension, **AMCL_OPTIONS[name])
    if name == "simsiam":
        head = projection_heads(3, lambda: simsiam_projection_head(WIDTH, out_dimension=FEATURES, layers=2))
        return SimSiam(backbone, head, projection_heads(3, lambda: simsiam_prediction_head(FEATURES)), strategy)
    return BarlowTwins(
        backbone, projection_heads(3, lambda: barlow_twins_projection_head(WIDTH, out_dimension=FEATURES)), strategy
    )


def view(images: Tensor) -> Tensor:
    return images + 0.5 * torch.randn_like(images)


@pytest.mark.parametrize("name", ["simsiam", "barlow-twins"])
def test_temperatures_keep_off_their_bounds(name: str) -> None:
    torch.manual_seed(0)
    module, images = method(name), torch.randn(256, 3, 4, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.06, momentum=0.9)
    for _ in range(30):
        chosen = images[torch.randperm(len(images))[:BATCH]]
        loss = module(view(chosen), view(chosen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    measured = module.measure()
    assert measured["temperature_at_bound"] < 0.01
    assert measured["temperature_max"] > 1.02 * measured["temperature_min"]
    assert abs(loss.item()) < 3 * FEATURES


@pytest.mark.parametrize("name", AMCL_OPTIONS)
def test_they_are_options_of_the_strategy_that_differ_from_its_own(name: str) -> None:
    given = AMCL_OPTIONS[name]
    own, changed = (create_strategy("amcl", dimension=4, **options).options for options in ({}, given))
    assert {option for option in own if own[option] != changed[option]} == set(given)


def test_reading_them_loads_no_torch() -> None:
    program = "import sys, tempplug_adapters.vision.recipes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
