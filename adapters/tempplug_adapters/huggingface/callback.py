"""The callbacks of all Trainers: progress of a loss and measurements of its batches, the log file, and sealed checkpoints.

A Trainer calls `TemperatureCallback.observe` when it computes the loss, and `measure` when it logs. `LogFile` writes
``log.jsonl``, which ``tempplug watch`` reads.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import tempplug
from tempplug import Objective, StepRecord, Strategy
from tempplug.plugins import registry
from tempplug.strategies.schedule import Schedule
from tempplug_adapters.announcement import announce
from tempplug_adapters.gain import figures_at, report_gain
from tempplug_adapters.measurements import check_record, logged, numbers_of
from tempplug_adapters.storage.files import NotWrittenError, explained, is_short_write, write_text
from tempplug_adapters.storage.manifest import MANIFEST, seal

Embeddings = Tensor | Sequence[Tensor]


class LossProgress(TrainerCallback):
    """Passes the length of a training and its progress (epochs done, fractional) to a loss; warns of schedules that are longer.

    Args:
        module: what contains the loss, or the loss.
        loss: receives the progress, if it is not None.
    """

    def __init__(self, module: nn.Module, loss: Any) -> None:
        self._module, self._loss = module, loss

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Sets the length of the training and its initial progress."""
        epochs = epochs_of(args, kwargs.get("train_dataloader"))
        set_training_length(self._module, epochs, steps=state.max_steps, log=state.is_world_process_zero)
        self.on_step_begin(args, state, control)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Updates the progress once per optimizer step, so that all its micro-batches share it."""
        if self._loss is not None:
            self._loss.set_progress(epoch=float(state.epoch or 0.0), step=state.global_step)


class TemperatureCallback(LossProgress):
    """Sets the length of the training and the progress in schedules, and keeps the last training batch for the log.

    `TemperatureTrainerMixin` installs one. Its numbers describe the last training batch of this process; they are not reduced
    over processes or over the logging window, and synchronise with the device only when a log is due.

    Args:
        contrastive_loss: the loss of the training.
        name: name of the loss, if there are several.
        log_record: ``brief`` or ``full``, see `measure`.
    """

    def __init__(self, contrastive_loss: tempplug.ContrastiveLoss, name: str = "", log_record: str = "brief") -> None:
        super().__init__(contrastive_loss, contrastive_loss)
        self.log_record = check_record(log_record)
        self.contrastive_loss, self.name = contrastive_loss, name
        self._record: StepRecord | None = None
        self._record_is_stale = False
        self._views: list[tuple[Tensor, Tensor | None]] = []

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Sets the length of the training and its initial progress, and prints the configuration of the loss."""
        super().on_train_begin(args, state, control, **kwargs)
        announce(self.contrastive_loss, self.name)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Passes the record of the last training batch to the ``tempplug_log`` plugins, on the main process."""
        record = self.record()
        if record is not None and state.is_world_process_zero and "loss" in kwargs.get("logs", {}):
            registry().log(record)

    def record(self) -> StepRecord | None:
        """Returns the record of the last training batch, None before the first; must be called before an evaluation."""
        if self._record_is_stale:
            self._record, self._record_is_stale = self.contrastive_loss.record, False
        return self._record

    def observe(self, view_a: Embeddings, view_b: Embeddings | None) -> None:
        """Keeps the training batch of the last call of the loss: [B, D], or one such matrix per head."""
        self._record_is_stale = True
        heads_a = [view_a] if isinstance(view_a, Tensor) else list(view_a)
        heads_b = [view_b] if view_b is None or isinstance(view_b, Tensor) else list(view_b)
        self._views = [(a.detach(), None if b is None else b.detach()) for a, b in zip(heads_a, heads_b, strict=True)]

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last training batch, empty before the first; synchronises with the device.

        Returns:
            Fields of `tempplug.StepRecord`, with ``temperature_mean`` as ``temperature``: similarities, gradient scale, what
            terms on negatives leave out, and counts of what should not happen where there is any. With ``log_record="full"``
            all that are not constant, with ``uniformity`` of view_a, and ``alignment`` if row i of both views is the same item;
            these two are means over the heads.
        """
        record = self.record()
        if record is None:
            return {}
        measured = logged(numbers_of(record), self.log_record)
        if self.log_record == "brief":
            return measured
        uniformity = [tempplug.metrics.uniformity(a) for a, _ in self._views if len(a) > 1]
        alignment = [tempplug.metrics.alignment(a, b) for a, b in self._views if b is not None and a.shape == b.shape]
        for name, values in (("uniformity", uniformity), ("alignment", alignment)):
            if values:
                measured[name] = float(torch.stack(values).mean())
        return measured


class GainCallback(TrainerCallback):
    """Measures the model before the first step and after the last one, and writes what it gained to standard error.

    The training is the same as without it: random states of PyTorch are restored. One that resumes does not measure the
    untrained model again, because checkpoints contain its figures. Those after the training are of the last evaluation, or of
    the best checkpoint if the Trainer loads it.

    Attributes:
        measures: whether to measure; None: if the Trainer evaluates, that is, has an ``eval_strategy``. A search does not.
    """

    measures: bool | None = None
    _random: tuple[Tensor, list[Tensor]] | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Requests an evaluation before the first step."""
        if self._measures(args, state):
            args.eval_on_start = state.global_step == 0
            self._random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Restores the random states from before that evaluation."""
        if self._random is not None:
            torch.set_rng_state(self._random[0])
            torch.cuda.set_rng_state_all(self._random[1])
            self._random = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Requests an evaluation after the last step of a Trainer that does not evaluate."""
        last = state.global_step >= state.max_steps and args.eval_strategy == "no"
        control.should_evaluate |= last and self._measures(args, state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Writes the gain."""
        best = str(state.best_model_checkpoint or "").rpartition("-")[2] if args.load_best_model_at_end else ""
        if state.is_world_process_zero and self._measures(args, state):
            report_gain(figures_at(state.log_history, 0), figures_at(state.log_history, int(best) if best else None))

    def _measures(self, args: TrainingArguments, state: TrainerState) -> bool:
        wanted = args.eval_strategy != "no" if self.measures is None else self.measures
        return wanted and not state.is_hyper_param_search


logger = logging.getLogger(__name__)


def epochs_of(args: TrainingArguments, batches: Any) -> float:
    """Returns the number of epochs of a run, as a Trainer counts them.

    Args:
        args: arguments of the run.
        batches: the batches of an epoch; a stream without a length is a single epoch.
    """
    if args.max_steps <= 0:
        return float(args.num_train_epochs)
    try:
        steps = math.ceil(len(batches) / args.gradient_accumulation_steps)
    except TypeError:
        return 1.0
    return args.max_steps / max(steps, 1)


def set_training_length(module: nn.Module, epochs: float, *, steps: int = 0, log: bool) -> None:
    """Sets the length of the training in every strategy and objective of a module.

    Args:
        module: a loss, or a module with losses.
        epochs: number of epochs of the whole training, at least 0.
        steps: its number of optimizer steps; 0 if unknown.
        log: whether to log options that depend on the length, and schedules that need more steps.
    """
    for objective in (each for each in module.modules() if isinstance(each, Objective)):
        objective.set_length(epochs)
    for strategy in (each for each in module.modules() if isinstance(each, Strategy)):
        before = strategy.spec()
        strategy.set_length(epochs)
        if log and strategy.spec() != before:
            logger.warning(
                "strategy '%s' goes by the %g epochs of this run: %s (a period that is given is kept).",
                *(strategy.name, epochs, strategy.spec()),
            )
        if log and isinstance(strategy, Schedule) and (missed := strategy.missed(epochs, steps)):
            logger.warning(missed)


LOG_FILE = "log.jsonl"


class LogFile(TrainerCallback):
    """Writes the logs of a Trainer to its ``output_dir``, on the main process."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the file with the logs from before an interruption."""
        if state.is_world_process_zero:
            lines = [{"max_steps": state.max_steps}, *state.log_history]
            write_text(Path(args.output_dir, LOG_FILE), "".join(f"{json.dumps(each)}\n" for each in lines))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Appends the newest log."""
        self._add(args, state, state.log_history[-1] if state.log_history else {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Appends the mark of the end."""
        self._add(args, state, {"step": state.global_step, "ended": True})

    @staticmethod
    def _add(args: Any, state: Any, entry: dict[str, Any]) -> None:
        file = Path(args.output_dir, LOG_FILE)
        # logs outside of a training, such as those of a separate evaluation, do not start a file
        if state.is_world_process_zero and file.is_file():
            with explained(file), file.open("a", encoding="utf-8") as lines:
                lines.write(f"{json.dumps(entry)}\n")


class Sealing(TrainerCallback):
    """Seals each checkpoint when all processes have written their files, before other callbacks or an upload read it.

    It must be the first callback of a Trainer. ``Trainer.save_model``, which writes the first files of a checkpoint, must call
    `begin`.
    """

    folder: Path | None = None
    """The checkpoint that is being written."""

    def begin(self, folder: str | Path, *, writes: bool) -> None:
        """Begins a checkpoint, and removes an earlier manifest if this process ``writes`` files."""
        self.folder = Path(folder)
        if writes:
            (self.folder / MANIFEST).unlink(missing_ok=True)

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals the checkpoint before an upload; called only in the first process, while the others wait in `on_save`."""
        self._seal(args.should_save)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals the checkpoint; all processes wait until it is sealed."""
        self._seal(args.should_save)
        PartialState().wait_for_everyone()

    def _seal(self, writes: bool) -> None:
        if self.folder is not None:
            PartialState().wait_for_everyone()  # for the random states that other processes write
            if writes:
                seal(self.folder)
            self.folder = None

    def failed_to_write(self, error: Exception) -> bool:
        """Returns whether an error says that the checkpoint cannot be written; PyTorch has no class of its own for these."""
        return self.folder is not None and (is_short_write(error) or not self.folder.parent.is_dir())

    @contextmanager
    def cleaning(self, *, writes: bool) -> Iterator[None]:
        """Removes a checkpoint that cannot be completed, and raises `NotWrittenError`, which names its last file."""
        try:
            yield
        except Exception as error:
            folder = self.folder
            if folder is None:
                raise
            if not folder.parent.is_dir():
                reason = "it was removed or renamed during the training"
                raise NotWrittenError(f"{folder.parent} cannot be written: {reason}.") from error
            # times are equal within a tick of the clock; most file systems number new files in ascending order
            files = sorted(folder.glob("*"), key=lambda file: (file.stat().st_mtime_ns, file.stat().st_ino))
            if writes:
                shutil.rmtree(folder, ignore_errors=True)
            with explained(Path(getattr(error, "filename", None) or [folder, *files][-1])):
                raise
