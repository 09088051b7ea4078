"""Taking charge of the ranking losses of a training: what `TemperatureRankingCallback` and the Trainer have in common.

Progress and period of schedules, equal parameters on all processes, clipping, and the record of the last batch. The two add the
files of the losses' state and the optimizer groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.callback import TemperatureCallback
from tempplug_adapters.huggingface.parameters import (
    LossParametersCallback,
    average_gradients,
    refuse_sharding,
    trainable,
)
from tempplug_adapters.parameter_groups import spared_by_decay
from tempplug_adapters.sentence_transformers.loss import TemperatureRankingLoss


def ranking_losses(loss: nn.Module | Mapping[str, nn.Module]) -> dict[str, TemperatureRankingLoss]:
    """Returns the ranking losses inside a loss, or inside each of several, by a prefix for logs: empty for a single one.

    Args:
        loss: of a Trainer: a loss, wrapped or not, or one for each data set.
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
    """Looks after the ranking losses of a training while it lasts.

    Clipping is of all that the losses learn together, apart from the model's, with the same ``max_grad_norm``.

    Args:
        loss: of the Trainer: a loss, wrapped or not, or a dictionary of them.

    Attributes:
        contrastive_losses: what the losses compute with, in the order of `ranking_losses`; holds all state there is.

    Raises:
        ConfigError: there is no `TemperatureRankingLoss` in it; when training starts, an optimizer that lacks parameters of a
            loss, or DeepSpeed or FSDP around one that learns.
    """

    def __init__(self, loss: nn.Module | Mapping[str, nn.Module]) -> None:
        self.losses = ranking_losses(loss)
        if not self.losses:
            raise ConfigError("loss holds no TemperatureRankingLoss, so there is nothing to take charge of.")
        self.contrastive_losses = nn.ModuleList([each.contrastive_loss for each in self.losses.values()])
        self.watchers = {
            name: TemperatureCallback(each.contrastive_loss, name.removesuffix("_")) for name, each in self.losses.items()
        }
        self._parameters = LossParametersCallback(self.contrastive_losses)

    def spared(self) -> list[nn.Parameter]:
        """Returns the parameters that weight decay must spare."""
        names = spared_by_decay(self.contrastive_losses)
        return [parameter for name, parameter in self.contrastive_losses.named_parameters() if name in names]

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last training batch of each loss, as `TemperatureCallback.measure` names them."""
        return {f"{prefix}{key}": value for prefix, each in self.watchers.items() for key, value in each.measure().items()}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes charge: the same start on all processes, periods, progress."""
        if (backend := AcceleratorState().distributed_type) in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            refuse_sharding(self.contrastive_losses, backend.value)
        held = {id(parameter) for group in kwargs["optimizer"].param_groups for parameter in group["params"]}
        if any(id(parameter) not in held for parameter in trainable(self.contrastive_losses)):
            raise ConfigError("the optimizer lacks the parameters of the loss: build it with loss.parameters() too.")
        self._parameters.on_train_begin(args, state, control, **kwargs)
        for name, each in self.losses.items():
            each.take_charge(self.watchers[name])
            self.watchers[name].on_train_begin(args, state, control, **kwargs)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tells the losses how far training is."""
        for each in self.watchers.values():
            each.on_step_begin(args, state, control, **kwargs)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Averages the gradients of the losses over processes, and clips them."""
        average_gradients(self.contrastive_losses)
        self._parameters.on_pre_optimizer_step(args, state, control, **kwargs)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Empties the gradients, also after a step that a gradient scaler skipped."""
        self._parameters.on_optimizer_step(args, state, control, **kwargs)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Hands the records of the last training batch to the ``tempplug_log`` plugins, on the main process."""
        for each in self.watchers.values():
            each.on_log(args, state, control, **kwargs)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Releases the losses."""
        for each in self.losses.values():
            each.release()
