"""Plans runs: the product of tasks, arms and seeds, with resolved specs and the path of every result.

This module must not train or write anything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.recipe import HIGHEST_SEED, Recipe
from tempplug_benchmarks.arm import Arm, Specs, parse_arm, resolve
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Resources, Task

ALL_ARMS = "all"


@dataclass(frozen=True)
class Run:
    """One arm of one task with one seed; ``suite`` and ``profile`` are names, ``specs`` the resolved specs of the arm."""

    suite: str
    profile: str
    task: Task
    arm: Arm
    specs: Specs
    seed: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Suite, profile, task, arm and seed."""
        return self.suite, self.profile, self.task.name, self.arm.label, self.seed

    @property
    def sizes(self) -> Profile:
        """The profile object."""
        return self.task.profile(self.profile)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the profile with the changes of the arm and the seed."""
        return self.sizes.recipe.changed(**self.arm.changes, seed=self.seed)

    @property
    def variables(self) -> Mapping[str, str] | None:
        """Environment variables that require a separate process; None if the run may share a process."""
        return None if self.task.variables is None else self.task.variables(self.recipe)

    @property
    def resources(self) -> Resources:
        """The cluster resources of the run."""
        return self.task.resources_of(self.profile)

    def folder(self, output: Path) -> Path:
        """Returns the folder of the arm, which contains one file for each seed."""
        return output / self.suite / self.profile / self.task.name / slug(self.arm.label)

    def path(self, output: Path) -> Path:
        """Returns the path of the result."""
        return self.folder(output) / f"seed-{self.seed}.json"

    def work_dir(self, output: Path) -> Path:
        """Returns the folder for checkpoints; a digest in its name prevents a changed run from resuming an old one."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:12]
        return self.folder(output) / f"seed-{self.seed}.{digest}.work"

    def identity(self) -> dict[str, Any]:
        """Returns the JSON data that must be equal for two results to belong to the same experiment."""
        identity = {
            **self.specs.given(),
            "changes": dict(self.arm.changes),
            "dataset": self.sizes.dataset,
            "recipe": self.sizes.settings(),
        }
        return dict(json.loads(json.dumps(identity)))

    def describe(self) -> str:
        """Returns a description of the run for progress and messages."""
        return f"{self.task.name} · {self.arm.label} · seed {self.seed}"


def slug(label: str) -> str:
    """Returns a label as a folder name of letters, digits, dots, underscores and minus signs."""
    return re.sub(r"[^a-z0-9._-]", "-", label.lower())


def choose_arms(
    task: Task, profile: str, wanted: Sequence[str] | None, *, baseline: bool = True
) -> dict[str, tuple[Arm, Specs]]:
    """Returns the arms to run, by label.

    Args:
        task: the task that declares the arms.
        profile: name of the profile.
        wanted: labels, ``STRATEGY[+OBJECTIVE][+TERM...]`` specs, or ``all`` for every arm of the task; None means ``all``. A
            spec that resolves to an arm of the task selects that arm.
        baseline: whether to always include the baseline.

    Raises:
        ConfigError: two arms would share a folder.
        TempplugError: a spec is invalid.
    """
    recipe = task.profile(profile).recipe
    own = {arm.label: arm for arm in task.profile(profile).arms}
    chosen = {task.baseline: own[task.baseline]} if baseline and wanted and ALL_ARMS not in wanted else {}
    for text in wanted or (ALL_ARMS,):
        if text == ALL_ARMS:
            chosen.update(own)
        elif text in own:
            chosen[text] = own[text]
        else:
            arm = parse_arm(text, recipe)
            specs = resolve(arm, recipe)
            alike = (each for each in own.values() if each.changes == arm.changes and resolve(each, recipe) == specs)
            arm = next(alike, arm)
            chosen.setdefault(arm.label, arm)
    folders: dict[str, str] = {}
    for label in chosen:
        other = folders.setdefault(slug(label), label)
        if other != label:
            raise ConfigError(f"arms '{other}' and '{label}' would share the folder '{slug(label)}': run them one at a time.")
    return {label: (arm, resolve(arm, recipe)) for label, arm in chosen.items()}


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises `ConfigError` if there is no seed, or a seed is out of range (`Recipe.seed`) or repeated."""
    if not seeds or min(seeds) < 0 or max(seeds) > HIGHEST_SEED or len(set(seeds)) < len(seeds):
        given = ", ".join(map(str, seeds)) or "none"
        raise ConfigError(f"seeds={given} must be different integers, each at least 0 and at most {HIGHEST_SEED}.")


def plan(
    suite: Suite,
    profile: str,
    seeds: Sequence[int],
    tasks: Sequence[str] | None = None,
    strategies: Sequence[str] | None = None,
) -> tuple[Run, ...]:
    """Returns the runs, ordered by seed within a task, so that every arm soon has a result.

    Args:
        suite: the suite.
        profile: its name.
        seeds: at least one, see `Recipe.seed`.
        tasks: names of tasks; None for all tasks that have the profile and run by default.
        strategies: see `choose_arms`.

    Raises:
        ConfigError: a seed is out of range or repeated, or no task has the profile.
        TempplugError: a task or a spec is unknown.
    """
    check_seeds(seeds)
    chosen = [suite.task(name) for name in dict.fromkeys(tasks)] if tasks else suite.default_tasks(profile)
    if not chosen:
        raise ConfigError(f"no task of suite '{suite.name}' has a profile '{profile}'.")
    runs: list[Run] = []
    for task in chosen:
        arms = choose_arms(task, profile, strategies).values()
        runs += [Run(suite.name, profile, task, arm, specs, seed) for seed in seeds for arm, specs in arms]
    return tuple(runs)
