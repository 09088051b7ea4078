"""A suite: a named list of tasks, and variants of them that a name says. It must not know how they are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tempplug.errors import UnknownNameError, nearest
from tempplug_benchmarks.arm import split_changes
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

    def task(self, name: str) -> Task:
        """Returns the task of that name; ``TASK@SETTING=VALUE,...`` is one whose recipe is changed for all arms.

        Raises:
            UnknownNameError: the suite has none, or its recipe no such setting; the nearest name and all names are in the
                message.
            ConfigError: a setting is malformed or out of range.
        """
        base, changes = split_changes(name)
        found = super().task(base)
        return found.changed(name, changes) if changes else found

    def unasked(self, profile: str) -> tuple[Task, ...]:
        """Returns the tasks that a profile of the whole suite runs: all that have it, but for those that must be named."""
        return tuple(task for task in self.tasks if profile in task.profiles and profile not in task.by_name)
