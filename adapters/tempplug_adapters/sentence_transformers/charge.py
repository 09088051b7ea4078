"""Management of ranking losses during a training, shared by `TemperatureRankingCallback` and the Trainer.

Progress and period of schedules, equal parameters on all processes, clipping, and the record of the last batch. Callback and
Trainer add checkpoints of the losses and optimizer groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.callback import TemperatureCallback
from tempplug_adapters.huggingface.parameters import (
    LossParametersCallback,
    average_gradients,
    sharded_by,
    trainable,
)
from tempplug_adapters.parameter_groups import spared_by_decay
from tempplug_adapters.sentence_transformers.loss import TemperatureRankingLoss


def ranking_losses(loss: nn.Module | Mapping[str, nn.Module]) -> dict[str, TemperatureRankingLoss]:
    """Returns the ranking losses in a Trainer's loss by their prefix in logs, which is empty for a single loss.

    Args:
        loss: a loss, wrapped or not, or one for each data set.
    """
    given = loss if isinstance(loss, Mapping) else {"": loss}
    found: dict[str, TemperatureRankingLoss] = {}
    for name, each in given.items():
        inside = [module for module in each.modules() if isinstance(module, TemperatureRankingLoss)]
        for place, module in enumerate(inside):
            if all(module is not known for known in found.values()):
                found["_".join(filter(None, [name, str(place) * (len(inside) > 1)]))] = module
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    return {f"{name}_": module for name, module in found.items()}


class Charge(TrainerCallback):
    """Manages the ranking losses of a training.

    The gradients of all losses are clipped together, separately from the model's, with the same ``max_grad_norm``.

    Args:
        loss: loss of the Trainer, wrapped or not, or a dictionary of losses.
        log_record: ``brief`` or ``full``, see `TemperatureCallback.measure`.

    Attributes:
        contrastive_losses: the `tempplug.ContrastiveLoss` of each loss, in the order of `ranking_losses`; contains all state.

    Raises:
        ConfigError: the loss contains no `TemperatureRankingLoss`; at the start of training, the optimizer lacks parameters of
            a loss.
    """

    def __init__(self, loss: nn.Module | Mapping[str, nn.Module], log_record: str = "brief") -> None:
        self.losses = ranking_losses(loss)
        if not self.losses:
            raise ConfigError("loss contains no TemperatureRankingLoss: use one, or train with the library's own Trainer.")
        self.contrastive_losses = nn.ModuleList([each.contrastive_loss for each in self.losses.values()])
        losses = self.losses.items()
        self.watchers = {
            name: TemperatureCallback(each.contrastive_loss, name.removesuffix("_"), log_record) for name, each in losses
        }
        self.parameters = LossParametersCallback(self.contrastive_losses)

    def spared(self) -> list[nn.Parameter]:
        """Returns the parameters without weight decay."""
        names = spared_by_decay(self.contrastive_losses)
        return [parameter for name, parameter in self.contrastive_losses.named_parameters() if name in names]

    def measure(self) -> dict[str, float]:
        """Returns the statistics of the last training batch of each loss, named as in `TemperatureCallback.measure`."""
        return {f"{prefix}{key}": value for prefix, each in self.watchers.items() for key, value in each.measure().items()}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes charge: synchronises the processes, and sets periods and progress of schedules."""
        held = {id(parameter) for group in kwargs["optimizer"].param_groups for parameter in group["params"]}
        lacks = [parameter for parameter in trainable(self.contrastive_losses) if id(parameter) not in held]
        if lacks and not sharded_by():
            raise ConfigError("the optimizer lacks the parameters of the loss: build it with loss.parameters() too.")
        self.parameters.on_train_begin(args, state, control, **kwargs)
        for name, each in self.losses.items():
            each.take_charge(self.watchers[name])
            self.watchers[name].on_train_begin(args, state, control, **kwargs)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Updates the progress of schedules."""
        for each in self.watchers.values():
            each.on_step_begin(args, state, control, **kwargs)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Averages the gradients of the losses over processes, and clips them."""
        average_gradients(self.contrastive_losses)
        self.parameters.on_pre_optimizer_step(args, state, control, **kwargs)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Clears the gradients, also after a step that a gradient scaler skipped."""
        self.parameters.on_optimizer_step(args, state, control, **kwargs)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Passes the records of the last training batch to the ``tempplug_log`` plugins, on the main process."""
        for each in self.watchers.values():
            each.on_log(args, state, control, **kwargs)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Releases the losses."""
        for each in self.losses.values():
            each.release()
