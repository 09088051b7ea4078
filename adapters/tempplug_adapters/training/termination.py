"""SIGTERM, which schedulers send some time before they kill: what is done when it comes, and how a run ends then.

A training saves at its next step and ends; everything else ends at once. Both say how to go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_STATUS = 128 + signal.SIGTERM

_GO_ON = "the same command with --resume-from-checkpoint auto goes on where it stopped."


class Terminated(SystemExit):
    """The run was ended by SIGTERM; where nothing catches it, the process ends with `EXIT_STATUS`.

    Args:
        when: in words, empty where it is not known.
    """

    def __init__(self, when: str = "") -> None:
        super().__init__(EXIT_STATUS)
        self.message = f"ended by SIGTERM{when and ' '}{when}: {_GO_ON}"

    def __str__(self) -> str:
        return self.message


@contextmanager
def on_termination(act: Callable[[], None]) -> Iterator[None]:
    """Does something when SIGTERM comes while the block runs; nothing changes in other threads than the main one.

    Args:
        act: between any two instructions; what it raises is raised there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
