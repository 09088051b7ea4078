"""What a benchmark task is: data, recipe, arms and metrics for each of its profiles, and one function that trains and measures.

An arm is one strategy with one objective. This module must not know how runs are executed, stored or reported, and
imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_benchmarks.papers.tables import PaperRow

PROFILES = ("quick", "small", "paper")
Recipe = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that a run measures.

    Attributes:
        name: column heading; equal to the paper's metric where there is a paper cell to compare with.
        summary: what it is, with its unit.
        higher_is_better: which way is better.
        decimals: digits after the point in reports.
    """

    name: str
    summary: str
    higher_is_better: bool = True
    decimals: int = 2


@dataclass(frozen=True)
class Arm:
    """One strategy with one objective, as the runner compares them.

    Attributes:
        label: short name, unique within a profile, e.g. ``macl``.
        strategy: spec string of the strategy.
        objective: spec string of the objective.
        reported: the rows of paper tables that this arm answers.
    """

    label: str
    strategy: str
    objective: str = "infonce"
    reported: tuple[PaperRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One size of a task.

    Attributes:
        dataset: what is trained and measured on, with its revision or how it was made.
        recipe: every setting of the training that is the same for all arms; kept in each result.
        arms: what is compared; one of them is the task's baseline.
        metrics: what a run returns.
        primary: name of the metric that headlines use.
        needs: files and folders that must exist under the data folder; empty where the data are generated.
    """

    dataset: str
    recipe: Recipe
    arms: tuple[Arm, ...]
    metrics: tuple[Metric, ...]
    primary: str
    needs: tuple[str, ...] = ()

    def arm(self, label: str) -> Arm | None:
        """Returns the arm of that label, or None."""
        return next((arm for arm in self.arms if arm.label == label), None)

    def primary_metric(self) -> Metric:
        """Returns the metric that headlines use."""
        return next(metric for metric in self.metrics if metric.name == self.primary)

    def check_data(self, task: str, data_dir: Path | None) -> None:
        """Makes sure that the data are there, so that nothing else is ever used in their place.

        Raises:
            DataError: there is no data folder, or it lacks a file; the message names what is missing.
        """
        if not self.needs:
            return
        if data_dir is None:
            raise DataError(
                f"task '{task}' needs real data ({', '.join(self.needs)}) and no data folder was given: "
                "pass --data-dir or set TEMPPLUG_DATA."
            )
        missing = [name for name in self.needs if not (data_dir / name).exists()]
        if missing:
            raise DataError(f"task '{task}' needs {', '.join(missing)} under the data folder {data_dir}, which lacks it.")


def ignore_progress(fraction: float, text: str) -> None:
    """Does nothing with the progress of a run."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """All that a run may know.

    Attributes:
        arm: what to train with, its specs resolved (every option written out).
        seed: at least 0; everything random in the run follows from it.
        profile: name of the profile.
        recipe: the profile's settings.
        data_dir: folder of real data, None where none was given.
        work_dir: folder for checkpoints of this run alone; it survives an interruption and is deleted after the run.
        progress: called with the fraction done, in [0, 1], and a few words.
    """

    arm: Arm
    seed: int
    profile: str
    recipe: Recipe
    data_dir: Path | None
    work_dir: Path
    progress: Callable[[float, str], None] = ignore_progress


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question with its data: every arm is trained by the same recipe and measured in the same way.

    Attributes:
        name: short name, unique within its suite.
        summary: one line for listings.
        baseline: label of the arm that the others are compared with, present in every profile.
        profiles: by name, ``quick``, ``small`` and ``paper``; a task may lack one.
        train: trains one arm with one seed and returns the metrics; a function of a module, so that a worker process
            can import it.
        papers: name of the transcribed tables (`tempplug_benchmarks.papers`), empty where no paper is answered.

    Raises:
        ConfigError: a profile is unknown or lacks its baseline or its primary metric, or two of its arms share a label.
    """

    name: str
    summary: str
    baseline: str
    profiles: Mapping[str, Profile]
    train: Callable[[RunContext], Mapping[str, float]] = field(repr=False)
    papers: str = ""

    def __post_init__(self) -> None:
        for name, profile in self.profiles.items():
            labels = [arm.label for arm in profile.arms]
            where = f"profile '{name}' of task '{self.name}'"
            if name not in PROFILES:
                raise ConfigError(f"{where} must be one of {', '.join(PROFILES)}.")
            if self.baseline not in labels:
                raise ConfigError(f"{where} must have an arm labelled '{self.baseline}', the baseline.")
            if len(set(labels)) < len(labels):
                raise ConfigError(f"{where} must not have two arms of one label: {', '.join(labels)}.")
            if profile.primary not in [metric.name for metric in profile.metrics]:
                raise ConfigError(f"{where} must have a metric named '{profile.primary}', its primary one.")

    def profile(self, name: str) -> Profile:
        """Returns the profile of that name.

        Raises:
            UnknownNameError: the task has none; those that it has are in the message.
        """
        if name not in self.profiles:
            raise UnknownNameError(f"task '{self.name}' has no profile '{name}'. It has: {', '.join(self.profiles)}.")
        return self.profiles[name]

    def run(self, context: RunContext) -> dict[str, float]:
        """Trains and measures once.

        Returns:
            The declared metrics, by name, in their declared order.

        Raises:
            ConfigError: what came back is not exactly the declared metrics, each a finite number.
        """
        measured = self.train(context)
        names = [metric.name for metric in self.profile(context.profile).metrics]
        if set(measured) != set(names):
            raise ConfigError(f"task '{self.name}' returned the metrics {sorted(measured)}, declared are {sorted(names)}.")
        for name in names:
            if not math.isfinite(measured[name]):
                raise ConfigError(f"metric {name}={measured[name]} of task '{self.name}' must be finite.")
        return {name: float(measured[name]) for name in names}
