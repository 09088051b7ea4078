"""One size of a task: its data, its recipe, the arms to compare and the metrics to measure.

It must not depend on how runs are executed, stored or reported, and imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import Arm

if TYPE_CHECKING:
    from tempplug_adapters.training.method import Source

PROFILES = ("quick", "small", "paper")
RUNNING = ("save_strategy", "save_steps", "save_total_limit", "dataloader_num_workers")
"""`TrainingArguments` that do not affect the results of a training."""
PROPORTIONAL = ("num_train_epochs", "per_device_train_batch_size", "learning_rate")
"""Settings that a smaller profile scales: a change is multiplied by the ratio of its own value to that of profile paper."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that a run measures.

    Attributes:
        name: column heading; the same as in the paper if there is a paper figure to compare with.
        summary: description with the unit.
        figure: key in the method's evaluation; empty if it equals ``name``.
        higher_is_better: whether larger values are better.
        decimals: decimal places in reports.
        smallest_difference: smallest difference that reports call better or worse, in the metric's unit; 0 for no minimum.
    """

    name: str
    summary: str
    figure: str = ""
    higher_is_better: bool = True
    decimals: int = 2
    smallest_difference: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One size of a task.

    Attributes:
        dataset: description of the training and evaluation data, with revision or origin; stored in results.
        recipe: recipe of the method with the profile's settings; stored in results.
        arms: the arms to compare, the task's baseline among them.
        metrics: metrics that a run returns.
        primary: name of the primary metric.
        validation: name of the metric used for tuning, measured on data separate from those of the primary one; empty if there
            is none. A result without it is reported but not used for tuning.
        source: name of the data, as for the method's ``--dataset``.
        load: creates or reads the data instead of the method: maps the recipe (with the run's seed) and the source to the
            recipe for this machine (path of a model, split for a seed) and the data. A module-level function, so that worker
            processes can import it.
        stands_in: name of the data in reports if the task is named after other data, such as ``digits``.
        needs: required files and folders under the data folder; empty for generated data.
        training: further `TrainingArguments`, stored in results except for those that do not affect them (`RUNNING`).
    """

    dataset: str
    recipe: Recipe
    arms: tuple[Arm, ...]
    metrics: tuple[Metric, ...]
    primary: str
    validation: str = ""
    source: str = ""
    load: Callable[[Any, Source], tuple[Any, Any]] | None = None
    stands_in: str = ""
    needs: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Returns the recipe and training settings that results store: all except the seed."""
        settings = {**self.recipe.values(), **self.training}
        return {name: value for name, value in settings.items() if name not in ("seed", *RUNNING)}

    def arm(self, label: str) -> Arm | None:
        """Returns the arm of that label, or None."""
        return next((arm for arm in self.arms if arm.label == label), None)

    def primary_metric(self) -> Metric:
        """Returns the primary metric."""
        return next(metric for metric in self.metrics if metric.name == self.primary)

    def changed(self, changes: Mapping[str, Any], paper: Recipe | None = None) -> Profile:
        """Returns a copy with other recipe settings and without the papers' figures.

        Args:
            changes: settings by name; for `PROPORTIONAL` settings, the value in the paper profile.
            paper: recipe of the paper profile if this profile is smaller, for scaling: twice the paper's epochs also double the
                epochs here. None applies all values unscaled.

        Raises:
            UnknownNameError: a name is not a setting.
            ConfigError: a setting is out of range.
        """
        own = dict(changes)
        for name in changes.keys() & PROPORTIONAL:
            old, new = getattr(paper, name, None), getattr(self.recipe, name)
            if old and new:
                own[name] = type(new)(round(new * changes[name] / old, 9))
        arms = tuple(replace(arm, reported=()) for arm in self.arms)
        return replace(self, recipe=self.recipe.changed(**own), arms=arms)

    def check_data(self, task: str, data_dir: Path | None) -> None:
        """Raises `DataError`, which names what is missing, unless the data folder contains all required files."""
        if not self.needs:
            return
        if data_dir is None:
            raise DataError(
                f"task '{task}' needs real data ({', '.join(self.needs)}) and no data folder was given: "
                "pass --data-dir or set TEMPPLUG_DATA."
            )
        missing = [name for name in self.needs if not (data_dir / name).exists()]
        if missing:
            raise DataError(f"task '{task}' needs {', '.join(missing)} under the data folder {data_dir}, but they are missing.")
