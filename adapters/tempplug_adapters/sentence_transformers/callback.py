"""`TemperatureRankingCallback`: takes charge of the ranking losses inside any Trainer of sentence-transformers.

A callback sees neither the folder that training resumes from nor the making of the optimizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from tempplug_adapters.huggingface.loss_files import read_loss, verify_checkpoint, write_loss
from tempplug_adapters.huggingface.parameters import trainable
from tempplug_adapters.parameter_groups import own_learning_rates
from tempplug_adapters.sentence_transformers.charge import Charge
from tempplug_adapters.storage.manifest import seal


class TemperatureRankingCallback(Charge):
    """Gives τ its learning rate, spares it weight decay, clips, saves, restores and synchronises it, tells schedules, and logs.

    Give it to a SentenceTransformerTrainer with the loss that it trains with. Two things a
    `TemperatureSentenceTransformerTrainer` does better: it resumes from any folder, where this one looks into ``output_dir``;
    and its logs reach reporting integrations, which come before this callback.

    Args:
        loss: of the Trainer: a loss, wrapped or not, or a dictionary of them.

    Raises:
        ConfigError: there is no `TemperatureRankingLoss` in it; when training starts, an optimizer that lacks parameters of a
            loss, or DeepSpeed or FSDP around one that learns.
        DataError: the checkpoint that training resumes from is damaged, lacks the state of the loss, or has that of another
            strategy.
    """

    _hooks: tuple[Any, ...] = ()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes charge, after reading what the checkpoint has where training resumes."""
        if state.global_step:
            self._read(args, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        super().on_train_begin(args, state, control, **kwargs)
        self._regroup(kwargs["optimizer"], args.learning_rate)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Puts the state of the losses into the checkpoint, and the checksums of all its files."""
        folder = Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        PartialState().wait_for_everyone()  # the random states of other processes are part of it
        if args.should_save:
            write_loss(self.contrastive_losses, folder)
            seal(folder)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Adds the measurements to a training log: in the history, and for the callbacks that come after this one."""
        if "loss" in kwargs.get("logs", {}):
            measured = self.measure()
            kwargs["logs"].update(measured)
            state.log_history[-1].update(measured)
        super().on_log(args, state, control, **kwargs)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Lets go, with the state of the best checkpoint where the model has gone back to it."""
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
        """Makes groups without decay, and at learning rates of their own, for the time of every step."""
        # Scheduler and checkpoint count the groups, which therefore cannot change for longer. A parameter whose group has
        # another rate than that of the run was given one by the user, and keeps it.
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
