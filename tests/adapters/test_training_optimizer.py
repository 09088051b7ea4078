"""LARS: its formula in double precision."""

from __future__ import annotations

import math

import torch
from torch import nn

from tempplug_adapters.training.optimizer import LARS


def test_lars_is_the_formula_in_double_precision() -> None:
    rate, momentum, decay, trust = 0.3, 0.8, 0.05, 0.02
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (2, 3, 3), (5,))]
    start += [torch.zeros(2, 2, dtype=torch.float64)]
    slopes = [[torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in start] for _ in range(4)]
    slopes[1][0] *= 0
    parameters = [nn.Parameter(each.clone()) for each in start]
    idle = nn.Parameter(torch.ones(2))
    optimizer = LARS(
        [
            {"params": parameters[:2] + parameters[3:], "weight_decay": decay},
            {"params": [*parameters[2:3], idle], "adapt": False, "weight_decay": 0.0},
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
    assert torch.equal(idle.detach(), torch.ones(2)), "it has no gradient"
