"""A child process that executes runs one after the other and reports their progress.

It is reused because importing frameworks takes seconds. A crash or a lack of memory affects only the current run.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tempplug.errors import TempplugError
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Failure, Result, failure_of, result_of
from tempplug_benchmarks.run_method import RunContext

INTERVAL = 1.0
"""Seconds between two checks of a run."""


@dataclass(frozen=True)
class Lost:
    """A run that produced no result because its process ended; ``cause`` is a clause for messages."""

    cause: str


Outcome = Result | Failure | Lost
Message = tuple[float, str] | Outcome
"""A completed fraction with a description, or finally the outcome of the run."""


class Child:
    """A process that executes runs.

    Args:
        data_dir: folder of real data; None if none was given.
        threads: torch threads, at least 1.
        variables: environment variables in addition to those of this process.
    """

    def __init__(self, data_dir: Path | None, threads: int, variables: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, data_dir, threads))
        with _environment(variables):
            self._process.start()
        other.close()  # close this end, so that the pipe breaks when the child exits

    @property
    def alive(self) -> bool:
        """Whether the process can execute another run."""
        return self._process.is_alive()

    def messages(self, run: Run, work_dir: Path, time_limit: float | None) -> Iterator[Message]:
        """Executes a run; yields its progress and finally its outcome.

        Args:
            run: the run to execute.
            work_dir: folder for checkpoints.
            time_limit: seconds after which the process is terminated; None for no limit.
        """
        until = math.inf if time_limit is None else time.monotonic() + time_limit
        with suppress(BrokenPipeError):  # the process exited in the meantime
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
        """Returns the next message, or None after a timeout."""
        wait([self._connection, self._process.sentinel], timeout)
        ended = not self.alive
        with suppress(EOFError, OSError):
            if self._connection.poll():  # deliver messages sent before the exit first
                message: Message = self._connection.recv()
                return message
            if not ended:
                return None
        self._process.join()
        code = self._process.exitcode or 0
        return Lost(f"its process ended without a result ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def kill(self) -> None:
        """Kills the process, so that a thread waiting for messages is released."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process and waits for its exit."""
        self.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables of this process while the block starts a child process."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def _work(connection: Connection, data_dir: Path | None, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption reaches the parent, which ends its children
    end_with_parent()
    import torch  # the import takes a while, and the parent may exit during it

    torch.set_num_threads(threads)
    while True:
        run, work_dir = connection.recv()
        connection.send(perform(run, work_dir, data_dir, lambda fraction, text: connection.send((fraction, text))))


def end_with_parent() -> None:
    """Ends this process when its parent exits, so that no orphan process works on a run that is started again."""

    def follow() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


NOTED = ("temperature", "course", "resampled", "launch", "implementations")
"""Fields of `RunContext` that a run fills for its result."""


def perform(run: Run, work_dir: Path, data_dir: Path | None, progress: Callable[[float, str], None]) -> Result | Failure:
    """Executes one run.

    Args:
        run: the run to execute.
        work_dir: folder for checkpoints; checkpoints of an earlier attempt are resumed.
        data_dir: folder of real data; None if none was given.
        progress: called with the completed fraction and a short description.

    Returns:
        The result, or a record of the exception.
    """
    context = RunContext(
        method=run.task.method,
        profile=run.sizes,
        recipe=run.recipe,
        **run.specs._asdict(),
        data_dir=data_dir,
        work_dir=work_dir,
        progress=progress,
    )
    started = time.perf_counter()
    try:
        run.sizes.check_data(run.task.name, data_dir)  # the run may have been planned on another machine
        metrics = run.task.run(context)
    except TempplugError as error:
        return failure_of(run, str(error))
    except Exception as error:
        return failure_of(run, f"{type(error).__name__}: {error}", traceback.format_exc())
    noted = {name: getattr(context, name) for name in NOTED}
    return result_of(run, metrics, time.perf_counter() - started, **noted)
