"""A suite: a named list of tasks. It must not know how they are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tempplug.errors import UnknownNameError, nearest
from tempplug_benchmarks.task import Task


class Named(Protocol):
    """A task of any kind of suites."""

    @property
    def name(self) -> str:
        """Short name, unique within its suite."""
        ...

    @property
    def profiles(self) -> Any:
        """What there is to run, by name of the profile."""
        ...


AnyTask = TypeVar("AnyTask", bound=Named)


@dataclass(frozen=True)
class TaskList(Generic[AnyTask]):
    """Tasks that are run and reported together.

    Attributes:
        name: as ``tempplug bench run`` takes it.
        summary: one line for listings.
        tasks: at least one.
    """

    name: str
    summary: str
    tasks: tuple[AnyTask, ...]

    def task(self, name: str) -> AnyTask:
        """Returns the task of that name.

        Raises:
            UnknownNameError: the suite has none; the nearest name and all names are in the message.
        """
        known = {task.name: task for task in self.tasks}
        if name not in known:
            raise UnknownNameError(
                f"suite '{self.name}' has no task '{name}'.{nearest(name, known)} It has: {', '.join(known)}."
            )
        return known[name]


@dataclass(frozen=True)
class Suite(TaskList[Task]):
    """Tasks that train."""
