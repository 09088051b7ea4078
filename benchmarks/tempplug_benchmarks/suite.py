"""A suite: a named list of tasks, and variants of them that a name says. It must not know how they are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug.plugins import SuiteInfo, registry
from tempplug_benchmarks.arm import split_changes
from tempplug_benchmarks.task import Task


@dataclass(frozen=True)
class Suite:
    """Tasks that are run and reported together.

    Attributes:
        name: as ``tempplug bench run`` takes it.
        summary: one line for listings.
        tasks: at least one.
        kind: of suite, as ``tempplug bench run --help`` heads its options.
    """

    kind: ClassVar[str] = "suites that train"

    name: str
    summary: str
    tasks: tuple[Task, ...]

    def task(self, name: str) -> Task:
        """Returns the task of that name; ``TASK@SETTING=VALUE,...`` is one whose recipe is changed for all arms.

        Raises:
            UnknownNameError: the suite has none, or its recipe no such setting; the nearest name and all names are in the
                message.
            ConfigError: a setting is malformed or out of range.
        """
        base, changes = split_changes(name)
        known = {task.name: task for task in self.tasks}
        if base not in known:
            raise UnknownNameError(
                f"suite '{self.name}' has no task '{base}'.{nearest(base, known)} It has: {', '.join(known)}."
            )
        return known[base].changed(name, changes) if changes else known[base]

    def unasked(self, profile: str) -> tuple[Task, ...]:
        """Returns the tasks that a profile of the whole suite runs: all that have it, but for those that must be named."""
        return tuple(task for task in self.tasks if profile in task.profiles and profile not in task.by_name)


def load_suite(name: str) -> Suite:
    """Returns the registered suite of that name.

    Raises:
        TempplugError: there is none, or it cannot be loaded, or it is no suite.
    """
    known = registry()
    suite = known.load(known.get(SuiteInfo, name))
    if not isinstance(suite, Suite):
        raise ConfigError(f"a suite must be a Suite, not {type(suite).__name__}.")
    return suite
