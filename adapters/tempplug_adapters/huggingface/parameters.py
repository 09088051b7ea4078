"""What a Trainer does for the parameters of its model, for those of a loss outside the model: optimizer groups, the same start
on all processes, averaged gradients, clipping and zeroing. This module must not know what the loss computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tempplug.distributed import active
from tempplug.errors import ConfigError
from tempplug_adapters.parameter_groups import own_learning_rates, spared_by_decay


def trainable(loss: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters that an optimizer must see, in order of declaration."""
    return [parameter for parameter in loss.parameters() if parameter.requires_grad]


def add_parameter_groups(optimizer: torch.optim.Optimizer, loss: nn.Module, weight_decay: float) -> bool:
    """Adds the parameters of the loss that the optimizer lacks, a group for each learning rate: decayed ones first.

    Groups without parameters are left out, so that a loss that learns nothing leaves the optimizer as it was.

    Args:
        optimizer: any optimizer that takes ``add_param_group``; a group has the own learning rate of a strategy or an
            objective, or the default.
        loss: where the parameters come from.
        weight_decay: of the parameters that it does not spare.

    Returns:
        Whether a group was added.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    spared, rates = spared_by_decay(loss), own_learning_rates(loss)
    groups: dict[tuple[bool, float | None], list[nn.Parameter]] = {}
    for name, parameter in loss.named_parameters():
        if parameter.requires_grad and id(parameter) not in held:
            groups.setdefault((name in spared, rates.get(parameter)), []).append(parameter)
    for (kept, rate), parameters in sorted(groups.items(), key=lambda group: group[0][0]):
        own = {} if rate is None else {"lr": rate}
        optimizer.add_param_group({"params": parameters, "weight_decay": 0.0 if kept else weight_decay, **own})
    return bool(groups)


@torch.no_grad()
def average_gradients(loss: nn.Module) -> None:
    """Replaces the gradient of every parameter by its mean over all processes; every process must call it.

    A parameter without a gradient counts as zero, so that no process waits for another one forever.
    """
    if not active():
        return
    for parameter in trainable(loss):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        # a sum, because gloo has no mean
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()


@torch.no_grad()
def broadcast_state(loss: nn.Module) -> None:
    """Gives every process the parameters and buffers of process 0; every process must call it."""
    if not active():
        return
    tensors: list[Tensor] = [*loss.parameters(), *loss.buffers()]
    for tensor in tensors:
        distributed.broadcast(tensor, src=0)


def refuse_sharding(loss: nn.Module, backend: str) -> None:
    """Raises `ConfigError` where the loss learns something, for backends that own the whole optimizer."""
    if trainable(loss):
        raise ConfigError(
            f"contrastive_loss has trainable parameters, which {backend} would neither shard nor save: "
            "train with DistributedDataParallel, or choose a strategy and an objective that learn nothing."
        )


class LossParametersCallback(TrainerCallback):
    """Starts, clips and zeroes the parameters of a loss at the moments when the Trainer does so for its model.

    Clipping is separate from the model's: the gradients of the loss get ``max_grad_norm`` of their own. The Trainer clips
    ``model.parameters()`` alone, and one joint norm would let a steep temperature gradient shrink the steps of the encoder.

    Args:
        loss: has the parameters.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Makes all processes start equal, with empty gradients."""
        broadcast_state(self.loss)
        self.loss.zero_grad()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Clips; by now the gradients are averaged over processes and free of the scale of a gradient scaler."""
        if args.max_grad_norm:
            nn.utils.clip_grad_norm_(trainable(self.loss), args.max_grad_norm)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Empties the gradients, also after a step that a gradient scaler skipped."""
        self.loss.zero_grad()
