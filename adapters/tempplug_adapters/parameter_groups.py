"""Optimizer settings of parameters in losses: no weight decay, and separate learning rates.

It needs only torch, so that Lightning, GraphGym, plain loops and the Trainers share it.
"""

from __future__ import annotations

from typing import Any

from torch import nn

import tempplug


def own_learning_rates(module: nn.Module) -> dict[nn.Parameter, float]:
    """Returns the separate learning rates of parameters of strategies and objectives in a module, by parameter."""
    return {
        parameter: part.learning_rate
        for part in module.modules()
        if isinstance(part, tempplug.Strategy | tempplug.Objective) and part.learning_rate is not None
        for parameter in part.parameters()
    }


def spared_by_decay(module: nn.Module) -> set[str]:
    """Returns the names of the parameters that parts of a module exempt from weight decay (timm's ``no_weight_decay``)."""
    spared = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if callable(names := getattr(part, "no_weight_decay", None))
        for name in names()
    }
    return spared & {name for name, _ in module.named_parameters()}


def by_decay_and_rate(module: nn.Module) -> dict[tuple[bool, float | None], list[nn.Parameter]]:
    """Returns the trainable parameters by whether they are exempt from weight decay, and by their separate learning rate."""
    spared, rates = spared_by_decay(module), own_learning_rates(module)
    groups: dict[tuple[bool, float | None], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name in spared, rates.get(parameter)), []).append(parameter)
    return groups


def optimizer_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Returns parameter groups for a PyTorch optimizer; parameters of the loss have no weight decay.

    The first group is the model with the optimizer's defaults. Then follow the parameters without weight decay, one group for
    each separate learning rate. If the loss has no parameters, there is only the first group.

    Args:
        module: an encoder with its `tempplug.ContrastiveLoss`, or a LightningModule.

    >>> module = nn.ModuleDict({"encoder": nn.Linear(2, 2), "loss": tempplug.ContrastiveLoss("learnable")})
    >>> [(len(group["params"]), group.get("lr"), group.get("weight_decay")) for group in optimizer_groups(module)]
    [(2, None, None), (1, 0.01, 0.0)]
    """
    first: dict[tuple[bool, float | None], list[nn.Parameter]] = {(False, None): []}
    return [
        {"params": parameters, **({"weight_decay": 0.0} if spared else {}), **({} if rate is None else {"lr": rate})}
        for (spared, rate), parameters in (first | by_decay_and_rate(module)).items()
    ]
