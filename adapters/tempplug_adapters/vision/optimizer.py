"""Optimizers of a vision training: which parameters decay, LARS, and the learning rate of every step.

It must not know any method but what `StepModule` says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from tempplug_adapters.vision.old_recipe import VisionSettings
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import StepModule

TRUST = 0.001
"""LARS's trust coefficient, as in SimCLR's code."""


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling: each weight moves in proportion to its own norm.

    With g the gradient plus weight_decay · w: g ← trust · ‖w‖/‖g‖ · g, v ← momentum · v + lr · g, w ← w - v. Where ‖w‖ or ‖g‖
    is zero nothing is scaled. A group with ``adapt=False`` is never scaled, which is plain SGD with momentum.

    Args:
        params: parameters or groups of them; a group may set ``adapt`` and each of the options below.
        lr: greater than 0.
        momentum: in [0, 1).
        weight_decay: at least 0.
        trust: greater than 0.

    Source: You et al. 2017, with the order of SimCLR's code (Chen et al. 2020): the decay is part of the gradient whose norm is
    taken, where You et al. divide by ‖∇‖ + weight_decay · ‖w‖; and the learning rate is part of the velocity.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = TRUST,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Moves every parameter that has a gradient.

        Args:
            closure: not used.
        """
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        gradient: Any = parameter.grad
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        update: torch.Tensor = gradient * group["lr"]
        if group["adapt"]:
            weight_norm, gradient_norm = parameter.norm(), gradient.norm()
            # decided on the device: asking for the numbers would wait for it
            scaled = (weight_norm > 0) & (gradient_norm > 0)
            update *= torch.where(scaled, group["trust"] * weight_norm / gradient_norm, 1.0)
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        velocity = state["momentum_buffer"].mul_(group["momentum"]).add_(update)
        parameter.sub_(velocity)


def create_optimizer(module: StepModule, settings: VisionSettings) -> Optimizer:
    """Returns the optimizer of a training.

    Weight decay leaves out temperatures always, and biases and normalisation (all that is no matrix or kernel) where the
    settings say so or the optimizer is LARS, which does not scale those either. SimSiam's prediction head keeps its learning
    rate (Chen and He 2021, section 4.1).

    Args:
        module: with `StepModule.no_weight_decay`.
        settings: of the training.
    """
    temperatures = module.no_weight_decay()
    groups: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            constant = isinstance(module, SimSiam) and name.startswith("prediction_head.")
            groups.setdefault((name in temperatures, parameter.ndim > 1, constant), []).append(parameter)
    spare = settings.spare_norms or settings.optimizer == "lars"
    bias_rate = settings.learning_rate if settings.bias_learning_rate is None else settings.bias_learning_rate
    given: list[dict[str, Any]] = []
    for (temperature, weight, constant), parameters in groups.items():
        rate = settings.scale * (settings.learning_rate if weight or temperature else bias_rate)
        decays = not temperature and (weight or not spare)
        group = {"params": parameters, "lr": rate, "weight_decay": settings.weight_decay if decays else 0.0}
        given.append({**group, "initial_lr": rate, "constant": constant, "adapt": weight})
    rate = settings.scale * settings.learning_rate
    if settings.optimizer == "lars":
        return LARS(given, lr=rate, momentum=settings.momentum)
    if settings.optimizer == "adam":
        return Adam(given, lr=rate, betas=(settings.momentum, 0.999))
    return SGD(given, lr=rate, momentum=settings.momentum)


def learning_rate_factor(step: int, steps: int, warmup_steps: int, schedule: str = "cosine") -> float:
    """Returns what the learning rate is multiplied by at a step: it rises in equal parts to 1 and then follows the schedule.

    Args:
        step: from 0.
        steps: of the whole training.
        warmup_steps: the last of them has 1.
        schedule: ``cosine``, half a wave that would reach 0 one step after the last; or ``constant``.

    >>> [round(learning_rate_factor(step, 6, 2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))


def set_learning_rates(optimizer: Optimizer, factor: float) -> None:
    """Sets the learning rate of each group; one with ``constant`` keeps its own.

    Args:
        optimizer: of `create_optimizer`.
        factor: at least 0.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * (1.0 if group["constant"] else factor)
