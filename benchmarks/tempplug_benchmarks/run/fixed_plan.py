"""A plan that is fixed before its runs, as a TOML file: what is asked, which arms and seeds run, and what decides.

``tempplug bench run --plan FILE`` copies the file beside the arms of each of its tasks; reports then leave out what it lacks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.run.fields import check_fields, read_text
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Entry
from tempplug_benchmarks.run.task_file import PLAN, read_plan_text, task_file

Plan = TypeVar("Plan")


@dataclass(frozen=True, kw_only=True)
class FixedPlan:
    """A plan.

    Attributes:
        date: day on which it was fixed, ISO 8601.
        question: what the runs are to answer.
        suite: name of a suite.
        profile: name of a profile.
        tasks: names of tasks.
        arms: labels, the baseline among them.
        seeds: seeds of every arm.
        decisions: rules that turn the results into answers.
    """

    date: str
    question: str
    suite: str
    profile: str
    tasks: Sequence[str]
    arms: Sequence[str]
    seeds: Sequence[int]
    decisions: Sequence[str] = ()

    def covers(self, entry: Entry) -> bool:
        """Returns whether a run belongs to the plan; a control belongs to it with its arm."""
        return (Arm(entry.arm).controlled or entry.arm) in self.arms and entry.seed in self.seeds


def read_plan(path: Path, kind: type[Plan]) -> Plan:
    """Returns the plan of a file; raises `DataError` if it cannot be read, or has other fields or types than ``kind``."""
    return parse_plan(read_text(path, "plan"), path, kind)


def parse_plan(text: str, path: Path, kind: type[Plan]) -> Plan:
    """Returns the plan that a text has; raises like `read_plan`, with the path that the text is of."""
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise DataError(f"plan {path} cannot be read: {error}.") from error
    return kind(**check_fields(kind, {**content, "date": str(content.get("date"))}, f"plan {path}"))


def task_plan(folder: Path) -> FixedPlan | None:
    """Returns the plan of a task with this folder; None without one."""
    text = read_plan_text(folder)
    path = folder / PLAN
    return parse_plan(text, path if path.exists() else task_file(folder), FixedPlan) if text else None


def copy_plan(path: Path, runs: Sequence[Run], output: Path) -> None:
    """Copies the file of a plan beside the arms of its tasks; raises `ConfigError` if another plan is there."""
    text = path.read_text(encoding="utf-8")
    for folder in dict.fromkeys(run.folder(output).parent for run in runs):
        if (before := read_plan_text(folder)) not in ("", text):
            raise ConfigError(f"{folder / PLAN} is another plan than {path}: choose another --output.")
        if not before:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / PLAN, text)
