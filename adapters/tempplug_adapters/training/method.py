"""The interface of a training method: load data, build the module, collate batches, evaluate. All methods share the other code.

The module contains its loss and returns it, so that Trainer, DistributedDataParallel and checkpoints include the loss's
parameters. This module must not depend on the Trainer, the command line or any modality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug.negatives.base import joined_spec
from tempplug_adapters.contexts import refuse_missing
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.encoder_checks import load_state
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.fingerprint import files_below, grouped
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)
D = TypeVar("D")

FOLDER = "\0"
"""Stands for the output folder in the snippets of a `Card`; no quoted name has this character."""
ENCODER_FILE = "encoder.pt"
"""Weights of the trained encoder in the output folder: a ``state_dict``."""


@dataclass(frozen=True)
class Source:
    """The source of the data.

    Attributes:
        dataset: name or path, as given to ``--dataset``.
        data_dir: folder of real data; if None, a method downloads the data or reports what is missing.
        cache_dir: folder for downloads and unpacked archives.
        evaluated: whether an evaluation follows; otherwise data used only for evaluation may be missing.
    """

    dataset: str
    data_dir: Path | None
    cache_dir: Path
    evaluated: bool = True


RESAMPLED_FILE = "resampled.json"
"""Optional output of an evaluation: values by name of a metric on bootstrap samples of the test data, the same samples for
every encoder, so that two trainings can be compared sample by sample."""


@dataclass(frozen=True)
class Inputs:
    """Result of `Method.read`, for `Method.embed`.

    Attributes:
        given: inputs of `Method.embed`.
        names: name of each row, such as a text, a file or a user; None without names.
        columns: further columns of the output, such as ids; a value a row.
        notes: what to print, such as rows that were left out and why.
    """

    given: Any
    names: Sequence[str] | None = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Card:
    """The parts of an output folder's README.md that differ by method; its snippets can be run beside the folder.

    Attributes:
        about: description of the encoder and its vectors, one or two sentences.
        example: argument of ``embed``, as Python.
        use: further ways to load the encoder, in Markdown; in its blocks of ``python`` and ``bash``, `FOLDER` stands for the
            folder, a string or a word of the shell. Names that a user chose are written by `repr` and `quoting`.
        imports: lines of Python that the example needs.
        base: pretrained model that the training began with, a folder or a name on the hub; None for random weights.
        metadata: of the hub, see `huggingface_hub.ModelCardData`.
        scores: tables of scores by the title of their column; None: one table of all metrics.
        citation: BibTeX of the method's paper.
    """

    about: str
    example: str
    use: str = ""
    imports: str = ""
    base: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] | None = None
    citation: str = ""


class Restored(nn.Module):
    """A trained encoder without its loss and its training heads, as `Method.restore` returns it.

    Args:
        encoder: as it was saved.
        **more: further attributes that evaluation or embedding needs.
    """

    def __init__(self, encoder: nn.Module, **more: Any) -> None:
        super().__init__()
        self.encoder, self.loss_fn = encoder, None
        for name, value in more.items():
            setattr(self, name, value)


def load_weights(encoder: nn.Module, folder: Path) -> None:
    """Loads the weights of an encoder that `Method.save` wrote; raises DataError if they are damaged, others or not finite."""
    file = folder / ENCODER_FILE
    try:
        load_state(encoder, read_tensors(file))
    except (DataError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{file} cannot be loaded: {one_line(error, lines=2)}") from error


@dataclass(frozen=True)
class Run:
    """Further inputs of an evaluation.

    Attributes:
        output_dir: output folder of the training, for evaluations that train.
        final: whether the training has ended.
        progress: called with the completed fraction.
        training: the `TrainingArguments` given by the user, for evaluations that train.
        resume_from_checkpoint: ``auto`` if this training may be resumed, for evaluations that train.
        resume_on_changed_data: likewise, whether it may be resumed although its data have changed.
        untrained: whether the training has not begun.
    """

    output_dir: Path
    final: bool = True
    progress: Progress = silent
    training: Mapping[str, Any] = field(default_factory=dict)
    resume_from_checkpoint: str | None = None
    resume_on_changed_data: bool = False
    untrained: bool = False


class Method(ABC, Generic[R, D]):
    """A way to train an encoder. Subclasses define how to load data, build the module, collate batches and evaluate.

    The methods receive the ``recipe`` of the training, the ``data`` as loaded, the ``module`` as built, and the ``run``.

    Attributes:
        reshuffled: whether each epoch has a new order; otherwise the order of the first epoch is reused.
        evaluated_by_all: whether all processes evaluate together, for distributed evaluations; otherwise only the first does.
    """

    reshuffled: ClassVar[bool] = True
    evaluated_by_all: ClassVar[bool] = False

    def __init__(self, info: MethodInfo) -> None:
        self.info = info

    @abstractmethod
    def load(self, recipe: R, source: Source) -> D:
        """Returns the checked data; its ``len`` is the number of items per epoch. Raises TempplugError for invalid data."""

    def files(self, recipe: R, source: Source, data: D) -> dict[str, Path | str]:
        """Returns the files that `load` and `evaluate` read, for `Fingerprint`; by default those of the path ``dataset``.

        A name begins with the setting that names the file or the folder, if there is one. Data without files have a text that
        changes with them; generated data have none.
        """
        return grouped("dataset", files_below(source.dataset)) if source.dataset and Path(source.dataset).exists() else {}

    @abstractmethod
    def build(self, recipe: R, data: D, loss: Any) -> nn.Module:
        """Returns a module that maps a batch to its loss, []; initialised from PyTorch's global generator.

        The module has the attributes ``encoder``, the network to train, and ``loss_fn``, the ``loss`` of `create_loss` or None.
        """

    def prepare(self, recipe: R, module: nn.Module, data: D, run: Run) -> None:
        """Initialises a new run once before its first step; a resumed run restores this from the module's state."""

    @abstractmethod
    def collate(self, recipe: R, data: D, index: Tensor) -> dict[str, Any]:
        """Returns the module's arguments for the items ``index``, [B]; randomness must come from PyTorch's generator."""

    @abstractmethod
    def evaluate(self, recipe: R, module: nn.Module, data: D, run: Run) -> dict[str, float]:
        """Returns metrics by name, empty without evaluation data; the module is in evaluation mode."""

    def known(self, recipe: R, data: D) -> dict[str, Any]:
        """Returns strategy options that are determined by the data; ``size`` is the number of items."""
        return {"size": len(data)}  # type: ignore[arg-type]

    def keys(self, recipe: R, data: D) -> np.ndarray | None:
        """Returns keys [n, K] that must be unique within a batch, or None for no restriction."""
        return None

    def tables(self, data: D) -> Sequence[Assigned]:
        """Returns the tables that were read, with their columns by role: printed before training, kept in ``tempplug.json``."""
        return ()

    def describe(self, data: D) -> str:
        """Returns a description of the size of the data."""
        return f"{len(data)} items"  # type: ignore[arg-type]

    def origin(self, recipe: R, data: D) -> dict[str, Any]:
        """Returns further JSON data that determine the trained weights; stored in every checkpoint."""
        return {}

    def treatment(self, recipe: R, name: str, parameter: nn.Parameter) -> Treatment:
        """Returns the optimizer settings of the parameter ``name`` of the module; temperatures are handled separately."""
        return Treatment()

    def recipe_of(self, recipe: R, strategy: str, dataset: str) -> R:
        """Returns the recipe with settings required by a strategy or a data set (AMCL needs several heads)."""
        return recipe

    def create_loss(self, recipe: R, data: D, temperature: TemperatureArguments, *, gather: bool = False) -> Any:
        """Creates the loss given by the flags ``temperature``; recipe and data supply missing options.

        Raises:
            TempplugError: a strategy, an objective, a term on negatives or an option is unknown, or a value is out of range; or
                a term reads an argument that this training does not have.
        """
        loss, spec = recipe.loss, temperature.temperature_strategy or recipe.loss.strategy
        given = replace(
            temperature,
            temperature_strategy=spec,
            contrastive_objective=temperature.contrastive_objective or loss.objective_of(spec),
            contrastive_negatives=temperature.contrastive_negatives or loss.negatives,
        )
        made = given.create_loss(
            loss.layout, symmetric=loss.symmetric, gather=gather, temperatures=loss.temperatures, **self.known(recipe, data)
        )
        refuse_missing(made.terms, self.offered(data), f"`tempplug train {self.info.name}`")
        made.set_length(recipe.num_train_epochs)
        return made

    def offered(self, data: D) -> frozenset[str]:
        """Returns the names of the arguments of the loss that terms on negatives can read with these data."""
        return frozenset({"index"})

    def specs(self, module: nn.Module) -> dict[str, str | None]:
        """Returns the resolved specs of a module's loss: ``strategy`` and ``objective``, or None without a contrastive loss.

        With terms on negatives there is ``negatives``, too.
        """
        loss: Any = getattr(module, "loss_fn", None)
        if loss is None:
            return {"strategy": None, "objective": None}
        negatives = {"negatives": joined_spec(loss.terms)} if loss.terms else {}
        return {"strategy": loss.strategy.spec(), "objective": loss.objective.spec(), **negatives}

    def kept(self, recipe: R, module: nn.Module, data: D) -> dict[str, Any]:
        """Returns JSON data that `restore` and users of the encoder need beside the recipe, for ``tempplug.json``.

        ``preprocessing`` describes what happens to an input, ``labels`` are the names of classes; widths and the like follow.
        """
        return {}

    def named_module(self, recipe: R) -> str | None:
        """Returns the module of the user, ``MODULE:NAME``, that a recipe names; None if it names none."""
        encoder = getattr(recipe, "encoder", None)
        return encoder if isinstance(encoder, str) and ":" in encoder else None

    def reopened(self, recipe: R, folder: Path) -> R:
        """Returns the recipe with the output folder in the place of the pretrained model that the training began with."""
        return recipe

    def restore(self, recipe: R, kept: Mapping[str, Any], folder: Path) -> nn.Module:
        """Returns the trained module for `embed` and `evaluate` from an output folder; ``recipe`` is that of `reopened`.

        Raises:
            TempplugError: the folder is incomplete or damaged.
        """
        raise ConfigError(f"method '{self.info.name}' cannot open an output folder: it must define restore and embed.")

    def evaluation_data(self, recipe: R, module: nn.Module, source: Source) -> D:
        """Returns the data with which `evaluate` measures a restored module; by default those of `load`."""
        return self.load(recipe, source)

    def read(self, recipe: R, source: Source, split: str) -> Inputs:
        """Returns the inputs of `embed` from a data set, a file or a folder that the user names; ``split`` is train or test."""
        raise ConfigError(f"method '{self.info.name}' reads no data for vectors: call embed(...) from Python.")

    def embed(self, recipe: R, module: nn.Module, given: Any) -> Tensor:
        """Returns the vectors [n, D] of the inputs; called in evaluation mode and without gradients."""
        raise ConfigError(f"method '{self.info.name}' cannot compute vectors: it must define embed.")

    def card(self, recipe: R, module: nn.Module, data: D, results: Mapping[str, Any]) -> Card:
        """Returns what the README.md of the output folder says about the encoder."""
        return Card("Vectors of the trained encoder.", "data")

    @property
    def opens(self) -> bool:
        """Whether the method can open an output folder, which requires `restore`."""
        return type(self).restore is not Method.restore

    def next_command(self, recipe: R, data: D, folder: str, dataset: str) -> str:
        """Returns the command that uses what was trained, with words that are already quoted for a shell."""
        if not self.opens:
            return f"tempplug watch {folder} --once"
        return f"tempplug embed {folder} {dataset or 'DATA'} --output vectors.npy"

    def save(self, recipe: R, module: nn.Module, data: D, output_dir: Path) -> None:
        """Writes the trained encoder for other programs; by default its weights."""
        encoder: Any = module.encoder
        state = {name: value.cpu() for name, value in encoder.state_dict().items()}
        write_tensors(output_dir / ENCODER_FILE, state)
