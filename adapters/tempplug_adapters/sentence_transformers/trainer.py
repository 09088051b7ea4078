"""Management of ranking losses in a training, by a callback for any Trainer of sentence-transformers, or by a Trainer of ours.

`Charge` has what both share: progress and period of schedules, equal parameters on all processes, clipping, and the record of
the last batch. Callback and Trainer add checkpoints of the losses and optimizer groups. A callback has access neither to the
folder that training resumes from nor to the construction of the optimizer.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from sentence_transformers import SentenceTransformerTrainer
from torch import nn
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from tempplug.errors import ConfigError
from tempplug_adapters.data_parallel import use_accelerate
from tempplug_adapters.huggingface.callback import GainCallback, TemperatureCallback
from tempplug_adapters.huggingface.loss_files import LossMixin, read_loss, verify_checkpoint, write_loss
from tempplug_adapters.huggingface.parameters import (
    LossParametersCallback,
    average_gradients,
    sharded_by,
    trainable,
)
from tempplug_adapters.parameter_groups import own_learning_rates, spared_by_decay
from tempplug_adapters.sentence_transformers.columns import NamedColumns, check_columns, check_labels, check_texts
from tempplug_adapters.sentence_transformers.loss import TemperatureRankingLoss
from tempplug_adapters.storage.manifest import seal


def ranking_losses(loss: nn.Module | Mapping[str, nn.Module]) -> dict[str, TemperatureRankingLoss]:
    """Returns the ranking losses in a Trainer's loss, or in those of its data sets, by their prefix in logs.

    The prefix of a single loss is empty.
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


class Charge(GainCallback):
    """Manages the ranking losses of a training, and says what it gained.

    Arguments and errors are those of `TemperatureRankingCallback`. The gradients of all losses are clipped together, separately
    from the model's, with the same ``max_grad_norm``.

    Attributes:
        contrastive_losses: the `tempplug.ContrastiveLoss` of each loss, in the order of `ranking_losses`; contains all state.
    """

    def __init__(self, loss: nn.Module | Mapping[str, nn.Module], log_record: str = "brief") -> None:
        self.losses = ranking_losses(loss)
        if not self.losses:
            raise ConfigError("loss contains no TemperatureRankingLoss: use one, or train with the library's own Trainer.")
        losses = {name: each.contrastive_loss for name, each in self.losses.items()}
        self.contrastive_losses = nn.ModuleList(losses.values())
        self.watchers = {name: TemperatureCallback(each, name.removesuffix("_"), log_record) for name, each in losses.items()}
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
        lacks = any(id(parameter) not in held for parameter in trainable(self.contrastive_losses))
        if lacks and not sharded_by():
            raise ConfigError("the optimizer lacks the parameters of the loss: build it with loss.parameters() too.")
        check_texts(getattr(kwargs.get("train_dataloader"), "dataset", None), "train_dataset")
        self.parameters.on_train_begin(args, state, control, **kwargs)
        for name, each in self.losses.items():
            each.take_charge(self.watchers[name])
            self.watchers[name].on_train_begin(args, state, control, **kwargs)
        super().on_train_begin(args, state, control, **kwargs)

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
        """Releases the losses, and writes the gain."""
        for each in self.losses.values():
            each.release()
        super().on_train_end(args, state, control, **kwargs)


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


class TemperatureSentenceTransformerTrainer(LossMixin, SentenceTransformerTrainer):
    """A SentenceTransformerTrainer for losses that are, or contain, ranking losses with temperature strategies.

    The parameters of the losses are optimised at separate learning rates without weight decay, averaged over processes, clipped
    separately, saved as ``contrastive_loss.pt`` in each checkpoint, and restored on resume and with the best model. Schedules
    get their progress at every step, and a default period from the length of the run. Logs include
    `TemperatureCallback.measure`. Numeric columns that a loss reads, such as ``index``, are passed to it (`NamedColumns`).
    With an ``evaluator`` or an ``eval_dataset`` the training begins and ends with an evaluation, and says what it gained.

    Args:
        *args: arguments of the library's Trainer.
        log_record: ``brief`` or ``full``, see `tempplug_adapters.huggingface.TemperatureCallback.measure`.
        measure_gain: whether to evaluate the untrained model, and a model that ``eval_strategy`` does not evaluate.
        **kwargs: arguments of the library's Trainer.

    Raises:
        ConfigError: the loss contains no `TemperatureRankingLoss`; a data set lacks a column that the loss reads; an optimizer
            with a scheduler lacks the parameters of the loss.
        DataError: such a column holds something else than numbers, or a column lists of texts; in a batch, or among its first
            1,000 rows.
    """

    def __init__(self, *args: Any, log_record: str = "brief", measure_gain: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(TemperatureRankingCallback)  # one is enough
        self.charge = Charge(self.loss, log_record)
        self.charge.measures = measure_gain and (self.evaluator is not None or self.eval_dataset is not None)
        self.add_callback(self.charge)
        use_accelerate(self.charge.contrastive_losses, self.accelerator)
        self.look_after(self.charge.contrastive_losses, self.charge.parameters)
        wanted = {name for each in self.charge.losses.values() for name in each.columns}
        if wanted:
            self.data_collator: Any = NamedColumns(self.data_collator, wanted)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Checks the columns that the losses read, before the library makes statistics of them for the model card."""
        labels = getattr(self.data_collator, "valid_label_columns", [])
        for kind, given in (("train_dataset", self.train_dataset), ("eval_dataset", self.eval_dataset)):
            for name, each in given.items() if isinstance(given, dict) else [("", given)]:
                loss = self.loss.get(name, nn.Identity()) if isinstance(self.loss, dict) else self.loss
                read = frozenset().union(*(one.columns for one in ranking_losses(loss).values()))
                where = f"{kind}[{name!r}]" if name else kind
                check_texts(each, where)
                check_columns(each, read, labels, where)
                if isinstance(loss, TemperatureRankingLoss):
                    check_labels(each, loss.positives, read, labels)
        super().add_model_card_callback(default_args_dict)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Returns the names of the parameters with weight decay, without those that the losses exempt."""
        spared = {id(parameter) for parameter in self.charge.spared()}
        own = dict(model.named_parameters(remove_duplicate=False))
        return [name for name in super().get_decay_parameter_names(model) if id(own[name]) not in spared]

    def get_optimizer_cls_and_kwargs(self, args: Any, model: Any = None) -> tuple[Any, Any]:  # type: ignore[override]
        """Returns the optimizer's class and groups, with separate groups for parameters with separate learning rates.

        A ``learning_rate_mapping`` of the user has precedence.
        """
        rates = own_learning_rates(self.contrastive_loss)
        loss = nn.Sequential(OrderedDict(self.loss)) if isinstance(self.loss, dict) else self.loss
        own = {f"^{re.escape(name)}$": rates[each] for name, each in loss.named_parameters() if each in rates}
        given = args.learning_rate_mapping
        args.learning_rate_mapping = {**own, **given}
        try:
            kind, options = super().get_optimizer_cls_and_kwargs(args, model)
        finally:
            args.learning_rate_mapping = given
        return kind, options

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs; a training log (one with a loss) includes the statistics of the last training batch."""
        if "loss" in logs:
            logs.update(self.charge.measure())
        super().log(logs, *args, **kwargs)
