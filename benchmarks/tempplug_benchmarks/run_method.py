"""One run of a suite that trains: the method's data, the one training path, and its figures as the task's metrics.

It must not know any particular method, nor how runs are stored or compared. Importing this loads no framework.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, nearest
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.profile import Profile

TRAINING = 0.8
"""Share of a run's progress that training is given; the rest is the evaluation."""
POINTS = 25
"""How many looks at a training a result keeps."""
LAUNCH = ("processes", "effective_batch_size")
"""What a result keeps of how the training was started."""


def ignore_progress(fraction: float, text: str) -> None:
    """Does nothing with the progress of a run."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """All that a run may know.

    Attributes:
        method: what is trained.
        profile: its size.
        recipe: of the profile, with what the arm changes and the seed, from which everything random in the run follows.
        strategy: resolved spec; None where nothing is contrasted.
        objective: likewise.
        data_dir: folder of real data, None where none was given.
        work_dir: folder for checkpoints of this run alone; it survives an interruption and is deleted after the run.
        progress: called with the fraction done, in [0, 1], and a few words.
        temperature: where the run notes its temperatures, as `Result` has them.
        course: where it notes what its training looked like over the steps, likewise.
        resampled: where it notes its metrics on samples of what was tested on, likewise.
        launch: where it notes its processes and how many items a step has, likewise.
        implementations: where it notes what it measured of each implementation, likewise.
    """

    method: MethodInfo
    profile: Profile
    recipe: Recipe
    strategy: str | None
    objective: str | None
    data_dir: Path | None
    work_dir: Path
    progress: Callable[[float, str], None] = ignore_progress
    temperature: dict[str, float] = field(default_factory=dict)
    course: dict[str, list[float]] = field(default_factory=dict)
    resampled: dict[str, list[float]] = field(default_factory=dict)
    launch: dict[str, float] = field(default_factory=dict)
    implementations: dict[str, dict[str, float | str]] = field(default_factory=dict)


def run_method(context: RunContext) -> dict[str, float]:
    """Trains, or goes on where a killed run stopped, and returns the metrics of the profile.

    Raises:
        ConfigError: the method does not measure one of them.
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
            TemperatureArguments(context.strategy, contrastive_objective=context.objective),
            context.work_dir,
            dataset=profile.source or profile.dataset,
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


def _thinned(course: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Returns some `POINTS` of the looks at a training, evenly spread, first and last among them, with five digits.

    What is not a number at every look, as similarities of negatives are where a batch has none, is left out.
    """
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

    class Told(TrainerCallback):
        """Tells the runner how far training is."""

        loss = ""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            epochs = f"epoch {state.epoch or 0:.4g} of {state.num_train_epochs:g}"
            context.progress(TRAINING * state.global_step / state.max_steps, epochs + self.loss)

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
            if "loss" in (logs or {}):
                self.loss = f", loss {(logs or {})['loss']:.3f}"

    return Told()
