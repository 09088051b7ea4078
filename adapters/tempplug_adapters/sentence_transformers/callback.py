"""`TemperatureRankingCallback`: manages the ranking losses in any Trainer of sentence-transformers.

A callback has access neither to the folder that training resumes from nor to the construction of the optimizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loss_files import read_loss, verify_checkpoint, write_loss
from tempplug_adapters.huggingface.parameters import sharded_by, trainable
from tempplug_adapters.parameter_groups import own_learning_rates
from tempplug_adapters.sentence_transformers.charge import Charge
from tempplug_adapters.storage.manifest import seal


class TemperatureRankingCallback(Charge):
    """Trains τ at its own learning rate without weight decay; clips, saves, restores, synchronises and logs it.

    Pass it to a SentenceTransformerTrainer together with its loss. A `TemperatureSentenceTransformerTrainer` has two
    advantages: it resumes from any folder, the callback only from ``output_dir``; and its logs reach reporting integrations,
    which run before this callback.

    Args:
        loss: loss of the Trainer, wrapped or not, or a dictionary of losses.
        log_record: ``brief`` or ``full``, see `tempplug_adapters.huggingface.TemperatureCallback.measure`.

    Raises:
        ConfigError: the loss contains no `TemperatureRankingLoss`; at the start of training, the optimizer lacks parameters of
            a loss, or DeepSpeed or FSDP is used with a loss that learns.
        DataError: the checkpoint to resume from is damaged, lacks the state of the loss, or has the state of another strategy.
    """

    _hooks: tuple[Any, ...] = ()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Restores the state of a checkpoint if training resumes, and takes charge of the losses."""
        if (backend := sharded_by()) and trainable(self.contrastive_losses):
            raise ConfigError(
                f"{backend} shards the optimizer, and the library's Trainer gives it the parameters of the loss: train with "
                "TemperatureSentenceTransformerTrainer, or choose a strategy and an objective without parameters."
            )
        if state.global_step:
            self._read(args, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        super().on_train_begin(args, state, control, **kwargs)
        self._regroup(kwargs["optimizer"], args.learning_rate)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Adds the state of the losses and the checksums of all files to the checkpoint."""
        folder = Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        PartialState().wait_for_everyone()  # the checkpoint includes the random states of other processes
        if args.should_save:
            write_loss(self.contrastive_losses, folder)
            seal(folder)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Adds the measurements to a training log, in the history and for later callbacks."""
        if "loss" in kwargs.get("logs", {}):
            measured = self.measure()
            kwargs["logs"].update(measured)
            state.log_history[-1].update(measured)
        super().on_log(args, state, control, **kwargs)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Releases the losses; restores their state of the best checkpoint if the model's was restored."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            self._read(args, Path(state.best_model_checkpoint).name)
        for hook in self._hooks:
            hook.remove()
        super().on_train_end(args, state, control, **kwargs)

    def _read(self, args: TrainingArguments, checkpoint: str) -> None:
        folder = Path(str(args.output_dir), checkpoint)
        verify_checkpoint(folder)
        read_loss(self.contrastive_losses, folder)

    def _regroup(self, optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
        """Creates groups without decay, and with separate learning rates, for the duration of every step."""
        # Scheduler and checkpoint depend on the number of groups, so the groups are restored after each step. A parameter whose
        # group has another rate than the run got it from the user, and keeps it.
        inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
        spared = {id(parameter) for parameter in self.spared()}
        rates = own_learning_rates(self.contrastive_losses)
        own = trainable(self.contrastive_losses)
        ours = {id(parameter) for parameter in own if id(parameter) in spared or parameter in rates}
        moved: list[tuple[dict[str, Any], list[nn.Parameter]]] = []
        added: list[dict[str, Any]] = []

        def before(*_: Any) -> None:
            for group in inner.param_groups:
                inside = [parameter for parameter in group["params"] if id(parameter) in ours]
                if not inside:
                    continue
                moved.append((group, group["params"]))
                group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ours]
                as_the_model = group.get("initial_lr", learning_rate) == learning_rate
                for parameter in inside:
                    factor = rates.get(parameter, learning_rate) / learning_rate if as_the_model and learning_rate else 1.0
                    decay = 0.0 if id(parameter) in spared else group.get("weight_decay", 0.0)
                    added.append({**group, "params": [parameter], "lr": group["lr"] * factor, "weight_decay": decay})
            inner.param_groups.extend(added)

        def after(*_: Any) -> None:
            del inner.param_groups[len(inner.param_groups) - len(added) :]
            for group, parameters in moved:
                group["params"] = parameters
            moved.clear()
            added.clear()

        self._hooks = inner.register_step_pre_hook(before), inner.register_step_post_hook(after)


__all__ = ["TemperatureRankingCallback"]
