"""What an optimizer must know of what the losses in a module learn: no weight decay, and a learning rate of their own.

It needs torch alone, so that Lightning, GraphGym and plain loops share it with the Trainers.
"""

from __future__ import annotations

from typing import Any

from torch import nn

import tempplug


def own_learning_rates(module: nn.Module) -> dict[nn.Parameter, float]:
    """Returns the learning rates that the strategies and objectives in a module have for what they learn, by parameter."""
    return {
        parameter: part.learning_rate
        for part in module.modules()
        if isinstance(part, tempplug.Strategy | tempplug.Objective) and part.learning_rate is not None
        for parameter in part.parameters()
    }


def spared_by_decay(module: nn.Module) -> set[str]:
    """Returns the names of the parameters that parts of a module exempt from weight decay (timm's ``no_weight_decay``).

    Args:
        module: its strategies and objectives name what they learn.
    """
    spared = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if callable(names := getattr(part, "no_weight_decay", None))
        for name in names()
    }
    return spared & {name for name, _ in module.named_parameters()}


def optimizer_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Returns what any optimizer of PyTorch takes for a module that contains its loss, which never decays.

    The model comes first, with whatever the optimizer has for all; then what is spared by weight decay, a group for each
    learning rate that strategies and objectives have of their own. Where a loss learns nothing there is the first group alone.

    Args:
        module: an encoder with its `tempplug.ContrastiveLoss`, a LightningModule.

    >>> module = nn.ModuleDict({"encoder": nn.Linear(2, 2), "loss": tempplug.ContrastiveLoss("learnable")})
    >>> [(len(group["params"]), group.get("lr"), group.get("weight_decay")) for group in optimizer_groups(module)]
    [(2, None, None), (1, 0.01, 0.0)]
    """
    spared, rates = spared_by_decay(module), own_learning_rates(module)
    groups: dict[tuple[bool, float | None], list[nn.Parameter]] = {(False, None): []}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name in spared, rates.get(parameter)), []).append(parameter)
    return [
        {"params": parameters, **({"weight_decay": 0.0} if kept else {}), **({} if rate is None else {"lr": rate})}
        for (kept, rate), parameters in groups.items()
    ]
