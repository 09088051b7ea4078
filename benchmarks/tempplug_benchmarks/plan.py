"""Which runs a command means: suite × tasks × arms × seeds, with every spec resolved and every run's place on disk.

This module must not train or write anything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Profile, Task

ALL_ARMS = "all"
# A plus sign belongs to a number (1e+3) unless a letter, the start of an objective's name, follows it.
_OBJECTIVE = re.compile(r"\+(?=[a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """One arm of one task with one seed.

    Attributes:
        suite: name of the suite.
        profile: name of the profile.
        task: what to run.
        arm: with which strategy and objective, specs resolved.
        seed: at least 0.
    """

    suite: str
    profile: str
    task: Task
    arm: Arm
    seed: int

    @property
    def sizes(self) -> Profile:
        """The profile itself."""
        return self.task.profile(self.profile)

    def folder(self, output: Path) -> Path:
        """Returns the folder of the arm, which holds one file a seed."""
        return output / self.suite / self.profile / self.task.name / slug(self.arm.label)

    def path(self, output: Path) -> Path:
        """Returns the file of the result."""
        return self.folder(output) / f"seed-{self.seed}.json"

    def work_dir(self, output: Path) -> Path:
        """Returns the folder for checkpoints; the digest in its name keeps a changed run from resuming an old one."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:12]
        return self.folder(output) / f"seed-{self.seed}.{digest}.work"

    def identity(self) -> dict[str, Any]:
        """Returns what must be equal for two results to be of the same experiment, as JSON holds it."""
        identity = {
            "strategy": self.arm.strategy,
            "objective": self.arm.objective,
            "dataset": self.sizes.dataset,
            "recipe": dict(self.sizes.recipe),
        }
        return dict(json.loads(json.dumps(identity)))

    def describe(self) -> str:
        """Returns the run in words, for progress and messages."""
        return f"{self.task.name} · {self.arm.label} · seed {self.seed}"


def slug(label: str) -> str:
    """Returns a label as a folder name: letters, digits, dots, underscores and minus signs.

    >>> slug("macl:alpha=2+dcl")
    'macl-alpha-2-dcl'
    """
    return re.sub(r"[^a-z0-9._-]", "-", label.lower())


def parse_arm(text: str, known: Mapping[str, Arm]) -> Arm:
    """Returns the arm that ``STRATEGY[+OBJECTIVE]`` names.

    Args:
        text: a label of ``known``, or a spec string of a strategy; behind ``+``, a spec string of an objective. A strategy
            that is a label of ``known`` stands for that arm's strategy, with the recipe's options.
        known: the task's own arms by label.

    Raises:
        ConfigError: the strategy or the objective is empty.

    >>> parse_arm("macl:alpha=2+dcl", {})
    Arm(label='macl:alpha=2+dcl', strategy='macl:alpha=2', objective='dcl', reported=())
    """
    if text in known:
        return known[text]
    strategy, *objectives = _OBJECTIVE.split(text, maxsplit=1)
    base = known.get(strategy, Arm(text, strategy))
    objective = objectives[0] if objectives else base.objective
    if not strategy.strip() or not objective.strip():
        raise ConfigError(f"arm '{text}' must be STRATEGY or STRATEGY+OBJECTIVE, such as fixed:temperature=0.05+dcl.")
    return Arm(text, base.strategy, objective)


def choose_arms(task: Task, profile: str, wanted: Sequence[str] | None) -> tuple[Arm, ...]:
    """Returns the arms to run, the task's baseline always among them.

    Args:
        task: whose arms.
        profile: name of the profile.
        wanted: labels, ``STRATEGY[+OBJECTIVE]`` specs, or ``all`` for every arm of the task; None means ``all``.

    Raises:
        ConfigError: two arms would share a folder.
    """
    own = {arm.label: arm for arm in task.profile(profile).arms}
    chosen = {task.baseline: own[task.baseline]} if wanted and ALL_ARMS not in wanted else {}
    for text in wanted or (ALL_ARMS,):
        for arm in own.values() if text == ALL_ARMS else (parse_arm(text, own),):
            chosen.setdefault(arm.label, arm)
    folders: dict[str, str] = {}
    for label in chosen:
        other = folders.setdefault(slug(label), label)
        if other != label:
            raise ConfigError(f"arms '{other}' and '{label}' would share the folder '{slug(label)}': run them one at a time.")
    return tuple(chosen.values())


def resolve(arm: Arm) -> Arm:
    """Returns the arm with every option of its specs written out.

    Raises:
        TempplugError: a spec names an unknown strategy, objective or option, or a value out of range.
    """
    from tempplug import create_objective, create_strategy

    return replace(arm, strategy=create_strategy(arm.strategy).spec(), objective=create_objective(arm.objective).spec())


def plan(
    suite: Suite,
    profile: str,
    seeds: Sequence[int],
    tasks: Sequence[str] | None = None,
    strategies: Sequence[str] | None = None,
) -> tuple[Run, ...]:
    """Returns the runs, seed by seed within a task, so that every arm has its first seed early.

    Args:
        suite: what to run.
        profile: name of the profile.
        seeds: at least one, each at least 0.
        tasks: names of tasks, None for all that have the profile.
        strategies: see `choose_arms`.

    Raises:
        ConfigError: a seed is negative or given twice, or no task has the profile.
        TempplugError: a task or a spec is not known.
    """
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={', '.join(map(str, seeds)) or 'none'} must be different integers, each at least 0.")
    if tasks:
        chosen = [suite.task(name) for name in dict.fromkeys(tasks)]
    else:
        chosen = [task for task in suite.tasks if profile in task.profiles]
    if not chosen:
        raise ConfigError(f"no task of suite '{suite.name}' has a profile '{profile}'.")
    runs: list[Run] = []
    for task in chosen:
        arms = [resolve(arm) for arm in choose_arms(task, profile, strategies)]
        runs += [Run(suite.name, profile, task, arm, seed) for seed in seeds for arm in arms]
    return tuple(runs)
