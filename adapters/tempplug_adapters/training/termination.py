"""Handles SIGTERM, which schedulers send before they kill a process, and SIGHUP, sent when a terminal is closed.

A training saves a checkpoint at its next step and ends; other commands end at once. The message says how to resume. Also: the
environment that torchrun and accelerate set, read before torch.distributed is initialised, and the end of launched processes,
also of those that lose another one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

SIGNALS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows only has the first

_GO_ON = "the same command with --resume-from-checkpoint auto goes on where it stopped."


class Terminated(SystemExit):
    """A signal ended the run; if uncaught, the process exits with status 128 + the signal's number.

    Args:
        when: description of the time, empty if unknown.
        number: number of the signal.

    Attributes:
        status: exit status of the process.
        name: name of the signal.
    """

    def __init__(self, when: str = "", number: int = signal.SIGTERM) -> None:
        self.status, self.name = 128 + number, signal.Signals(number).name
        super().__init__(self.status)
        self.message = f"ended by {self.name}{when and ' '}{when}: {_GO_ON}"

    def __str__(self) -> str:
        return self.message


class ProcessLost(SystemExit):
    """Another process of the training has failed; if uncaught, the process exits with status 75 (EX_TEMPFAIL of sysexits.h).

    Args:
        found: what happened, a phrase for each lost process.
        saved: name of the checkpoint that was written after it, empty if there is none.
        error: the error of this process that followed from it.

    Attributes:
        status: exit status of the process.
    """

    status = 75

    def __init__(self, found: Sequence[str], saved: str = "", error: str = "") -> None:
        super().__init__(self.status)
        ends = f"rank {os.environ.get('RANK', '0')}: the training ends because {'; '.join(found)}."
        then = f" It is saved as {saved}." if saved else ""
        self.message = f"{ends}{then} {_GO_ON[0].upper()}{_GO_ON[1:]}{error and f' The error here was: {error}'}"

    def __str__(self) -> str:
        return self.message


@contextmanager
def on_termination(act: Callable[[int], None]) -> Iterator[None]:
    """Calls a function when one of `SIGNALS` arrives during the block; does nothing outside the main thread.

    An ignored signal remains ignored, such as SIGHUP under ``nohup``.

    Args:
        act: called with the signal's number between any two instructions; its exceptions are raised there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda came, frame: act(came))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def first_process() -> bool:
    """Returns whether this process writes files and messages."""
    return int(os.environ.get("RANK", "0")) == 0


def let_threads_end() -> None:
    """Waits for half a second if several processes were launched."""
    # PyTorch 2.13 aborts a process whose interpreter ends while a thread of gloo still holds Python objects of the last
    # collective. The thread needs a millisecond to release them, and longer on a busy machine.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        time.sleep(0.5)
