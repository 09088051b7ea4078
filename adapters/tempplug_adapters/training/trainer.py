"""The one training loop: the Hugging Face Trainer over any method, whose module contains its loss and returns it.

Flags, precision, accumulation, clipping, several processes, logs, checkpoints and resume are the Trainer's. What is added:
batches whose random state follows from the seed, no weight decay on temperatures, the progress of schedules, the record of the
loss in every log, an end with a message where the loss is no longer finite, and evaluation through the method.
"""

from __future__ import annotations

import gc
import json
import logging
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

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
from transformers.trainer_pt_utils import nested_gather

from tempplug.errors import ConfigError, DataError, NonFiniteError, TempplugError
from tempplug_adapters.huggingface.log_file import LogFile
from tempplug_adapters.storage.files import explained, one_line, put_in_place, staging
from tempplug_adapters.storage.manifest import seal
from tempplug_adapters.storage.tensors import read_tensors
from tempplug_adapters.training.arguments import MethodArguments
from tempplug_adapters.training.batches import BatchLoader, BatchOrder, seed_generators, seed_of
from tempplug_adapters.training.callbacks import Ending, EpochFlow, ProgressOfLoss, TemperaturesSeen
from tempplug_adapters.training.checkpoints import SETTINGS_FILE, STATE_FILE, TRAINER_STATE, checkpoint_folder, remove_old
from tempplug_adapters.training.measurements import measure
from tempplug_adapters.training.method import Method, Run
from tempplug_adapters.training.optimizer import Treatment, create_optimizer, parameter_groups
from tempplug_adapters.training.recipe import Recipe
from tempplug_adapters.training.termination import Terminated, on_termination

# Checkpoints a moment apart have one time stamp; the Trainer then goes by their numbers, and warns of it every time.
logging.getLogger("transformers.trainer_utils").addFilter(lambda record: "mtime" not in record.getMessage())


def batch_order(method: Method[Any, Any], recipe: Recipe, data: Any, args: Any) -> BatchOrder:
    """Returns the batches of a training, this process's share of each; raises ConfigError where they do not fit the data."""
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


class MethodTrainer(Trainer):
    """Trains the module of a method.

    Args:
        method: whose module and data these are.
        recipe: how it is trained.
        module: of `Method.build`.
        data: of `Method.load`.
        args: of the run.
        settings: what the run was started with, kept in every checkpoint.
        callbacks: further ones.
        evaluation: what evaluations may know.

    Raises:
        ConfigError: batches do not fit the data or the number of processes.
    """

    loss_is_scaled_for_ga: bool | None = False

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
    ) -> None:
        self.method, self.recipe, self.data, self.settings, self.evaluation = method, recipe, data, settings, evaluation
        self.module = module  # never wrapped, whatever the Trainer makes of its model
        if args.early_stopping_patience is not None:
            callbacks = [*callbacks, EarlyStoppingCallback(args.early_stopping_patience)]
        self.temperatures = TemperaturesSeen(module)
        # the last two: the step is known to be an epoch's last only when all others have seen it
        ours = [LogFile(), ProgressOfLoss(module), self.temperatures, EpochFlow(), Ending(self._asked_to_end)]
        super().__init__(model=module, args=args, eval_dataset=data, callbacks=[*callbacks, *ours])
        for printer in (PrinterCallback, ProgressCallback):
            self.remove_callback(printer)
        self.model_accepts_loss_kwargs = False
        # Sum and number of the losses since the last log; part of a checkpoint, so that a log is whole after a resume.
        self._losses: list[Any] = [0.0, 0]
        self._saved_sums = torch.zeros(1)
        self._drawn = (-1, 0)
        self._staged: str | None = None
        self._ending = 0

    @cached_property
    def order(self) -> BatchOrder:
        """The batches; asked for where there is something to train on."""
        return batch_order(self.method, self.recipe, self.data, self.args)

    def get_train_dataloader(self) -> BatchLoader:
        """Returns the method's batches, this process's share of each."""
        args = self.args
        return BatchLoader(
            self.order,
            lambda index: self.method.collate(self.recipe, self.data, index),
            workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
        )

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        # What lives before the training is not looked at by the garbage collector in it: a pass over all of it, which the
        # Trainer asks for, takes as long as a small training.
        gc.freeze()
        try:
            with on_termination(self._ask_to_end):
                output = super()._inner_training_loop(*args, **kwargs)
        finally:
            gc.unfreeze()
        if self._ending:
            raise Terminated("after the last step", self._ending)
        return output

    def _ask_to_end(self, number: int) -> None:
        self._ending = number

    def _asked_to_end(self) -> int:
        """Returns the signal that has come, to this process or another one of the launch; all must ask at the same step."""
        if self.args.world_size == 1:
            return self._ending
        asked = torch.tensor(float(self._ending), device=self.args.device)
        distributed.all_reduce(asked, distributed.ReduceOp.MAX)
        self._ending = int(asked.item())
        return self._ending

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], None]:
        """Returns the micro-batches of a step; a mean over each needs no count of items."""
        samples = list(islice(epoch_iterator, num_batches))
        for each in samples:
            if isinstance(each, TempplugError):
                raise each
        return samples, None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Runs forward and backward of a micro-batch, its random state a function of seed, step and process."""
        step = self.state.global_step
        self._drawn = (step, self._drawn[1] + 1 if self._drawn[0] == step else 0)
        seed_generators(seed_of(self.recipe.seed, "step", *self._drawn, self.args.process_index), self.args.device)
        try:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        except NonFiniteError as error:
            raise self._diverged(str(error)) from error
        self._losses[0] = self._losses[0] + loss * self.current_gradient_accumulation_steps
        self._losses[1] += 1
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Returns what the module returns: the loss, []."""
        return model(**inputs)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        # asked for at every step; where nothing is clipped, it would cost a pass over all gradients
        return grad_norm

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Returns the recipe's optimizer, or that of ``--optim``; weight decay leaves temperatures out."""
        if self.optimizer is None:
            module: Any = self.model if model is None else model
            batch = self.order.size
            rate = self.args.learning_rate * self.recipe.learning_rate_factor(batch)

            def treatment(name: str, parameter: nn.Parameter) -> Treatment:
                return self.method.treatment(self.recipe, name, parameter)

            groups = parameter_groups(module, self.recipe, rate, treatment)
            if self.args.optim == type(self.args).optim:
                self.optimizer = create_optimizer(groups, self.recipe, rate)
            else:
                kind, options = self.get_optimizer_cls_and_kwargs(self.args, module)
                self.optimizer = kind(groups, **{**options, "lr": rate})
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Returns the scheduler of the learning rate; a group that is ``constant`` does not follow it."""
        new = self.lr_scheduler is None
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if new and isinstance(scheduler, LambdaLR):
            for number, group in enumerate(scheduler.optimizer.param_groups):
                if group.get("constant"):
                    scheduler.lr_lambdas[number] = lambda step: 1.0
        return scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs; a training log also gets the measurements of the last training batch.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        if "loss" in logs:
            logs["loss"] = self._mean_loss()
            self._losses = [0.0, 0]
            logs.update(measure(self.module, log=self.is_world_process_zero()))
        super().log(logs, start_time)

    def _mean_loss(self) -> float:
        """Returns the mean over the batches since the last log, of all processes."""
        loss: float = float(self._sums().mean()) / max(1, self._losses[1])
        if not math.isfinite(loss):
            raise self._diverged(f"the mean loss is {loss}.")
        return loss

    def _sums(self) -> Tensor:
        """Returns the sums of the losses since the last log, of each process, [W]."""
        own = torch.as_tensor(self._losses[0], dtype=torch.float32, device=self.args.device)
        every: Tensor = nested_gather(own, self.args.parallel_mode)  # type: ignore[no-untyped-call]
        return every.reshape(-1)

    def _diverged(self, how: str) -> NonFiniteError:
        return NonFiniteError(
            f"the training diverged at epoch {self.state.epoch or 0:.4g}: {how} Lower the learning rate, or raise the "
            "temperature, and begin again in another folder."
        )

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Writes a checkpoint into a folder of a temporary name, which gets its own when it is complete and sealed."""
        self._mean_loss()  # weights that are lost already replace no good ones
        self._saved_sums = self._sums()
        place = checkpoint_folder(str(self.args.output_dir), self.state.global_step)
        with ExitStack() as stack:
            stack.enter_context(explained(place))
            shared = [str(stack.enter_context(staging(place))) if self.is_world_process_zero() else ""]
            if self.args.world_size > 1:
                distributed.broadcast_object_list(shared)
            self._staged, made = shared[0], Path(shared[0], place.name)
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._staged = None
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self._find_best(place)
                self.state.save_to_json(str(made / TRAINER_STATE))
                seal(made)
                put_in_place(made, place)
            self.accelerator.wait_for_everyone()
            self._find_best()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(place))
        if self.is_world_process_zero():
            limit, best = self.args.save_total_limit, self.state.best_model_checkpoint
            remove_old(str(self.args.output_dir), limit, place, best)

    def _get_output_dir(self, trial: Any = None) -> str:
        return self._staged or str(super()._get_output_dir(trial=trial))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self._staged is None:  # what is being written has not its name yet
            super()._push_from_checkpoint(checkpoint_folder)

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", final: bool = False, **kwargs: Any) -> dict[str, float]:
        """Returns the method's figures as ``eval_NAME``, and logs them; those of the first process count.

        Args:
            *args: not used.
            metric_key_prefix: of the names.
            final: whether the training has ended.
            **kwargs: not used.
        """
        module = self.module
        found: list[Any] = [None]
        # what is random in it is the same, whether the training before it was of this process or of one that was killed
        set_seed(seed_of(self.recipe.seed, "evaluation", self.state.global_step) % 2**32)
        if self.is_world_process_zero() or self.method.evaluated_by_all:
            modes = [(each, each.training) for each in module.modules()]
            module.eval()
            found = [self._measured(module, final)]
            for each, mode in modes:
                each.training = mode
        if self.args.world_size > 1:
            distributed.broadcast_object_list(found)
        if isinstance(found[0], TempplugError):
            raise found[0]
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found[0].items()}
        if metrics:
            self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _measured(self, module: nn.Module, final: bool) -> dict[str, float] | TempplugError:
        try:
            return self.method.evaluate(self.recipe, module, self.data, replace(self.evaluation, final=final))
        except TempplugError as error:  # raised here alone, it would leave the other processes waiting
            return error

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if not self.args.should_save:
            return
        folder = Path(output_dir or str(self.args.output_dir))
        sums = [self._saved_sums.cpu(), self._losses[1]]
        noted = {"temperatures": self.temperatures.seen, "course": self.temperatures.course}
        content = {"module": self.module.state_dict(), "losses": sums, **noted}
        # plain files: the folder is a staged one, which is sealed and put in its place as a whole
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(content, folder / STATE_FILE)
        (folder / SETTINGS_FILE).write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")

    def load_state(self, checkpoint: str | Path) -> None:
        """Restores the module from a checkpoint.

        Raises:
            DataError: it is the state of another module.
        """
        file = Path(checkpoint) / STATE_FILE
        try:
            content = read_tensors(file)
            self.module.load_state_dict(content["module"])
            sums, number = content["losses"]
            self._losses = [sums[self.args.process_index].to(self.args.device), int(number)]
            self.temperatures.seen = dict(content["temperatures"])
            self.temperatures.course = dict(content["course"])
        except (DataError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{file} does not fit this training: {one_line(error, lines=2)}") from error

    def load_finished(self, checkpoint: Path) -> bool:
        """Takes over the state of a checkpoint, and the module where its training has ended; returns whether it has.

        Raises:
            DataError: it is of another training.
        """
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
        states: Any = self.state.stateful_callbacks
        # the second where a callback ended it early
        if self.state.global_step < self.state.max_steps and not states["TrainerControl"]["args"]["should_training_stop"]:
            return False
        self.load_state(checkpoint)
        self._find_best()
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            self._load_best_model()
        return True

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        position = super()._init_training_state(*args, **kwargs)
        self._find_best()
        return position

    def _find_best(self, being_written: Path | None = None) -> None:
        """Names the folder of the best checkpoint by its step: what is written in another one may have been moved since."""
        if self.state.best_global_step:
            best = checkpoint_folder(str(self.args.output_dir), self.state.best_global_step)
            self.state.best_model_checkpoint = str(best) if best == being_written or best.is_dir() else None

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        wanted = self.args.metric_for_best_model
        if wanted is not None and f"eval_{wanted.removeprefix('eval_')}" not in metrics:
            known = ", ".join(name.removeprefix("eval_") for name in metrics if name.startswith("eval_"))
            raise ConfigError(f"metric_for_best_model='{wanted}' is none of what is measured here: {known}.")
        new: bool = super()._determine_best_metric(metrics, trial)
        return new

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.load_state(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        seen, course = self.temperatures.seen, self.temperatures.course  # those of the whole training
        self.load_state(str(self.state.best_model_checkpoint))
        self.temperatures.seen, self.temperatures.course = seen, course
