"""What a benchmark task is: a method on data in up to three sizes, called profiles, and the baseline of all comparisons.

This module must not know how runs are executed, stored or reported, and imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_benchmarks.profile import PROFILES, Profile
from tempplug_benchmarks.resources import Resources
from tempplug_benchmarks.run_method import RunContext, run_method


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question with its data: every arm is trained by the same recipe and measured in the same way.

    Attributes:
        name: short name, unique within its suite.
        summary: one line for listings.
        method: what is trained.
        baseline: label of the arm that the others are compared with, present in every profile; empty where they are not.
        profiles: by name, ``quick``, ``small`` and ``paper``; a task may lack one.
        family: tasks of a suite whose family has one name ask one question, and are corrected for all their comparisons
            together; empty where the task asks its own.
        papers: name of the transcribed tables (`tempplug_benchmarks.papers`), empty where no paper is answered.
        by_name: profiles in which it runs only where it is named: others of its suite are enough there.
        quickstart: labels of the arms of its quick profile, the baseline's among them, that a quick run of all suites compares;
            empty where it takes no part in that.
        train: trains one arm with one seed and returns the metrics; a function of a module, so that a worker process
            can import it.
        resources: by profile, what a cluster sets aside for a run; one processor where a profile is not named.
        variables: returns from a run's recipe the variables of the environment of a process that the run has alone; None where
            runs may share one.

    Raises:
        ConfigError: a profile is unknown or lacks its baseline, its primary metric or that of validation; two of its arms share
            a label, or one names no objective; or there are resources of a profile that there is not.
    """

    name: str
    summary: str
    method: MethodInfo
    baseline: str
    profiles: Mapping[str, Profile]
    family: str = ""
    papers: str = ""
    by_name: tuple[str, ...] = ()
    quickstart: tuple[str, ...] = ()
    train: Callable[[RunContext], Mapping[str, float]] = field(default=run_method, repr=False)
    resources: Mapping[str, Resources] = field(default_factory=dict)
    variables: Callable[[Any], Mapping[str, str]] | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.resources) - set(self.profiles)):
            known = ", ".join(self.profiles)
            raise ConfigError(f"resources of task '{self.name}' must be of its profiles {known}, not of '{unknown[0]}'.")
        if self.quickstart:
            foreign = [label for label in self.quickstart if self.profile("quick").arm(label) is None]
            if foreign or self.baseline not in self.quickstart:
                raise ConfigError(
                    f"quickstart={', '.join(self.quickstart)} of task '{self.name}' must be arms of its profile 'quick', the "
                    f"baseline '{self.baseline}' among them."
                )
        for name, profile in self.profiles.items():
            labels = [arm.label for arm in profile.arms]
            where = f"profile '{name}' of task '{self.name}'"
            if name not in PROFILES:
                raise ConfigError(f"{where} must be one of {', '.join(PROFILES)}.")
            if self.baseline and self.baseline not in labels:
                raise ConfigError(f"{where} must have an arm labelled '{self.baseline}', the baseline.")
            if len(set(labels)) < len(labels):
                raise ConfigError(f"{where} must not have two arms of one label: {', '.join(labels)}.")
            metrics = [metric.name for metric in profile.metrics]
            if profile.primary not in metrics:
                raise ConfigError(f"{where} must have a metric named '{profile.primary}', its primary one.")
            if profile.validation and (profile.validation not in metrics or profile.validation == profile.primary):
                raise ConfigError(
                    f"{where} must have a metric named '{profile.validation}' beside its primary one, to choose by."
                )
            for arm in profile.arms:
                if not arm.contrasts and not arm.changes:
                    raise ConfigError(f"arm '{arm.label}' of {where} must name its objective: {arm.label}+OBJECTIVE.")

    def profile(self, name: str) -> Profile:
        """Returns the profile of that name.

        Raises:
            UnknownNameError: the task has none; those that it has are in the message.
        """
        if name not in self.profiles:
            raise UnknownNameError(f"task '{self.name}' has no profile '{name}'. It has: {', '.join(self.profiles)}.")
        return self.profiles[name]

    def changed(self, name: str, changes: Mapping[str, Any]) -> Task:
        """Returns the task with settings of the recipe changed in every profile; what papers report is not of it.

        Args:
            name: of the new task.
            changes: as the paper's profile has them, see `Profile.changed`.

        Raises:
            UnknownNameError: a name is no setting.
            ConfigError: a setting is out of range.
        """
        paper = self.profiles["paper"].recipe if "paper" in self.profiles else None
        profiles = {
            size: profile.changed(changes, None if size == "paper" else paper) for size, profile in self.profiles.items()
        }
        return replace(self, name=name, profiles=profiles, papers="")

    def resources_of(self, profile: str) -> Resources:
        """Returns what a cluster sets aside for a run of a profile."""
        return self.resources.get(profile, Resources())

    def run(self, context: RunContext) -> dict[str, float]:
        """Trains and measures once.

        Returns:
            The declared metrics, by name, in their declared order.

        Raises:
            ConfigError: what came back is not exactly the declared metrics, each a finite number.
        """
        measured = self.train(context)
        names = [metric.name for metric in context.profile.metrics]
        if set(measured) != set(names):
            raise ConfigError(f"task '{self.name}' returned the metrics {sorted(measured)}, declared are {sorted(names)}.")
        for name in names:
            if not math.isfinite(measured[name]):
                raise ConfigError(f"metric {name}={measured[name]} of task '{self.name}' must be finite.")
        return {name: float(measured[name]) for name in names}
