"""One size of a task: its data, its recipe, what is compared and what is measured.

It must not know how runs are executed, stored or reported, and imports nothing heavy.
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
"""`TrainingArguments` that say how a training runs, and change nothing in what comes of it."""
PROPORTIONAL = ("num_train_epochs", "per_device_train_batch_size", "learning_rate")
"""Settings that a smaller profile has its own size of: what changes them there changes them as many times."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that a run measures.

    Attributes:
        name: column heading; equal to the paper's metric where there is a paper cell to compare with.
        summary: what it is, with its unit.
        figure: what the method's evaluation calls it; empty where that is the name, too.
        higher_is_better: which way is better.
        decimals: digits after the point in reports.
        smallest_difference: which reports call better or worse, in the metric's unit; 0 takes any.
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
        dataset: what is trained and measured on, in words, with its revision or how it was made; a result holds it.
        recipe: of the method, some settings changed; a result holds all of them.
        arms: what is compared; one of them is the task's baseline.
        metrics: what a run returns.
        primary: name of the metric that headlines use.
        validation: name of the metric that chooses among temperatures, measured on data that the primary one does not see;
            empty where there is none. A result that was measured without it is reported, and chooses nothing.
        source: name of the data, as the method's ``--dataset`` takes it.
        load: makes or reads the data in place of the method: from the recipe, with the run's seed, and the source to the recipe
            as this machine has it (where a model lies, which split a seed means) and the data. A function of a module, so
            that a worker process can import it.
        stands_in: what reports name the data where the task is called after others: ``digits``.
        needs: files and folders that must exist under the data folder; empty where the data are generated.
        training: further `TrainingArguments`. A result holds them with the recipe, but for those that change nothing in what
            is measured (`RUNNING`).
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
        """Returns what results hold of recipe and training: all settings but the seed, which each run has its own."""
        settings = {**self.recipe.values(), **self.training}
        return {name: value for name, value in settings.items() if name not in ("seed", *RUNNING)}

    def arm(self, label: str) -> Arm | None:
        """Returns the arm of that label, or None."""
        return next((arm for arm in self.arms if arm.label == label), None)

    def primary_metric(self) -> Metric:
        """Returns the metric that headlines use."""
        return next(metric for metric in self.metrics if metric.name == self.primary)

    def changed(self, changes: Mapping[str, Any], paper: Recipe | None = None) -> Profile:
        """Returns the profile with settings of the recipe changed, and without what papers report.

        Args:
            changes: by name; `PROPORTIONAL` ones as the paper's profile has them.
            paper: its recipe, where this is a smaller profile: twice the paper's epochs are twice as many here. None takes all
                as they are.

        Raises:
            UnknownNameError: a name is no setting.
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
