"""What a modality writes to be trained: load data, build the module, collate a batch, evaluate. Everything else is one path.

The module contains its loss and returns it, so that Trainer, DistributedDataParallel and checkpoints see the loss's parameters.
This module must not know the Trainer, the command line or any modality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.storage.tensors import write_tensors
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)
D = TypeVar("D")

ENCODER_FILE = "encoder.pt"
"""Weights of the trained encoder in the output folder: a ``state_dict``."""


@dataclass(frozen=True)
class Source:
    """Where data come from.

    Attributes:
        dataset: name or path, as ``--dataset`` has it.
        data_dir: folder of real data, None where there is none: a method downloads then, or says what it lacks.
        cache_dir: where downloads and unpacked archives go.
        evaluated: whether anything will be measured; else what only evaluations read may be missing.
    """

    dataset: str
    data_dir: Path | None
    cache_dir: Path
    evaluated: bool = True


RESAMPLED_FILE = "resampled.json"
"""In the output folder, where an evaluation leaves it: lists by the name of a figure, its values on samples of what was tested
on with replacement, the same samples for every encoder, so that two trainings can be compared sample by sample."""


@dataclass(frozen=True)
class Run:
    """What an evaluation may know beside module and data.

    Attributes:
        output_dir: of the training, for trainings that are part of the evaluation.
        final: whether the training has ended.
        progress: called with the fraction done.
        training: the `TrainingArguments` that the user gave, for the same.
        resume_from_checkpoint: ``auto`` where this training was to go on with an earlier one, for the same.
    """

    output_dir: Path
    final: bool = True
    progress: Callable[[float], None] = lambda fraction: None
    training: Mapping[str, Any] = field(default_factory=dict)
    resume_from_checkpoint: str | None = None


class Method(ABC, Generic[R, D]):
    """One way to train an encoder. A subclass says how data are loaded, the module is built, batches are made and measured.

    Its methods get the ``recipe`` of the training, the ``data`` as loaded, the ``module`` as built, and the ``run``.

    Args:
        info: its declaration.

    Attributes:
        reshuffled: whether an epoch's order is drawn anew; else the first epoch's order serves all.
        evaluated_by_all: whether all processes evaluate together, because that trains or is shared; else the first alone.
    """

    reshuffled: ClassVar[bool] = True
    evaluated_by_all: ClassVar[bool] = False

    def __init__(self, info: MethodInfo) -> None:
        self.info = info

    @abstractmethod
    def load(self, recipe: R, source: Source) -> D:
        """Returns the data, checked, ``len`` of which is the items of an epoch; raises TempplugError where they are unfit."""

    @abstractmethod
    def build(self, recipe: R, data: D, loss: Any) -> nn.Module:
        """Returns the module with random weights, from PyTorch's global generator: it takes a batch and returns the loss, [].

        Its attributes: ``encoder``, what training is for, and ``loss_fn``, the ``loss`` of `create_loss` or None.
        """

    def prepare(self, recipe: R, module: nn.Module, data: D, run: Run) -> None:
        """Does what a new run needs once, before its first step; a resumed run has it from the state of the module."""

    @abstractmethod
    def collate(self, recipe: R, data: D, index: Tensor) -> dict[str, Any]:
        """Returns the arguments of the module for the items ``index``, [B]; what is random comes from PyTorch's generator."""

    @abstractmethod
    def evaluate(self, recipe: R, module: nn.Module, data: D, run: Run) -> dict[str, float]:
        """Returns figures by name, empty where there is nothing to measure with; the module is in evaluation mode."""

    def known(self, recipe: R, data: D) -> dict[str, Any]:
        """Returns the options of strategies that the data decide; ``size`` is how many items there are."""
        return {"size": len(data)}  # type: ignore[arg-type]

    def keys(self, recipe: R, data: D) -> np.ndarray | None:
        """Returns numbers [n, K] that no two items of a batch may share; None: any items go together."""
        return None

    def describe(self, data: D) -> str:
        """Returns the size of the data in words."""
        return f"{len(data)} items"  # type: ignore[arg-type]

    def origin(self, recipe: R, data: D) -> dict[str, Any]:
        """Returns what else decides the weights that come out, as JSON holds it: part of every checkpoint."""
        return {}

    def treatment(self, recipe: R, name: str, parameter: nn.Parameter) -> Treatment:
        """Returns how the optimizer treats a parameter that is no temperature, ``name`` in the module."""
        return Treatment()

    def recipe_of(self, recipe: R, strategy: str, dataset: str) -> R:
        """Returns the recipe with what a strategy or a data set, by name, brings along (AMCL has several heads)."""
        return recipe

    def create_loss(self, recipe: R, data: D, temperature: TemperatureArguments, *, gather: bool = False) -> Any:
        """Returns the loss of the flags ``temperature``; the recipe and the data fill what they leave open.

        Raises:
            TempplugError: a spec names an unknown strategy, objective or option, or a value out of range.
        """
        loss, spec = recipe.loss, temperature.temperature_strategy or recipe.loss.strategy
        objective = temperature.contrastive_objective or loss.objective_of(spec)
        given = replace(temperature, temperature_strategy=spec, contrastive_objective=objective)
        made = given.create_loss(
            loss.layout,
            symmetric=loss.symmetric,
            gather=gather,
            temperatures=loss.temperatures,
            **self.known(recipe, data),
        )
        made.set_length(recipe.num_train_epochs)
        return made

    def specs(self, module: nn.Module) -> dict[str, str | None]:
        """Returns the resolved specs of a module's loss: ``strategy`` and ``objective``, None where it has none."""
        loss: Any = getattr(module, "loss_fn", None)
        if loss is None:
            return {"strategy": None, "objective": None}
        return {"strategy": loss.strategy.spec(), "objective": loss.objective.spec()}

    def describe_results(self, recipe: R, module: nn.Module, results: Mapping[str, Any], output_dir: Path) -> None:
        """Writes a description of the trained encoder beside it, from what ``metrics.json`` holds: nothing by default."""

    def save(self, recipe: R, module: nn.Module, data: D, output_dir: Path) -> None:
        """Writes the trained encoder as something that others can load: here its weights."""
        encoder: Any = module.encoder
        state = {name: value.cpu() for name, value in encoder.state_dict().items()}
        write_tensors(output_dir / ENCODER_FILE, state)
