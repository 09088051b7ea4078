"""A benchmark task: a method on data in up to three sizes, called profiles, with a baseline for all comparisons.

This module must not depend on how runs are executed, stored or reported, and imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_benchmarks.arm import UNTRAINED
from tempplug_benchmarks.profile import PROFILES, Profile
from tempplug_benchmarks.run_method import RunContext, run_method


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that a cluster reserves for one run; they are ignored on the local machine.

    Attributes:
        cpus: CPU cores, at least 1; also the number of torch threads.
        gpus: number of GPUs; a fraction lets several runs share one, and 0 hides all GPUs from the run.
        memory: main memory in GiB.
    """

    cpus: int = 1
    gpus: float = 0
    memory: float = 2

    def __str__(self) -> str:
        """Returns the resources as text.

        >>> print(Resources(), Resources(cpus=4, gpus=0.5, memory=12.25), sep="; ")
        1 CPU, no GPU, 2 GiB; 4 CPUs, 0.5 GPU, 12.2 GiB
        """
        return in_words(self.cpus, self.gpus, self.memory)


def in_words(cpus: float, gpus: float, memory: float) -> str:
    """Returns numbers of CPUs and GPUs and an amount of memory in GiB as text."""
    return f"{_count(cpus, 'CPU')}, {_count(gpus, 'GPU') if gpus else 'no GPU'}, {float(f'{memory:.3g}'):g} GiB"


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' if number > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark question: all arms are trained with the same recipe on the same data and measured in the same way.

    Attributes:
        name: short name, unique within its suite.
        summary: one line for listings.
        method: the method to train.
        baseline: label of the arm that others are compared with, present in every profile; empty if there is no comparison.
        profiles: by name, ``quick``, ``small`` and ``paper``; a task may lack some of them.
        without: label of the arm that the baseline must be better than, or else nothing is concluded; for an auxiliary loss the
            same training without it, present in every profile.
        family: tasks of a suite with the same family name test one hypothesis, and their p-values are corrected together;
            empty if the task is a family of its own.
        papers: name of the transcribed tables (`tempplug_benchmarks.papers`); empty if there are none.
        by_name: profiles in which the task runs only if it is named.
        quickstart: labels of the arms of profile ``quick``, baseline included, that a quick run of all suites compares;
            empty if the task is left out of that run.
        train: trains one arm with one seed and returns the metrics; a module-level function, so that worker processes can
            import it.
        resources: cluster resources of one run, by profile; one CPU if a profile is missing.
        variables: maps the recipe of a run to environment variables that require a separate process; None if runs may share
            a process.

    Raises:
        ConfigError: a profile is unknown or lacks its baseline, primary metric or validation metric; two arms share a label;
            an arm has no objective; or resources are given for a missing profile.
    """

    name: str
    summary: str
    method: MethodInfo
    baseline: str
    profiles: Mapping[str, Profile]
    without: str = UNTRAINED.label
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
            if self.without not in (*labels, UNTRAINED.label):
                raise ConfigError(f"{where} must have an arm labelled '{self.without}', the training without the loss.")
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
        """Returns the profile of that name; raises `UnknownNameError`, which lists the profiles of the task."""
        if name not in self.profiles:
            raise UnknownNameError(f"task '{self.name}' has no profile '{name}'. It has: {', '.join(self.profiles)}.")
        return self.profiles[name]

    def changed(self, name: str, changes: Mapping[str, Any]) -> Task:
        """Returns a copy named ``name`` with other recipe settings in every profile and without the papers' figures.

        Raises:
            UnknownNameError: a name in ``changes`` is not a setting.
            ConfigError: a setting is out of range.
        """
        paper = self.profiles["paper"].recipe if "paper" in self.profiles else None
        profiles = {
            size: profile.changed(changes, None if size == "paper" else paper) for size, profile in self.profiles.items()
        }
        return replace(self, name=name, profiles=profiles, papers="")

    def resources_of(self, profile: str) -> Resources:
        """Returns the cluster resources of one run of a profile."""
        return self.resources.get(profile, Resources())

    def run(self, context: RunContext) -> dict[str, float]:
        """Trains and measures once.

        Returns:
            The declared metrics by name, in declaration order.

        Raises:
            ConfigError: the metrics returned are not exactly the declared ones, or one is not finite.
        """
        measured = self.train(context)
        names = [metric.name for metric in context.profile.metrics]
        if set(measured) != set(names):
            raise ConfigError(f"task '{self.name}' returned the metrics {sorted(measured)}, declared are {sorted(names)}.")
        for name in names:
            if not math.isfinite(measured[name]):
                raise ConfigError(f"metric {name}={measured[name]} of task '{self.name}' must be finite.")
        return {name: float(measured[name]) for name in names}
