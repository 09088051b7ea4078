"""The output of a training command: a progress bar on a terminal, and one line per log with loss, temperature and metrics."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback

_SHOWN = ("loss", "temperature")


class ProgressLine(TrainerCallback, AbstractContextManager["ProgressLine"]):
    """Progress bar and log lines of one training: a callback of its Trainer, and a context that closes the bar on exit.

    Args:
        quiet: show nothing, as in processes other than the first.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bars: dict[str, Any] = {}
        self._training = False

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
            self._begin("evaluate", 1.0, leave=False, bar_format="{l_bar}{bar}| {elapsed}")
        self._reach("evaluate", fraction)
        if fraction >= 1:
            self._bars.pop("evaluate").close()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the bar; its unit is a step."""
        self._training = True
        self._begin("train", state.max_steps, initial=state.global_step, unit="step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advances the bar."""
        self._reach("train", state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the lines: the final figures are printed once, by the command."""
        self._training = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Prints the loss, the temperature and the metrics of an evaluation during the training."""
        if not self._training:
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
