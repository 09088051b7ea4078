"""The callback that tells a loss how long training is and how far, and measures what its last training batch looked like.

A Trainer calls `TemperatureCallback.observe` where it computes the loss, and `measure` where it logs.
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
from tempplug_adapters.huggingface.length import epochs_of, tell_length
from tempplug_adapters.measurements import numbers_of

Embeddings = Tensor | Sequence[Tensor]


class TemperatureCallback(TrainerCallback):
    """Gives schedules their period, where it is open, and their progress; keeps the last training batch for the log.

    `TemperatureTrainerMixin` installs one. Each of its numbers describes the last training batch of this process:
    nothing is reduced over processes or over the logging window, and nothing waits for the device until a log is due.

    Args:
        contrastive_loss: the loss that is trained with.
        name: of the loss, where there are several.
    """

    def __init__(self, contrastive_loss: tempplug.ContrastiveLoss, name: str = "") -> None:
        self.contrastive_loss = contrastive_loss
        self.name = name
        self._record: StepRecord | None = None
        self._record_is_stale = False
        self._views: list[tuple[Tensor, Tensor | None]] = []

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tells the loss how long training will be, and where it starts or resumes; prints what it uses."""
        epochs = epochs_of(args, kwargs.get("train_dataloader"))
        tell_length(self.contrastive_loss, epochs, steps=state.max_steps, say=state.is_world_process_zero)
        announce(self.contrastive_loss, self.name)
        self._set_progress(state)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tells the loss how far training is, once per optimizer step: all its micro-batches share one progress."""
        self._set_progress(state)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Hands the record of the last training batch to the ``tempplug_log`` plugins, on the main process."""
        record = self.record()
        if record is not None and state.is_world_process_zero and "loss" in kwargs.get("logs", {}):
            registry().log(record)

    def record(self) -> StepRecord | None:
        """Returns the record of the last training batch, None before the first; to be called before an evaluation."""
        if self._record_is_stale:
            self._record, self._record_is_stale = self.contrastive_loss.record, False
        return self._record

    def observe(self, view_a: Embeddings, view_b: Embeddings | None) -> None:
        """Keeps a training batch, [B, D] or such a matrix per head, with which the loss was just called."""
        self._record_is_stale = True
        heads_a = [view_a] if isinstance(view_a, Tensor) else list(view_a)
        heads_b = [view_b] if view_b is None or isinstance(view_b, Tensor) else list(view_b)
        self._views = [(a.detach(), None if b is None else b.detach()) for a, b in zip(heads_a, heads_b, strict=True)]

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last training batch, empty before the first: waits for the device.

        Returns:
            The fields of `tempplug.StepRecord` but ``loss`` and ``finite``, its ``temperature_mean`` under the name
            ``temperature``; ``uniformity`` of view_a; ``alignment`` where row i of both views is one item. The last two
            are means over the heads.
        """
        record = self.record()
        if record is None:
            return {}
        measured = numbers_of(record)
        uniformity = [tempplug.metrics.uniformity(a) for a, _ in self._views if len(a) > 1]
        alignment = [tempplug.metrics.alignment(a, b) for a, b in self._views if b is not None and a.shape == b.shape]
        for name, values in (("uniformity", uniformity), ("alignment", alignment)):
            if values:
                measured[name] = float(torch.stack(values).mean())
        return measured

    def _set_progress(self, state: TrainerState) -> None:
        self.contrastive_loss.set_progress(epoch=float(state.epoch or 0.0), step=state.global_step)
