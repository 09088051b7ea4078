"""Optimizers by name, their parameter groups (weight decay and learning rates), and LARS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from tempplug_adapters.parameter_groups import own_learning_rates, spared_by_decay
from tempplug_adapters.training.recipe import Recipe

TRUST = 0.001
"""LARS's trust coefficient, as in SimCLR's code."""


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling: the step of each weight is proportional to its norm.

    With g the gradient plus weight_decay · w: g ← trust · ‖w‖/‖g‖ · g, v ← momentum · v + lr · g, w ← w - v. If ‖w‖ or ‖g‖ is
    zero, g is not scaled. A group with ``adapt=False`` is never scaled, which is plain SGD with momentum.

    Args:
        params: parameters or parameter groups; a group may set ``adapt`` and each of the options below.
        lr: greater than 0.
        momentum: in [0, 1).
        weight_decay: at least 0.
        trust: greater than 0.

    Source: You et al. 2017, in the variant of SimCLR's code (Chen et al. 2020): weight decay is added to the gradient before
    its norm is taken, while You et al. divide by ‖∇‖ + weight_decay · ‖w‖; and the learning rate is part of the velocity.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = TRUST
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Updates every parameter that has a gradient; ``closure`` is not used."""
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
            # decided on the device, because reading the numbers would synchronise
            scaled = (weight_norm > 0) & (gradient_norm > 0)
            update *= torch.where(scaled, group["trust"] * weight_norm / gradient_norm, 1.0)
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        velocity = state["momentum_buffer"].mul_(group["momentum"]).add_(update)
        parameter.sub_(velocity)


@dataclass(frozen=True)
class Treatment:
    """Optimizer settings of a parameter.

    Attributes:
        decays: whether weight decay applies.
        adapts: whether LARS scales its steps.
        rate: factor of the training's learning rate.
        own: a learning rate that replaces it, see `tempplug.Strategy.learning_rate`.
        constant: whether the learning rate ignores the schedule.
    """

    decays: bool = True
    adapts: bool = True
    rate: float = 1.0
    constant: bool = False
    own: float | None = None


def parameter_groups(
    module: nn.Module, recipe: Recipe, learning_rate: float, treatment: Callable[[str, nn.Parameter], Treatment]
) -> list[dict[str, Any]]:
    """Returns the groups of a module's trainable parameters; parameters of its loss have no weight decay.

    Parameters with a learning rate of their own come last, so that the first rate of a scheduler is the model's.

    Args:
        module: the module, including its loss.
        recipe: supplies the weight decay.
        learning_rate: learning rate of a parameter with ``rate`` 1.
        treatment: maps the name of a parameter to its settings.
    """
    spared, rates = spared_by_decay(module), own_learning_rates(module)
    groups: dict[Treatment, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            kind = Treatment(decays=False, adapts=False) if name in spared else treatment(name, parameter)
            groups.setdefault(replace(kind, own=rates.get(parameter)), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": kind.rate * learning_rate if kind.own is None else kind.own,
            "weight_decay": recipe.weight_decay if kind.decays else 0.0,
            "adapt": kind.adapts,
            "constant": kind.constant,
        }
        for kind, parameters in sorted(groups.items(), key=lambda group: group[0].own is not None)
    ]


def create_optimizer(groups: list[dict[str, Any]], recipe: Recipe, learning_rate: float) -> Optimizer:
    """Returns the optimizer named by a recipe.

    Args:
        groups: result of `parameter_groups`.
        recipe: supplies the name and the momentum.
        learning_rate: learning rate of groups without one.
    """
    match recipe.optimizer:
        case "lars":
            return LARS(groups, lr=learning_rate, momentum=recipe.momentum)
        case "sgd":
            return SGD(groups, lr=learning_rate, momentum=recipe.momentum)
        case "adamw":
            # fused takes a third of the time, on a CPU as well (5 million weights, one thread)
            return AdamW(groups, lr=learning_rate, betas=(recipe.momentum, 0.999), fused=True)
        case _:
            return Adam(groups, lr=learning_rate, betas=(recipe.momentum, 0.999))
