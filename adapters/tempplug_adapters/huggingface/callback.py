"""The callback that passes length and progress of a training to its loss, and measures the last training batch.

A Trainer calls `TemperatureCallback.observe` when it computes the loss, and `measure` when it logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import tempplug
from tempplug import StepRecord
from tempplug.plugins import registry
from tempplug_adapters.announcement import announce
from tempplug_adapters.huggingface.length import epochs_of, set_training_length
from tempplug_adapters.measurements import check_record, logged, numbers_of

Embeddings = Tensor | Sequence[Tensor]


class TemperatureCallback(TrainerCallback):
    """Sets the length of the training and the progress in schedules, and keeps the last training batch for the log.

    `TemperatureTrainerMixin` installs one. Its numbers describe the last training batch of this process; they are not reduced
    over processes or over the logging window, and synchronise with the device only when a log is due.

    Args:
        contrastive_loss: the loss of the training.
        name: name of the loss, if there are several.
        log_record: ``brief`` or ``full``, see `measure`.
    """

    def __init__(self, contrastive_loss: tempplug.ContrastiveLoss, name: str = "", log_record: str = "brief") -> None:
        self.log_record = check_record(log_record)
        self.contrastive_loss = contrastive_loss
        self.name = name
        self._record: StepRecord | None = None
        self._record_is_stale = False
        self._views: list[tuple[Tensor, Tensor | None]] = []

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Sets the length of the training and its initial progress, and prints the configuration of the loss."""
        epochs = epochs_of(args, kwargs.get("train_dataloader"))
        set_training_length(self.contrastive_loss, epochs, steps=state.max_steps, log=state.is_world_process_zero)
        announce(self.contrastive_loss, self.name)
        self._set_progress(state)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Updates the progress once per optimizer step, so that all its micro-batches share it."""
        self._set_progress(state)

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

    def _set_progress(self, state: TrainerState) -> None:
        self.contrastive_loss.set_progress(epoch=float(state.epoch or 0.0), step=state.global_step)
