"""A process that executes runs one after the other, because it loads its frameworks for seconds, and what is heard of a run.

A crash or a lack of memory costs one run, not the program. This module must not know where results are kept.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tempplug_benchmarks.run.perform import perform
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Failure, Result, failure_of

INTERVAL = 1.0
"""Seconds between two looks at a run."""


@dataclass(frozen=True)
class Lost:
    """A run whose process ended without a result; the cause is a clause."""

    cause: str


Outcome = Result | Failure | Lost
Message = tuple[float, str] | Outcome
"""What is heard of a run: how far it is, and last what came of it."""


class Child:
    """A process that executes runs.

    Args:
        data_dir: folder of real data, None where none was given.
        threads: of torch, at least 1.
        variables: of its environment, beside those of this process.
    """

    def __init__(self, data_dir: Path | None, threads: int, variables: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, data_dir, threads))
        with _environment(variables):
            self._process.start()
        other.close()  # so that the end of the process ends the pipe

    @property
    def alive(self) -> bool:
        """Whether the process can take another run."""
        return self._process.is_alive()

    def messages(self, run: Run, work_dir: Path, time_limit: float | None) -> Iterator[Message]:
        """Executes a run; returns how far it is and last what came of it.

        Args:
            run: to execute.
            work_dir: folder for checkpoints.
            time_limit: seconds after which the process is ended, None for none.
        """
        until = math.inf if time_limit is None else time.monotonic() + time_limit
        with suppress(BrokenPipeError):  # it ended meanwhile
            self._connection.send((run, work_dir))
        message: Message | None = None
        while message is None or isinstance(message, tuple):
            message = self._next(max(0.0, min(until - time.monotonic(), INTERVAL)))
            if (message is None or isinstance(message, tuple)) and time.monotonic() >= until:
                self.close()
                message = failure_of(run, f"it took longer than the time limit of {time_limit:g} s.")
            if message is not None:
                yield message

    def _next(self, timeout: float) -> Message | None:
        """Returns the next message; None where there is none in time."""
        wait([self._connection, self._process.sentinel], timeout)
        ended = not self.alive
        with suppress(EOFError, OSError):
            if self._connection.poll():  # what it said before its end comes first
                message: Message = self._connection.recv()
                return message
            if not ended:
                return None
        self._process.join()
        code = self._process.exitcode or 0
        return Lost(f"its process ended without a result ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def kill(self) -> None:
        """Ends the process, so that a thread that waits for messages gets the last one."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process, and waits for that."""
        self.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process while the block starts another one."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(connection: Connection, data_dir: Path | None, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption reaches the parent, which ends its children
    end_with_parent()
    import torch  # which takes a while, in which the parent may end

    torch.set_num_threads(threads)
    while True:
        run, work_dir = connection.recv()
        connection.send(perform(run, work_dir, data_dir, lambda fraction, text: connection.send((fraction, text))))


def end_with_parent() -> None:
    """Ends this process when its parent ends, so that no orphan works on a run that the same command starts again."""

    def follow() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
