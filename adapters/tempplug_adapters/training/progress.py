"""What a training command shows while it works: a bar on a terminal, and a line a log with loss, temperature and figures."""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback

_SHOWN = ("loss", "temperature")


class ProgressLine:
    """Bar and lines of one training; used as a context, whose end closes the bar.

    Args:
        quiet: show nothing, as processes other than the first do.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Any = None
        self._evaluation: Any = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def say(self, text: str) -> None:
        """Prints lines above the bar."""
        if not self.quiet:
            try:
                tqdm.write(text)
            except OSError as error:
                if error.errno != errno.EIO:  # of a terminal that is closed, of which SIGHUP tells
                    raise

    def begin(self, total: int, done: int) -> None:
        """Begins the bar of a training, in steps."""
        self._close()
        self._bar = self._new(total, initial=done, desc="train", unit="step")

    def reach(self, done: int) -> None:
        """Moves it."""
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def evaluating(self, fraction: float) -> None:
        """Shows how far an evaluation is, below the training's bar; at 1 it ends."""
        if self._evaluation is None:
            self._evaluation = self._new(1.0, desc="evaluate", leave=False, bar_format="{l_bar}{bar}| {elapsed}")
        self._evaluation.update(fraction - self._evaluation.n)
        if fraction >= 1:
            self._evaluation.close()
            self._evaluation = None

    def _new(self, total: float, **more: Any) -> Any:
        return tqdm(total=total, disable=True if self.quiet else None, **more)

    def callback(self) -> TrainerCallback:
        """Returns the callback that tells it of a training."""
        return _Told(self)

    def _close(self) -> None:
        for bar in (self._evaluation, self._bar):
            if bar is not None:
                bar.close()
        self._bar = self._evaluation = None


class _Told(TrainerCallback):
    def __init__(self, line: ProgressLine) -> None:
        self.line = line

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.line.begin(state.max_steps, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.line.reach(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        shown = {
            name.removeprefix("eval_"): value for name, value in logs.items() if name in _SHOWN or name.startswith("eval_")
        }
        if shown:
            epochs = f"{state.num_train_epochs:g}"
            epoch = f"epoch {float(state.epoch or 0):.4g}".ljust(len("epoch ") + len(epochs))
            self.line.say("  ".join([f"{epoch} of {epochs}", *(f"{name} {value:.4g}" for name, value in shown.items())]))
