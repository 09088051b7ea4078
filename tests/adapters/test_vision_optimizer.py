"""Learning rates, weight decay and LARS of the vision training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vision_train_toys import SIDE, TinyBackbone, differences, flags, images, saved, small, tiny, watched_steps  # noqa: F401

from tempplug_adapters.vision.methods import create_method
from tempplug_adapters.vision.optimizer import LARS, create_optimizer, learning_rate_factor
from tempplug_adapters.vision.recipe import VisionSettings
from tempplug_adapters.vision.train import train_vision

pytestmark = pytest.mark.usefixtures("tiny")


def test_the_learning_rate_follows_the_steps(tmp_path: Path, seen: list[dict[str, Any]]) -> None:
    settings = small("simclr", epochs=4, warmup_epochs=1, learning_rate=0.5, learning_rate_scaling="linear")
    train_vision(images(), "simclr", flags("fixed"), settings, tmp_path)
    peak, steps, warmup = 0.5 * 8 / 256, 12, 3
    wanted = [peak * (step + 1) / warmup for step in range(warmup)]
    wanted += [peak / 2 * (1 + math.cos(math.pi * done / (steps - warmup))) for done in range(steps - warmup)]
    assert [rate for call in seen for rate in set(call["rates"])] == pytest.approx(wanted)


def test_the_prediction_head_of_simsiam_keeps_its_rate(tmp_path: Path, seen: list[dict[str, Any]]) -> None:
    train_vision(images(), "simsiam", flags(None), small("simsiam", epochs=2), tmp_path)
    optimizer = create_optimizer(seen[0]["module"], small("simsiam"))
    heads = {id(each) for each in seen[0]["module"].prediction_head.parameters()}
    constant = [group["constant"] for group in optimizer.param_groups]
    assert [all(id(each) in heads for each in group["params"]) for group in optimizer.param_groups] == constant
    assert sum(len(group["params"]) for group in optimizer.param_groups if group["constant"]) == len(heads)
    for place, kept in enumerate(constant):
        assert (seen[-1]["rates"][place] == seen[0]["rates"][place]) == kept


def test_a_constant_schedule_and_scaling() -> None:
    assert [learning_rate_factor(step, 9, 2, "constant") for step in (0, 1, 8)] == [0.5, 1.0, 1.0]
    assert VisionSettings(batch_size=1024, learning_rate_scaling="linear").scale == 4
    assert VisionSettings(batch_size=1024, learning_rate_scaling="square-root").scale == 32
    assert VisionSettings(batch_size=1024).scale == 1


@pytest.mark.parametrize(
    ("changes", "decayed"),
    [
        ({}, {"weight", "norm"}),
        ({"spare_norms": True}, {"weight"}),
        ({"optimizer": "lars"}, {"weight"}),
        ({"optimizer": "adam"}, {"weight", "norm"}),
    ],
)
def test_weight_decay_spares_what_the_recipe_says_and_temperatures(changes: dict[str, Any], decayed: set[str]) -> None:
    settings = small("simclr", weight_decay=0.1, bias_learning_rate=0.5, learning_rate=0.25, **changes)
    for strategy, temperatures in (("learnable", {"log_scale"}), ("amcl", {"phi.weight", "phi.bias"})):
        module = create_method("simclr", images(), flags(strategy), settings)
        groups = create_optimizer(module, settings).param_groups
        kinds = {}
        for name, parameter in module.named_parameters():
            (group,) = [group for group in groups if any(parameter is each for each in group["params"])]
            temperature = name.removeprefix("loss_fn.strategy.") in temperatures
            kind = "temperature" if temperature else "weight" if parameter.ndim > 1 else "norm"
            kinds[name] = kind
            assert group["weight_decay"] == (0.1 if kind in decayed else 0)
            assert group["lr"] == (0.5 if kind == "norm" else 0.25)
            assert group["adapt"] == (parameter.ndim > 1)
        assert sorted(kinds.values()).count("temperature") == len(temperatures)
        assert {"weight", "norm"} <= set(kinds.values())


def test_momentum_encoders_are_not_optimized() -> None:
    module = create_method("moco", images(), flags("fixed"), small("moco"))
    optimized = {id(each) for group in create_optimizer(module, small("moco")).param_groups for each in group["params"]}
    assert not optimized & {id(each) for each in module.momentum_encoder.parameters()}  # type: ignore[union-attr, operator]
    assert optimized == {id(each) for each in module.parameters() if each.requires_grad}


def test_lars_is_the_formula_in_double_precision() -> None:
    rate, momentum, decay, trust = 0.3, 0.8, 0.05, 0.02
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (2, 3, 3), (5,))]
    start += [torch.zeros(2, 2, dtype=torch.float64)]
    slopes = [[torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in start] for _ in range(4)]
    slopes[1][0] *= 0
    parameters = [nn.Parameter(each.clone()) for each in start]
    optimizer = LARS(
        [
            {"params": parameters[:2] + parameters[3:], "weight_decay": decay},
            {"params": parameters[2:3], "adapt": False, "weight_decay": 0.0},
        ],
        lr=rate,
        momentum=momentum,
        trust=trust,
    )
    weights, velocities = [each.clone() for each in start], [torch.zeros_like(each) for each in start]
    for step in slopes:
        for parameter, slope in zip(parameters, step, strict=True):
            parameter.grad = slope.clone()
        optimizer.step()
        for place, (weight, slope) in enumerate(zip(weights, step, strict=True)):
            gradient, ratio = slope, 1.0
            if place != 2:
                gradient = slope + decay * weight
                weight_norm, norm = math.sqrt(weight.square().sum()), math.sqrt(gradient.square().sum())
                ratio = trust * weight_norm / norm if weight_norm > 0 and norm > 0 else 1.0
            velocities[place] = momentum * velocities[place] + rate * ratio * gradient
            weights[place] = weight - velocities[place]
    for parameter, weight in zip(parameters, weights, strict=True):
        torch.testing.assert_close(parameter.detach(), weight, rtol=1e-12, atol=1e-14)


def test_lars_moves_nothing_without_a_gradient() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    idle = nn.Parameter(torch.ones(2))
    optimizer = LARS([weight, idle], lr=0.1)
    weight.grad = torch.zeros(2, 2)
    optimizer.step()
    assert torch.equal(weight.detach(), torch.zeros(2, 2))
    assert torch.equal(idle.detach(), torch.ones(2))
