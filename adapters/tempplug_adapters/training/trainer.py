"""The training loop: the Hugging Face Trainer for any method; the module of a method contains its loss and returns it.

Flags, precision, accumulation, clipping, multiple processes, logs, checkpoints and resume are the Trainer's. Additions use only
its public methods and callbacks, which a test checks.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    set_seed,
)

from tempplug.errors import ConfigError, DataError, NonFiniteError, TempplugError
from tempplug.gradient_cache import EmbeddedParts
from tempplug_adapters.encoder_checks import check_finite_weights
from tempplug_adapters.huggingface.callback import LogFile, LossProgress
from tempplug_adapters.huggingface.mini_batches import TwoPassMixin, check_mini_batches
from tempplug_adapters.measurements import check_record, logged, measure
from tempplug_adapters.modes import evaluating
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.fingerprint import Fingerprint
from tempplug_adapters.storage.tensors import read_tensors
from tempplug_adapters.training.batches import FAULT, BatchLoader, BatchOrder, seed_generators, seed_of
from tempplug_adapters.training.callbacks import Ending, EpochFlow, SealedCheckpoints, TemperatureStatistics
from tempplug_adapters.training.checkpoints import DATA_FILE, SETTINGS_FILE, STATE_FILE, TRAINER_STATE, find_best
from tempplug_adapters.training.last_step import LastStep
from tempplug_adapters.training.method import Method, Run
from tempplug_adapters.training.optimizer import create_optimizer, parameter_groups
from tempplug_adapters.training.recipe import Recipe
from tempplug_adapters.training.termination import Terminated, on_termination
from tempplug_adapters.training.watchdog import Watchdog

if TYPE_CHECKING:
    from tempplug_adapters.training.train import MethodArguments

_OURS = "MethodTrainer"
"""Key in the state of a checkpoint: sums of the losses since the last log, and measurements of the temperatures."""


def batch_order(method: Method[Any, Any], recipe: Recipe, data: Any, args: Any) -> BatchOrder:
    """Returns this process's share of the batches of a training; raises ConfigError if they do not fit the data."""
    size = None if recipe.per_device_train_batch_size is None else args.per_device_train_batch_size * args.world_size
    return BatchOrder(
        len(data),
        size,
        recipe.seed,
        rank=args.process_index,
        world=args.world_size,
        drop_last=args.dataloader_drop_last,
        reshuffled=method.reshuffled,
        keys=method.keys(recipe, data),
    )


class MethodTrainer(TwoPassMixin, Trainer):
    """Trains the module of a method.

    Args:
        method: the method.
        recipe: its settings.
        module: result of `Method.build`.
        data: result of `Method.load`.
        args: arguments of the run; checkpoints beyond ``save_total_limit`` are removed after the newest one is complete.
        settings: settings of the run, stored in every checkpoint.
        callbacks: further callbacks.
        evaluation: inputs of evaluations.
        watchdog: watches the other processes.
        log_record: numbers of the last batch in a training log, see `tempplug_adapters.measurements.logged`.

    Attributes:
        fingerprint: of the data, stored in every checkpoint; None if they are not compared.
        losses: sum and number of the losses since the last log; checkpoints have them, so that no log lacks any after resuming.
        untrained_seconds: of the evaluation before the first step.

    Raises:
        ConfigError: the batches do not fit the data or the number of processes.
    """

    loss_is_scaled_for_ga: bool | None = False
    fingerprint: Fingerprint | None = None
    untrained_seconds = 0.0

    def __init__(
        self,
        method: Method[Any, Any],
        recipe: Recipe,
        module: nn.Module,
        data: Any,
        args: MethodArguments,
        settings: Mapping[str, Any],
        callbacks: list[TrainerCallback],
        evaluation: Run,
        watchdog: Watchdog,
        log_record: str = "brief",
    ) -> None:
        self.log_record = check_record(log_record)
        self.method, self.recipe, self.data, self.settings, self.evaluation = method, recipe, data, settings, evaluation
        self.module = module  # never wrapped, unlike the Trainer's model
        if args.early_stopping_patience is not None:
            callbacks = [*callbacks, EarlyStoppingCallback(args.early_stopping_patience)]
        self.temperatures = TemperatureStatistics(module)
        self.sealing = SealedCheckpoints(args.save_total_limit)
        args.save_total_limit = None
        self.watchdog, self.last_step, self.ending = watchdog, LastStep(self), Ending()
        progress = LossProgress(module, getattr(module, "loss_fn", None))
        # the last two must be last, because other callbacks may request actions at the last step of an epoch
        ours = [LogFile(), progress, self.temperatures, watchdog, self.last_step, EpochFlow(), self.ending]
        super().__init__(model=module, args=args, eval_dataset=data, callbacks=[*callbacks, *ours])
        for printer in (PrinterCallback, ProgressCallback):
            self.remove_callback(printer)
        self.callback_handler.callbacks.insert(0, self.sealing)
        self.model_accepts_loss_kwargs = False
        if check_mini_batches(args.contrastive_mini_batch_size) is not None and not hasattr(module, "rows_to_embed"):
            raise ConfigError(f"contrastive_mini_batch_size has no meaning for method '{method.info.name}': leave it out.")
        self.losses: list[Any] = [0.0, 0]
        self._drawn = (-1, 0)

    @cached_property
    def order(self) -> BatchOrder:
        """The batches, created on first use."""
        return batch_order(self.method, self.recipe, self.data, self.args)

    def get_train_dataloader(self) -> BatchLoader:
        """Returns a loader of this process's share of the batches."""
        return BatchLoader(
            self.order,
            partial(self.method.collate, self.recipe, self.data),
            workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Trains; after a termination signal, it finishes the current step, saves and ends.

        Args:
            resume_from_checkpoint: a folder verified by `checkpoints.resume_point`.
            *args: of the Trainer.
            **kwargs: of the Trainer.

        Raises:
            DataError: the checkpoint belongs to another module.
            NotWrittenError: a checkpoint cannot be written.
            RuntimeError: a collective failed because another process did; the last step is saved, if possible.
            Terminated: a signal ended the training.
        """
        if isinstance(resume_from_checkpoint, str):
            self.load_state(resume_from_checkpoint)
        # The Trainer runs the garbage collector. Passing over all objects from before the training would take as long as a
        # small training.
        gc.freeze()
        try:
            with on_termination(self.ending.receive), self.sealing.cleaning(writes=self.args.should_save):
                try:
                    output = super().train(resume_from_checkpoint, *args, **kwargs)
                except RuntimeError as error:
                    if not (isinstance(error, TempplugError) or self.sealing.failed_to_write(error)):
                        self.watchdog.fail()
                        self.watchdog.saved = self.last_step.save()
                    raise
        finally:
            gc.unfreeze()
        if self.ending.signal:
            raise Terminated("after the last step", self.ending.signal)
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            load_module(self.module, self.state.best_model_checkpoint)  # the Trainer warns if it did not find all files
        return output

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Computes loss and gradients of a micro-batch with a random state given by seed, step and process."""
        if FAULT in inputs:
            raise inputs[FAULT]
        self.last_step.begin()
        step = self.state.global_step
        self._drawn = (step, self._drawn[1] + 1 if self._drawn[0] == step else 0)
        seed_generators(seed_of(self.recipe.seed, "step", *self._drawn, self.args.process_index), self.args.device)
        try:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        except NonFiniteError as error:
            raise self._diverged(str(error)) from error
        self.losses[0] = self.losses[0] + loss * self.current_gradient_accumulation_steps
        self.losses[1] += 1
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Returns the loss, [], which the module computes."""
        arguments, module = cast(Any, self.args), cast(Any, self.module)
        if (size := arguments.contrastive_mini_batch_size) is None:
            return model(**inputs)
        rows = module.rows_to_embed(**inputs)
        embedded = [EmbeddedParts(lambda part: (model(**part),), "inputs", each, size) for each in rows]
        self.continue_with(embedded, model, module.loss_fn)
        return module.loss_of(*(each.embeddings[0] for each in embedded), **inputs)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Creates the recipe's optimizer, or that of ``--optim``; temperatures have no weight decay."""
        if self.optimizer is None:
            module: Any = self.model if model is None else model
            rate = self.args.learning_rate * self.recipe.learning_rate_factor(self.order.size)
            groups = parameter_groups(module, self.recipe, rate, partial(self.method.treatment, self.recipe))
            if self.args.optim == type(self.args).optim:
                self.optimizer = create_optimizer(groups, self.recipe, rate)
            else:
                kind, options = self.get_optimizer_cls_and_kwargs(self.args, module)
                self.optimizer = kind(groups, **{**options, "lr": rate})
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Creates the learning rate scheduler; groups marked ``constant`` ignore it."""
        new = self.lr_scheduler is None
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if new and isinstance(scheduler, LambdaLR):
            for number, group in enumerate(scheduler.optimizer.param_groups):
                if group.get("constant"):
                    scheduler.lr_lambdas[number] = lambda step: 1.0
        return scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs; training logs also get the measurements of the last training batch.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        if "loss" in logs:
            logs["loss"] = self._mean_loss(self._sums())
            self.losses = [0.0, 0]
            if not self.args.max_grad_norm:
                logs.pop("grad_norm", None)  # no gradient clipping
            logs.update(logged(measure(self.module, log=self.is_world_process_zero()), self.log_record))
        super().log(logs, start_time)

    def _mean_loss(self, sums: Tensor) -> float:
        """Returns the mean loss since the last log over all processes."""
        loss: float = float(sums.mean()) / max(1, self.losses[1])
        if not math.isfinite(loss):
            raise self._diverged(f"the mean loss is {loss}.")
        return loss

    def _sums(self) -> Tensor:
        """Returns the sums of the losses since the last log, of each process, [W]."""
        own = torch.as_tensor(self.losses[0], dtype=torch.float32, device=self.args.device)
        every: Tensor = self.accelerator.gather(own)
        return every.reshape(-1)

    def _diverged(self, how: str) -> NonFiniteError:
        return NonFiniteError(
            f"the training diverged at epoch {self.state.epoch or 0:.4g}: {how} Lower the learning rate, or raise the "
            "temperature, and begin again in another folder."
        )

    def check_weights(self) -> None:
        """Raises NonFiniteError if the weights of the encoder are not finite, as after a last step whose gradient is not."""
        encoder: Any = self.module.encoder
        try:
            check_finite_weights(encoder.state_dict())
        except NonFiniteError as error:
            raise self._diverged(str(error)) from error

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", final: bool = False, **kwargs: Any) -> dict[str, float]:
        """Logs and returns the method's metrics of the first process as ``eval_NAME``; ``final`` is true after the training.

        Raises:
            ConfigError: ``metric_for_best_model`` is not among the metrics.
        """
        module = self.module
        found: list[Any] = [None]
        untrained, begin = not final and self.state.global_step == 0, time.monotonic()
        self.ending.at_once = untrained
        # the random state is the same in an uninterrupted and in a resumed training
        set_seed(seed_of(self.recipe.seed, "evaluation", self.state.global_step) % 2**32)
        if self.is_world_process_zero() or self.method.evaluated_by_all:
            with evaluating(module):
                found = [self._measured(module, final, untrained)]
        if self.args.world_size > 1:
            distributed.broadcast_object_list(found)
        if isinstance(found[0], TempplugError):
            raise found[0]
        if untrained:
            self.ending.at_once, self.untrained_seconds = False, time.monotonic() - begin
        wanted = (self.args.metric_for_best_model or "").removeprefix("eval_")
        if wanted and not final and wanted not in found[0]:
            raise ConfigError(f"metric_for_best_model='{wanted}' is not among the metrics: {', '.join(found[0])}.")
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found[0].items()}
        if metrics:
            self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _measured(self, module: nn.Module, final: bool, untrained: bool) -> dict[str, float] | TempplugError:
        run = replace(self.evaluation, final=final, untrained=untrained)
        try:
            return self.method.evaluate(self.recipe, module, self.data, run)
        except TempplugError as error:  # raising on one process only would block the others
            return error

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Starts a checkpoint with the state of the module, including its loss, and the settings of the run.

        Raises:
            NonFiniteError: the loss is not finite; diverged weights must not replace good ones.
        """
        self.write_module(Path(output_dir or str(self.args.output_dir)), self._sums(), {}, writes=self.args.should_save)

    def write_module(self, folder: Path, sums: Tensor, others: Mapping[str, Any], *, writes: bool) -> None:
        """Starts a checkpoint without the other processes.

        Args:
            folder: the checkpoint.
            sums: [W] or [1] sums of the losses since the last log, see `losses`.
            others: values that replace those in the state of the module.
            writes: whether this process writes files.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        self._mean_loss(sums)
        self.sealing.begin(folder, writes=writes)
        states: Any = self.state.stateful_callbacks
        states[_OURS] = {
            "losses": [sums.tolist(), self.losses[1]],
            # in pairs, as the file's names are sorted
            "temperatures": list(self.temperatures.seen.items()),
            "course": list(self.temperatures.course.items()),
        }
        if writes:
            folder.mkdir(exist_ok=True)  # a folder above it that was removed is not made again
            (folder / SETTINGS_FILE).write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")
            if self.fingerprint is not None:
                (folder / DATA_FILE).write_text(json.dumps(self.fingerprint.content()), encoding="utf-8")
            torch.save({**self.module.state_dict(), **others}, folder / STATE_FILE)

    def load_state(self, checkpoint: str | Path) -> None:
        """Restores the module and the statistics since the last log from a checkpoint.

        Raises:
            DataError: the checkpoint belongs to another training.
        """
        load_module(self.module, checkpoint)
        file = Path(checkpoint) / TRAINER_STATE
        try:
            noted: Any = TrainerState.load_from_json(str(file)).stateful_callbacks
            sums, number = noted[_OURS]["losses"]
            same = len(sums) == self.args.world_size
            own = sums[self.args.process_index] if same else sum(sums) / len(sums)  # a log has the mean over processes
            self.losses = [torch.tensor(own, device=self.args.device), int(number)]
            self.temperatures.seen = dict(noted[_OURS]["temperatures"])
            self.temperatures.course = dict(noted[_OURS]["course"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _unfit(file, error) from error

    def load_finished(self, checkpoint: Path) -> bool:
        """Restores the Trainer's state, and the module if the training had finished; returns whether it had.

        Raises:
            DataError: the checkpoint belongs to another training.
        """
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
        states: Any = self.state.stateful_callbacks
        # the second condition if a callback stopped it early
        if self.state.global_step < self.state.max_steps and not states["TrainerControl"]["args"]["should_training_stop"]:
            return False
        self.load_state(checkpoint)
        find_best(self.state, str(self.args.output_dir))
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            load_module(self.module, self.state.best_model_checkpoint)
        return True


def load_module(module: nn.Module, checkpoint: str | Path) -> None:
    """Loads a module's state from a checkpoint; raises DataError if it is unreadable or belongs to another module."""
    file = Path(checkpoint) / STATE_FILE
    try:
        module.load_state_dict(read_tensors(file))
    except (DataError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(file, error) from error


def _unfit(file: Path, error: Exception) -> DataError:
    return DataError(f"{file} does not fit this training: {one_line(error, lines=2)}")
