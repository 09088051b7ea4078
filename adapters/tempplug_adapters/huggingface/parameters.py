"""Treats the parameters of a loss outside the model as a Trainer treats those of its model.

It adds optimizer groups, broadcasts the initial values, averages gradients over processes, clips and zeroes them. It is
independent of what the loss computes.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch import distributed, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, get_scheduler

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


def leave_out(optimizer: torch.optim.Optimizer, loss: nn.Module) -> None:
    """Removes the parameters of a loss from an optimizer that has taken no step."""
    own = {id(parameter) for parameter in loss.parameters()}
    for group in optimizer.param_groups:
        group["params"] = [each for each in group["params"] if id(each) not in own]
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


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


def sharded_by() -> str:
    """Returns which backend of accelerate manages model and optimizer together, ``FSDP`` or ``DEEPSPEED``; empty for none."""
    kind = AcceleratorState().distributed_type
    return str(kind.value) if kind in (DistributedType.FSDP, DistributedType.DEEPSPEED) else ""


class LossParametersCallback(TrainerCallback):
    """Broadcasts, clips and zeroes the parameters of a loss when the Trainer does so for its model.

    Gradients of the loss are clipped to ``max_grad_norm`` separately: with a joint norm, a large gradient of a temperature
    would shrink the steps of the encoder.

    FSDP and DeepSpeed shard the optimizer together with the model. There, every process holds the few parameters of the loss
    whole, and an AdamW of its own trains them, with the rates, betas and scheduler of the training arguments: ``optimizer``,
    which is None otherwise.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.optimizer: torch.optim.Optimizer | None = None
        self._scheduler: Any = None
        self._state: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of `optimizer` and its scheduler; empty without."""
        if self.optimizer is None:
            return {}
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the state that `optimizer` starts from, once it exists."""
        self._state = state

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Makes the parameters equal on all processes, and clears the gradients.

        Raises:
            ConfigError: FSDP or DeepSpeed scales the loss of a float16 training, and the loss has parameters.
        """
        broadcast_state(self.loss)
        self.loss.zero_grad()
        self.optimizer = None
        if (backend := sharded_by()) and trainable(self.loss):
            if args.fp16:
                raise ConfigError(
                    f"fp16=True: {backend} scales the gradients of the model alone, and contrastive_loss has parameters: "
                    "train with bf16, or with DistributedDataParallel."
                )
            self._create_optimizer(args, state.max_steps)

    def _create_optimizer(self, args: TrainingArguments, steps: int) -> None:
        groups = [
            {"params": parameters, "weight_decay": 0.0 if spared else args.weight_decay, "lr": rate or args.learning_rate}
            for (spared, rate), parameters in by_decay_and_rate(self.loss).items()
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
        warmup = args.get_warmup_steps(steps)
        more: Any = args.lr_scheduler_kwargs or None
        self._scheduler = get_scheduler(args.lr_scheduler_type, self.optimizer, warmup, steps, more)
        if self._state is not None:
            self.optimizer.load_state_dict(self._state["optimizer"])
            self._scheduler.load_state_dict(self._state["scheduler"])
            self._state = None

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Clips the gradients, which are averaged over processes and unscaled at this point."""
        if args.max_grad_norm:
            nn.utils.clip_grad_norm_(trainable(self.loss), args.max_grad_norm)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the step of `optimizer`, and clears the gradients, also after a step that a gradient scaler skipped."""
        if self.optimizer is not None:
            self.optimizer.step()
            self._scheduler.step()
        self.loss.zero_grad()
