"""Executors of runs, as `concurrent.futures` of outcomes: this process, child processes, or a Ray cluster.

They must not depend on where results are stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tempplug_benchmarks.run.child import Child, Lost, Message, Outcome, perform
from tempplug_benchmarks.run.plan import Run


@dataclass(frozen=True, eq=False)
class Job:
    """A run to execute.

    Attributes:
        run: the run.
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
