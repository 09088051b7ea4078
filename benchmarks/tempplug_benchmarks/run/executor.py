"""Executors of runs, as `concurrent.futures` of outcomes: in this process, or in child processes that execute several in turn.

A child process is reused because importing frameworks takes seconds. A crash or a lack of memory affects only its current run.
Executors must not depend on where results are stored.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Self
from unittest.mock import patch

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
        with patch.dict(os.environ, variables):
            self._process.start()
        other.close()  # close this end, so that the pipe breaks when the child exits

    @property
    def alive(self) -> bool:
        """Whether the process can execute another run."""
        return self._process.is_alive()

    def messages(self, run: Run, work_dir: Path, time_limit: float | None) -> Iterator[Message]:
        """Executes a run, with checkpoints in ``work_dir``; yields its progress and finally its outcome.

        After ``time_limit`` seconds the process is terminated; None for no limit.
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
        run: the run.
        work_dir: folder for checkpoints; those of an earlier attempt are resumed.
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


@dataclass(frozen=True, eq=False)
class Job:
    """A run to execute.

    Attributes:
        work_dir: folder for checkpoints, on this machine.
        step: called from any thread with the completed fraction and a short description.
    """

    run: Run
    work_dir: Path
    step: Callable[[float, str], None]

    def follow(self, messages: Iterable[Message]) -> Outcome:
        """Reports the progress of the run and returns its outcome."""
        for message in messages:
            if not isinstance(message, tuple):
                return message
            self.step(*message)
        return Lost("it was ended")


class Executor:
    """Executes one run at a time in this process; a context manager that cancels unfinished runs on exit.

    Args:
        data_dir: folder of real data; None if none was given.

    Attributes:
        attempts: maximum number of attempts for a run whose process is lost.
    """

    attempts = 1

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        """Cancels the runs that have not finished."""

    def check(self, runs: Sequence[Run]) -> None:
        """Raises `ConfigError` if a run needs more resources than the executor can ever provide."""

    def has_room(self, run: Run, at_work: Sequence[Run]) -> bool:
        """Returns whether another run can be started now."""
        return not at_work

    def submit(self, job: Job) -> Future[Outcome]:
        """Starts a run."""
        done: Future[Outcome] = Future()
        done.set_result(perform(job.run, job.work_dir, self._data_dir, job.step))
        return done


class InProcesses(Executor):
    """Executes several runs at once on this machine, each in its own process; torch threads are divided among them.

    One thread follows each process. A run with environment variables of its own gets a new process.

    Args:
        data_dir: folder of real data; None if none was given.
        workers: maximum number of processes, at least 1.
        time_limit: seconds that a run may take; None for no limit.
    """

    def __init__(self, data_dir: Path | None, workers: int = 1, time_limit: float | None = None) -> None:
        super().__init__(data_dir)
        self._workers, self._time_limit = workers, time_limit
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._lock = threading.Lock()
        self._ended = False

    def __enter__(self) -> Self:
        import torch

        self._threads = max(1, torch.get_num_threads() // self._workers)
        self._pool = ThreadPoolExecutor(self._workers)
        return self

    def __exit__(self, *of_error: object) -> None:
        with self._lock:
            self._ended = True
            for child in self._children:
                child.kill()
        self._pool.shutdown()
        for child in self._idle:
            child.close()

    def has_room(self, run: Run, at_work: Sequence[Run]) -> bool:
        """Returns whether a worker is free."""
        return len(at_work) < self._workers

    def submit(self, job: Job) -> Future[Outcome]:
        """Assigns the run to an idle process or to a new one."""
        return self._pool.submit(self._follow, job)

    def _follow(self, job: Job) -> Outcome:
        variables = job.run.variables
        with self._lock:
            if self._ended:
                return job.follow(())
            reused = self._idle.pop() if self._idle and variables is None else None
            child = reused or Child(self._data_dir, self._threads, variables or {})
            self._children.add(child)
        outcome = job.follow(child.messages(job.run, job.work_dir, self._time_limit))
        with self._lock:
            self._children.remove(child)
            if keep := child.alive and variables is None and not self._ended:
                self._idle.append(child)
        if not keep:
            child.close()
        return outcome
