"""How a run ends at SIGTERM, which schedulers send some time before they kill, and at SIGHUP, of a terminal that is closed.

A training saves at its next step and ends; everything else ends at once. The message says how to go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows has the first alone

_GO_ON = "the same command with --resume-from-checkpoint auto goes on where it stopped."


class Terminated(SystemExit):
    """The run was ended by a signal; where nothing catches it, the process ends with the status 128 + its number.

    Args:
        when: in words, empty where it is not known.
        number: of the signal.

    Attributes:
        status: of the process.
        name: of the signal.
    """

    def __init__(self, when: str = "", number: int = signal.SIGTERM) -> None:
        self.status, self.name = 128 + number, signal.Signals(number).name
        super().__init__(self.status)
        self.message = f"ended by {self.name}{when and ' '}{when}: {_GO_ON}"

    def __str__(self) -> str:
        return self.message


@contextmanager
def on_termination(act: Callable[[int], None]) -> Iterator[None]:
    """Calls a function when one of `SIGNALS` comes while the block runs; does nothing in other threads than the main one.

    A signal that is ignored stays so, as SIGHUP is under ``nohup``.

    Args:
        act: called with the signal's number between any two instructions; what it raises is raised there.
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
