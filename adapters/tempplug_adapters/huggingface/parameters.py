"""Treats the parameters of a loss outside the model as a Trainer treats those of its model.

It adds optimizer groups, broadcasts the initial values, averages gradients over processes, clips and zeroes them. It is
independent of what the loss computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tempplug.distributed import active
from tempplug.errors import ConfigError
from tempplug_adapters.parameter_groups import by_decay_and_rate


def trainable(loss: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters of a loss that require a gradient, in order of declaration."""
    return [parameter for parameter in loss.parameters() if parameter.requires_grad]


def add_parameter_groups(optimizer: torch.optim.Optimizer, loss: nn.Module, weight_decay: float) -> bool:
    """Adds the parameters of a loss that the optimizer lacks, one group for each learning rate; decayed ones come first.

    Args:
        optimizer: the optimizer of the model; a group has the separate learning rate of a strategy or an objective, or the
            optimizer's default.
        loss: the loss.
        weight_decay: weight decay of the parameters that are not exempt from it.

    Returns:
        Whether a group was added.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    added = False
    for (spared, rate), parameters in sorted(by_decay_and_rate(loss).items(), key=lambda group: group[0][0]):
        own = {} if rate is None else {"lr": rate}
        if lacking := [each for each in parameters if id(each) not in held]:
            optimizer.add_param_group({"params": lacking, "weight_decay": 0.0 if spared else weight_decay, **own})
            added = True
    return added


@torch.no_grad()
def average_gradients(loss: nn.Module) -> None:
    """Replaces the gradient of every parameter by its mean over all processes; every process must call it.

    A missing gradient counts as zero, so that all processes take part in the same collectives.
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
    """Copies the parameters and buffers of process 0 to all processes; every process must call it."""
    if not active():
        return
    for tensor in (*loss.parameters(), *loss.buffers()):
        distributed.broadcast(tensor, src=0)


def refuse_sharding(loss: nn.Module, backend: str) -> None:
    """Raises `ConfigError` if the loss has trainable parameters, for backends that manage the whole optimizer."""
    if trainable(loss):
        raise ConfigError(
            f"contrastive_loss has trainable parameters, which {backend} would neither shard nor save: "
            "train with DistributedDataParallel, or choose a strategy and an objective without parameters."
        )


class LossParametersCallback(TrainerCallback):
    """Broadcasts, clips and zeroes the parameters of a loss when the Trainer does so for its model.

    Gradients of the loss are clipped to ``max_grad_norm`` separately: with a joint norm, a large gradient of a temperature
    would shrink the steps of the encoder.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Makes the parameters equal on all processes, and clears the gradients."""
        broadcast_state(self.loss)
        self.loss.zero_grad()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Clips the gradients, which are averaged over processes and unscaled at this point."""
        if args.max_grad_norm:
            nn.utils.clip_grad_norm_(trainable(self.loss), args.max_grad_norm)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Clears the gradients, also after a step that a gradient scaler skipped."""
        self.loss.zero_grad()
