"""What is left of a plan: the same command goes on where it stopped. It must not know what a job measures or stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tempplug.errors import ConfigError, DataError


class Job(Protocol):
    """Something that leaves one file when it is done."""

    def path(self, output: Path) -> Path:
        """Returns the file of the result."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(frozen=True)
class Todo(Generic[AnyJob]):
    """What is left of a plan.

    Attributes:
        runs: to be executed, in order.
        finished: how many are on disk already.
        corrupt: messages about result files that cannot be read; their runs are among ``runs``.
    """

    runs: tuple[AnyJob, ...]
    finished: int
    corrupt: tuple[str, ...]


def left_of(
    jobs: Sequence[AnyJob], output: Path, difference: Callable[[AnyJob, Path], str], rerun_changed: bool = False
) -> Todo[AnyJob]:
    """Returns which jobs are to be executed.

    Args:
        jobs: the plan.
        output: folder of results.
        difference: reads a stored file and says how its experiment differs from the job's; empty where it does not. A file
            that cannot be read makes it raise `DataError`, and the job is done again.
        rerun_changed: whether results of other experiments are replaced.

    Raises:
        ConfigError: there is such a result and ``rerun_changed`` is false; the message names the file and what differs.
    """
    todo: list[AnyJob] = []
    corrupt: list[str] = []
    changed: list[str] = []
    for job in jobs:
        path = job.path(output)
        if not path.exists():
            todo.append(job)
            continue
        try:
            found = difference(job, path)
        except DataError as error:
            corrupt.append(str(error))
            todo.append(job)
            continue
        if found:
            changed.append(f"{path} is of another experiment: {found}.")
            todo.append(job)
    if changed and not rerun_changed:
        more = f" So are {len(changed) - 1} more." if len(changed) > 1 else ""
        raise ConfigError(f"{changed[0]}{more} Pass --rerun-changed to replace it, or choose another --output.")
    return Todo(tuple(todo), len(jobs) - len(todo), tuple(corrupt))
