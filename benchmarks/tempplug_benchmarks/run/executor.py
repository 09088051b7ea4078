"""What carries out runs: this process, processes beside it, or a Ray cluster, each as `concurrent.futures` of outcomes.

It must not know where results are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tempplug_benchmarks.run.child import Child, Lost, Message, Outcome
from tempplug_benchmarks.run.perform import perform
from tempplug_benchmarks.run.plan import Run


@dataclass(frozen=True, eq=False)
class Job:
    """A run to be executed.

    Attributes:
        run: which one.
        work_dir: folder for checkpoints, on this machine.
        step: told how far it is: the fraction done and a few words; from any thread.
    """

    run: Run
    work_dir: Path
    step: Callable[[float, str], None]

    def follow(self, messages: Iterable[Message]) -> Outcome:
        """Tells how far the run is, and returns what came of it."""
        for message in messages:
            if not isinstance(message, tuple):
                return message
            self.step(*message)
        return Lost("it was ended")


class Executor:
    """Carries out one run at a time, in this process; a context manager, whose end ends what is still at work.

    Args:
        data_dir: folder of real data, None where none was given.

    Attributes:
        attempts: how often a run is started that is lost each time.
    """

    attempts = 1

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        """Ends what is still at work."""

    def check(self, runs: Sequence[Run]) -> None:
        """Makes sure that it can carry out these runs.

        Raises:
            ConfigError: it never will; the message says what a run needs and what there is.
        """

    def has_room(self, run: Run, at_work: Sequence[Run]) -> bool:
        """Returns whether a run may be started beside others."""
        return not at_work

    def submit(self, job: Job) -> Future[Outcome]:
        """Starts a run."""
        done: Future[Outcome] = Future()
        done.set_result(perform(job.run, job.work_dir, self._data_dir, job.step))
        return done


class InProcesses(Executor):
    """Carries out several runs at once on this machine, in a process each; torch's threads are divided among them.

    A thread follows each process. A run whose task names variables of the environment has a process that no other run had.

    Args:
        data_dir: folder of real data, None where none was given.
        workers: processes at once, at least 1.
        time_limit: seconds that a run may take, None where it may take as long as it does.
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
        """Hands the run to a process that has none, or to a new one."""
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
