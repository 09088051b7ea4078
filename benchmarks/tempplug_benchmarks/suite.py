"""A suite: a named list of tasks. It must not know how they are run."""

from __future__ import annotations

from dataclasses import dataclass

from tempplug.errors import UnknownNameError, nearest
from tempplug_benchmarks.task import Task


@dataclass(frozen=True)
class Suite:
    """Tasks that are run and reported together.

    Attributes:
        name: as ``tempplug bench run`` takes it.
        summary: one line for listings.
        tasks: at least one.
    """

    name: str
    summary: str
    tasks: tuple[Task, ...]

    def task(self, name: str) -> Task:
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
