"""Executes one training run of a suite: loads the method's data, trains, and returns the metrics of the task.

It must not depend on any particular method, nor on how runs are stored or compared. Importing it loads no framework.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, nearest
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.profile import Profile

TRAINING = 0.8
"""Share of training in the progress of a run; the rest is evaluation."""
POINTS = 25
"""Largest number of steps in the course of a result."""
LAUNCH = ("processes", "effective_batch_size")
"""Numbers about the launch of the training that a result stores."""


def ignore_progress(fraction: float, text: str) -> None:
    """Ignores progress updates."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The inputs of a run, and mappings that the run fills for its result.

    Attributes:
        recipe: recipe of the profile with the changes of the arm; its seed determines everything random in the run.
        strategy: resolved spec, as are the next two; None without a contrastive loss.
        data_dir: folder of real data; None if none was given.
        work_dir: folder for the checkpoints of this run; kept after an interruption, deleted when the run finishes.
        progress: called with the completed fraction, in [0, 1], and a short description.
        temperature: filled by the run, as are the next four, see `Result`.
    """

    method: MethodInfo
    profile: Profile
    recipe: Recipe
    strategy: str | None
    objective: str | None
    negatives: str | None = None
    data_dir: Path | None
    work_dir: Path
    progress: Callable[[float, str], None] = ignore_progress
    temperature: dict[str, float] = field(default_factory=dict)
    course: dict[str, list[float]] = field(default_factory=dict)
    resampled: dict[str, list[float]] = field(default_factory=dict)
    launch: dict[str, float] = field(default_factory=dict)
    implementations: dict[str, dict[str, float | str]] = field(default_factory=dict)


def run_method(context: RunContext) -> dict[str, float]:
    """Trains, or resumes an interrupted training, and returns the metrics of the profile.

    Raises:
        ConfigError: the method does not compute one of the metrics, or the data have changed since the interruption.
        TempplugError: data are missing, or the training fails.
    """
    from tempplug_adapters.huggingface import TemperatureArguments
    from tempplug_adapters.training.method import RESAMPLED_FILE, Source
    from tempplug_adapters.training.train import train

    profile, method = context.profile, context.method.load()
    recipe, source = context.recipe, Source(profile.source, context.data_dir, context.work_dir / "data")
    with _without_bars():
        recipe, data = (recipe, method.load(recipe, source)) if profile.load is None else profile.load(recipe, source)
        results = train(
            method,
            recipe,
            data,
            TemperatureArguments(
                context.strategy, contrastive_objective=context.objective, contrastive_negatives=context.negatives
            ),
            context.work_dir,
            dataset=profile.source or profile.dataset,
            files=partial(_files, profile, context.data_dir) if profile.needs and context.data_dir is not None else None,
            resume_from_checkpoint="auto",
            training=profile.training,
            callbacks=[_callback(context)],
            evaluation_progress=lambda fraction: context.progress(TRAINING + (1 - TRAINING) * fraction, "evaluating"),
        )
    context.temperature.update(results["temperature"])
    context.course.update(_thinned(results["course"]))
    context.launch.update({name: results[name] for name in LAUNCH})
    figures = results["evaluation"]
    samples = context.work_dir / RESAMPLED_FILE
    resampled = json.loads(samples.read_text(encoding="utf-8")) if samples.exists() else {}
    found = {}
    for metric in profile.metrics:
        name = metric.figure or metric.name
        if name not in figures:
            known = ", ".join(figures) or "nothing"
            raise ConfigError(f"method '{context.method.name}' measures no '{name}'.{nearest(name, figures)} It does: {known}.")
        found[metric.name] = figures[name]
        if name in resampled:
            context.resampled[metric.name] = resampled[name]
    return found


def _files(profile: Profile, data_dir: Path) -> dict[str, Path | str]:
    """Returns the files that a profile needs of the data folder."""
    from tempplug_adapters.storage.fingerprint import files_below, grouped

    needed = [grouped(name, files_below(data_dir / name)) for name in profile.needs]
    return {name: file for files in needed for name, file in files.items()}


def _thinned(course: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Returns at most `POINTS` evenly spaced values of each series, with five digits; drops series with missing values."""
    last = len(course.get("step", ())) - 1
    if last < 0:
        return {}
    kept = sorted({round(last * point / (POINTS - 1)) for point in range(POINTS)})
    whole = {name: values for name, values in course.items() if len(values) == last + 1 and all(map(math.isfinite, values))}
    if "temperature" not in whole:
        return {}
    return {name: [float(f"{values[position]:.5g}") for position in kept] for name, values in whole.items()}


@contextmanager
def _without_bars() -> Iterator[None]:
    """Hides the bars of transformers, which would break those of the runner."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _callback(context: RunContext) -> Any:
    from transformers import TrainerCallback

    class Reporting(TrainerCallback):
        """Reports training progress to the runner."""

        loss = ""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            epochs = f"epoch {state.epoch or 0:.4g} of {state.num_train_epochs:g}"
            context.progress(TRAINING * state.global_step / state.max_steps, epochs + self.loss)

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
            if "loss" in (logs or {}):
                self.loss = f", loss {(logs or {})['loss']:.3f}"

    return Reporting()
