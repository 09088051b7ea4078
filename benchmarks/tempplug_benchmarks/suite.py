"""A suite: a named list of tasks. It must not depend on how they are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempplug.errors import ConfigError, UnknownNameError, listed, nearest
from tempplug.plugins import SuiteInfo, registry
from tempplug_benchmarks.arm import split_changes
from tempplug_benchmarks.task import Task


@dataclass(frozen=True)
class Suite:
    """Tasks that are run and reported together.

    Attributes:
        name: as given to ``tempplug bench run``.
        summary: one line for listings.
        tasks: at least one.
        kind: the kind of suite, as in the headings of ``tempplug bench run --help``.
    """

    kind: ClassVar[str] = "suites that train"

    name: str
    summary: str
    tasks: tuple[Task, ...]

    def task(self, name: str) -> Task:
        """Returns the task of that name; for ``TASK@SETTING=VALUE,...``, with the recipe changed for all arms.

        Raises:
            UnknownNameError: the task or a setting is unknown; the message gives the nearest name and all names.
            ConfigError: a setting is malformed or out of range.
        """
        base, changes = split_changes(name)
        known = {task.name: task for task in self.tasks}
        if base not in known:
            raise UnknownNameError(f"suite '{self.name}' has no task '{base}'.{nearest(base, known)} It has: {listed(known)}.")
        return known[base].changed(name, changes) if changes else known[base]

    def default_tasks(self, profile: str) -> tuple[Task, ...]:
        """Returns the tasks with this profile that run by default."""
        return tuple(task for task in self.tasks if profile in task.profiles and profile not in task.by_name)


def load_suite(name: str) -> Suite:
    """Returns a registered suite; raises `TempplugError` if it is unknown, cannot be loaded or is not a `Suite`."""
    known = registry()
    suite = known.load(known.get(SuiteInfo, name))
    if not isinstance(suite, Suite):
        raise ConfigError(f"a suite must be a Suite, not {type(suite).__name__}.")
    return suite
