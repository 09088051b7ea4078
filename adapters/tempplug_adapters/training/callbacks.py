"""Callbacks of every training: schedule progress, temperature statistics, verified checkpoints, termination, and the output."""

from __future__ import annotations

import errno
import math
import time
from contextlib import AbstractContextManager
from statistics import fmean
from types import TracebackType
from typing import Any

import torch
from torch import distributed, nn
from tqdm.auto import tqdm
from transformers import TrainerCallback

from tempplug_adapters.gain import figures_at, write_event
from tempplug_adapters.huggingface.callback import Sealing
from tempplug_adapters.measurements import measure
from tempplug_adapters.training.checkpoints import checkpoint_folder, find_best, remove_old
from tempplug_adapters.training.termination import Terminated

MEASUREMENTS = 100
"""Approximate number of measurements of the temperature in a training."""
COURSE = ("temperature", "positive_similarity", "negative_similarity", "uniformity", "alignment")
"""Names of the measured numbers that are kept."""


class TemperatureStatistics(TrainerCallback):
    """Records the temperature at about `MEASUREMENTS` evenly spaced steps of a training.

    Attributes:
        seen: ``first`` and ``last``, each the mean over the pairs of a batch; ``mean``, the mean over all measurements; and
            ``min`` and ``max`` over all measured pairs. Empty without a temperature.
        course: lists of measurements under the names in `COURSE` and ``step``. Empty without a temperature.

    Both are stored in checkpoints, so that they cover a resumed run from its beginning.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: dict[str, float] = {}
        self.course: dict[str, list[float]] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measures the last batch if a measurement is due; this synchronises with the device."""
        if state.global_step not in (1, state.max_steps) and state.global_step % math.ceil(state.max_steps / MEASUREMENTS):
            return
        found = measure(self.module)
        if "temperature" in found:
            now, seen = found["temperature"], self.seen
            low, high = (found.get(f"temperature_{end}", now) for end in ("min", "max"))
            for name, value in {"step": state.global_step, **found}.items():
                if name in ("step", *COURSE):
                    self.course.setdefault(name, []).append(value)
            self.seen = {
                "first": seen.get("first", now),
                "last": now,
                "min": min(low, seen.get("min", low)),
                "max": max(high, seen.get("max", high)),
                "mean": fmean(self.course["temperature"]),
            }


class SealedCheckpoints(Sealing):
    """Writes the manifest of each checkpoint, then removes old checkpoints.

    Args:
        limit: see `remove_old`.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Finds the best checkpoint of a resumed training."""
        find_best(state, args.output_dir)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the manifest of the checkpoint, and removes old checkpoints."""
        super().on_save(args, state, control, **kwargs)
        if state.is_world_process_zero:
            newest = checkpoint_folder(args.output_dir, state.global_step)
            remove_old(args.output_dir, self.limit, newest, state.best_model_checkpoint)


class Ending(TrainerCallback):
    """Saves a checkpoint at the end of the step in which a signal arrived, then ends the training.

    Attributes:
        signal: number of the received signal, or 0.
        at_once: whether a signal ends the training immediately, as long as there is nothing to save.
    """

    signal = 0
    at_once = False
    _due = 0

    def receive(self, number: int) -> None:
        """Stores the number of a signal; raises Terminated if it is to end the training at once."""
        self.signal = number
        if self.at_once:
            raise Terminated(number=number)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Requests a checkpoint if any process has received a signal."""
        if args.world_size > 1:
            highest = torch.tensor(float(self.signal), device=args.device)
            distributed.all_reduce(highest, distributed.ReduceOp.MAX)
            self.signal = int(highest.item())
        self._due = self.signal
        control.should_save |= self._due > 0

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the training."""
        if self._due:
            raise Terminated(f"after step {state.global_step} of {state.max_steps}, which is saved", self._due)


class EpochFlow(TrainerCallback):
    """Runs end-of-epoch actions at the last step of the epoch, so that a checkpoint of that step includes them."""

    batches = 1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stores the number of batches per epoch."""
        self.batches = len(kwargs["train_dataloader"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Requests log, evaluation and checkpoint at the end of an epoch, and a log at the end of the training."""
        last = state.global_step >= state.max_steps
        if last or state.global_step % math.ceil(self.batches / args.gradient_accumulation_steps) == 0:
            control.should_log |= args.logging_strategy == "epoch" or (last and args.logging_strategy != "no")
            control.should_evaluate |= args.eval_strategy == "epoch"
            control.should_save |= args.save_strategy == "epoch"

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Cancels actions that were already run."""
        control.should_log = control.should_evaluate = control.should_save = False


_SHOWN = ("loss", "temperature")
EVENTS = 10
"""Approximate number of ``progress`` events of a training."""


class ProgressLine(TrainerCallback, AbstractContextManager["ProgressLine"]):
    """Progress of one training: a callback of its Trainer, and a context that closes the bar on exit.

    Log lines go to standard output; the bar and the untrained model's figures to standard error, where they are events if that
    is no terminal, see `tempplug_adapters.gain`.

    Args:
        quiet: show nothing, as in processes other than the first.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bars: dict[str, Any] = {}
        self._training = False
        self._start = 0.0, 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for bar in reversed(self._bars.values()):
            bar.close()

    def say(self, text: str) -> None:
        """Prints lines above the bar."""
        if not self.quiet:
            try:
                tqdm.write(text)
            except OSError as error:
                if error.errno != errno.EIO:  # the terminal is closed, which SIGHUP reports
                    raise

    def evaluating(self, fraction: float) -> None:
        """Shows the completed fraction of an evaluation below the training's bar; 1 removes it."""
        if "evaluate" not in self._bars:
            self._begin("evaluate", 1.0, leave=False, bar_format="{l_bar}{bar}| {elapsed}<{remaining}")
        self._reach("evaluate", fraction)
        if fraction >= 1:
            self._bars.pop("evaluate").close()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Says that the untrained model is measured, which may take long."""
        self._training = True
        if args.eval_on_start and not self.quiet:
            write_event("measuring", "measuring the untrained model; --eval-on-start false leaves it out", model="untrained")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the bar before the first step; its unit is a step."""
        if "train" not in self._bars:
            self._start = time.monotonic(), state.global_step
            self._begin("train", state.max_steps, initial=state.global_step, unit="step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advances the bar, or writes an event."""
        self._reach("train", state.global_step)
        due = state.global_step % math.ceil(state.max_steps / EVENTS) == 0 or state.global_step == state.max_steps
        if due and not self.quiet:
            begin, first = self._start
            seconds = time.monotonic() - begin
            left = seconds / (state.global_step - first) * (state.max_steps - state.global_step)
            rounded = {"seconds": round(seconds, 1), "seconds_left": round(left, 1)}
            write_event("progress", step=state.global_step, steps=state.max_steps, **rounded)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stops printing logs, because the command prints the final figures."""
        self._training = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Prints the loss, the temperature and the metrics of an evaluation during the training."""
        if not self._training or self.quiet:
            return
        if state.global_step == 0:
            figures = figures_at(state.log_history, 0)
            text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
            write_event("untrained", f"untrained  {text}", figures=figures)
            return
        shown = {
            name.removeprefix("eval_"): value
            for name, value in (logs or {}).items()
            if name in _SHOWN or name.startswith("eval_")
        }
        if shown:
            epochs = f"{state.num_train_epochs:g}"
            epoch = f"epoch {float(state.epoch or 0):.4g}".ljust(len("epoch ") + len(epochs))
            self.say("  ".join([f"{epoch} of {epochs}", *(f"{name} {value:.4g}" for name, value in shown.items())]))

    def _begin(self, name: str, total: float, **more: Any) -> None:
        self._bars[name] = tqdm(total=total, disable=True if self.quiet else None, desc=name, **more)

    def _reach(self, name: str, done: float) -> None:
        self._bars[name].update(done - self._bars[name].n)
