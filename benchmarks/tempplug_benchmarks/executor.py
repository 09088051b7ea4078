"""What carries out runs, one process or many. It must not know which runs there are, nor where results are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tempplug_benchmarks.perform import perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.store import Failure, Result


@dataclass(frozen=True, eq=False)
class Job:
    """A run to be executed.

    Attributes:
        run: which one.
        work_dir: folder for checkpoints, on this machine.
        step: told how far it is: the fraction done and a few words.
    """

    run: Run
    work_dir: Path
    step: Callable[[float, str], None]


@dataclass(frozen=True)
class Lost:
    """A run whose process ended without a word.

    Attributes:
        cause: a clause that says how.
    """

    cause: str


Outcome = Result | Failure | Lost


class Executor(Protocol):
    """What carries out runs; a context manager, whose end ends what is still at work."""

    attempts: int
    """How often a run is started that is lost each time."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def check(self, runs: Sequence[Run]) -> None:
        """Makes sure that it can carry out these runs.

        Raises:
            ConfigError: it never will; the message says what a run needs and what there is.
        """
        ...

    def has_room(self, run: Run) -> bool:
        """Returns whether a run may be started now."""
        ...

    def start(self, job: Job) -> None:
        """Starts a run."""
        ...

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Waits until something happened, passes on how far runs are, and returns those that ended.

        Args:
            timeout: seconds after which it returns anyhow, where runs are at work elsewhere.
        """
        ...


class InThisProcess:
    """Carries out one run at a time, in this process.

    Args:
        data_dir: folder of real data, None where none was given.
    """

    attempts = 1

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir
        self._next: Job | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def check(self, runs: Sequence[Run]) -> None:
        """Takes any run."""

    def has_room(self, run: Run) -> bool:
        """Returns whether none is at work."""
        return self._next is None

    def start(self, job: Job) -> None:
        """Keeps the run for `wait`."""
        self._next = job

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Executes the run that was started."""
        job, self._next = self._next, None
        return [] if job is None else [(job, perform(job.run, job.work_dir, self._data_dir, job.step))]
