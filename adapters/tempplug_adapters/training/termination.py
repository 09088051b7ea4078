"""Handles SIGTERM, which schedulers send before they kill a process, and SIGHUP, sent when a terminal is closed.

A training saves a checkpoint at its next step and ends; other commands end at once. The message says how to resume.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
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
