"""Molecules as a method: pre-training by two random views of each molecule, measured by fine-tuning on labelled ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.graph.graph_data import GraphBatch
from tempplug_adapters.graph.molecule_data import MoleculeSet, random_view, read_labelled, read_smiles
from tempplug_adapters.graph.molecule_finetune import Labelled
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder, OwnMoleculeEncoder
from tempplug_adapters.graph.projection_heads import projection_head
from tempplug_adapters.graph.recipes import DATASETS, FINE_TUNING, UNLABELLED, MoleculeRecipe
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.training.method import ENCODER_FILE, FOLDER, Card, Inputs, Method, Restored, Run, Source
from tempplug_adapters.training.train import train

# Arguments of the user that apply only to pre-training.
_PRETRAINING = ("max_steps", "eval_on_start")


@dataclass(frozen=True)
class Molecules:
    """Molecules for pre-training and fine-tuning; ``len`` is the number of the former.

    Attributes:
        unlabelled: for pre-training; None without it.
        labelled: for fine-tuning, by name.
        table: of the molecules for pre-training, if they were read from one.
    """

    unlabelled: MoleculeSet | None
    labelled: Mapping[str, Labelled] = field(default_factory=dict)
    table: Assigned | None = None

    def __len__(self) -> int:
        return 0 if self.unlabelled is None else len(self.unlabelled)


class MoleculeModule(nn.Module):
    """Maps two views of molecules to the loss."""

    def __init__(
        self, encoder: MoleculeEncoder | OwnMoleculeEncoder, loss_fn: ContrastiveLoss, last_batch_norm: bool | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.width
        self.head = projection_head(width, width, width, nn.ReLU(), last_batch_norm)
        self.loss_fn = loss_fn

    def forward(self, views: tuple[GraphBatch, GraphBatch], index: Tensor) -> Tensor:
        """Returns the loss [] in nats of two views of the same B molecules at positions [B]."""
        view_a, view_b = (self.head(self.encoder(view.to(index.device))) for view in views)
        loss: Tensor = self.loss_fn(view_a, view_b, **self.loss_fn.accepted(index=index))
        return loss


class MoleculeMethod(Method[MoleculeRecipe, Molecules]):
    """From the first view of a molecule to the second views of all, one way; then fine-tuning on every labelled data set.

    Source: You et al. 2020 (GraphCL), section 5; Hu et al. 2020, section 5.1.
    """

    evaluated_by_all = True

    def load(self, recipe: MoleculeRecipe, source: Source) -> Molecules:
        """Reads all molecules, so that a missing file is reported before the training."""
        recipe = self.recipe_of(recipe, "", source.dataset)
        labelled: dict[str, Labelled] = {}
        for word in filter(None, map(str.strip, source.dataset.split(",") if source.evaluated else ())):
            name = {each.lower(): each for each in DATASETS}.get(word.lower(), Path(word).stem)
            if name in labelled:
                raise ConfigError(f"dataset='{source.dataset}' has two data sets of the name '{name}'.")
            labelled[name] = FINE_TUNING.load().load(recipe.fine_tuning(), replace(source, dataset=word))
        if recipe.num_train_epochs == 0:
            return Molecules(None, labelled)
        read = read_smiles(_unlabelled_file(recipe, source), recipe.max_pretrain_molecules, recipe.columns)
        return Molecules(MoleculeSet(read.smiles), labelled, read.assigned)

    def files(self, recipe: MoleculeRecipe, source: Source, data: Molecules) -> dict[str, Path | str]:
        """Returns the file of the molecules to pre-train on, and those of the labelled data sets."""
        unlabelled = {} if data.unlabelled is None else {"pretrain_file": _unlabelled_file(recipe, source)}
        labelled = {f"dataset {name}": each.file for name, each in data.labelled.items() if each.file is not None}
        return {**unlabelled, **labelled}

    def recipe_of(self, recipe: MoleculeRecipe, strategy: str, dataset: str) -> MoleculeRecipe:
        """Returns the recipe; for an encoder of an earlier run, with its shape and without pre-training."""
        if recipe.encoder is None or self.named_module(recipe):
            return recipe
        encoder = MoleculeEncoder.load(Path(recipe.encoder))
        return recipe.changed(num_train_epochs=0, layers=len(encoder.layers), width=encoder.width)

    def tables(self, data: Molecules) -> Sequence[Assigned]:
        """Returns the tables of the molecules to pre-train on and of the labelled ones."""
        return [each for each in (data.table, *(labelled.table for labelled in data.labelled.values())) if each is not None]

    def describe(self, data: Molecules) -> str:
        """Returns the numbers of molecules, and of SMILES that were left out."""
        unlabelled = f"{_count(data.unlabelled)} to pre-train on" if data.unlabelled is not None else "no pre-training"
        return ", ".join([unlabelled, *(f"{name} with {_count(each.molecules)}" for name, each in data.labelled.items())])

    def origin(self, recipe: MoleculeRecipe, data: Molecules) -> dict[str, Any]:
        """Returns how many molecules could not be read."""
        return {"unreadable": 0 if data.unlabelled is None else data.unlabelled.unreadable}

    def known(self, recipe: MoleculeRecipe, data: Molecules) -> dict[str, Any]:
        """Returns the number of molecules and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.width}

    def build(self, recipe: MoleculeRecipe, data: Molecules, loss: Any) -> MoleculeModule:
        """Returns the model with random weights, or around the encoder of an earlier run."""
        encoder: MoleculeEncoder | OwnMoleculeEncoder
        if name := self.named_module(recipe):
            encoder = OwnMoleculeEncoder(name, recipe.layers, recipe.width)
        elif recipe.encoder is not None:
            encoder = MoleculeEncoder.load(Path(recipe.encoder))
        else:
            encoder = MoleculeEncoder(recipe.layers, recipe.width)
        return MoleculeModule(encoder, loss, recipe.last_batch_norm)

    def collate(self, recipe: MoleculeRecipe, data: Molecules, index: Tensor) -> dict[str, Any]:
        """Returns two random views of molecules."""
        unlabelled: Any = data.unlabelled
        whole = unlabelled.batch(index)
        return {"views": tuple(random_view(whole, recipe.view_ratio) for _ in range(2)), "index": index}

    def evaluate(self, recipe: MoleculeRecipe, module: Any, data: Molecules, run: Run) -> dict[str, float]:
        """Fine-tunes on every labelled data set and returns its figures as ``roc_auc NAME``; nothing during the training."""
        found: dict[str, float] = {}
        kind = "untrained" if run.untrained else "finetune"
        method, tuned, temperature = FINE_TUNING.load(), recipe.fine_tuning(), TemperatureArguments()
        training = {key: value for key, value in run.training.items() if key not in _PRETRAINING}
        for number, (name, labelled) in enumerate(data.labelled.items() if run.final or run.untrained else ()):
            results = train(
                *(method, tuned, replace(labelled, encoder=module.encoder), temperature, run.output_dir / f"{kind}-{name}"),
                dataset=name,
                files=None if labelled.file is None else partial(dict, dataset=labelled.file),
                resume_from_checkpoint=run.resume_from_checkpoint,
                resume_on_changed_data=run.resume_on_changed_data,
                training=training,
                callbacks=[_FineTuningProgress(run.progress, number, len(data.labelled))],
            )
            found |= {f"{figure} {name}": value for figure, value in results["evaluation"].items()}
        return found

    def save(self, recipe: MoleculeRecipe, module: Any, data: Molecules, output_dir: Path) -> None:
        """Writes the encoder, with its shape."""
        module.encoder.save(output_dir / ENCODER_FILE)

    def named_module(self, recipe: MoleculeRecipe) -> str | None:
        """Returns the encoder if it is a module of the user, not a file in a folder whose name has a colon."""
        named = super().named_module(recipe)
        return None if named is None or Path(named).exists() else named

    def reopened(self, recipe: MoleculeRecipe, folder: Path) -> MoleculeRecipe:
        """Returns the recipe of a fine-tuning of the folder's encoder, without pre-training."""
        if self.named_module(recipe):
            return recipe.changed(num_train_epochs=0)
        return self.recipe_of(recipe.changed(encoder=str(folder / ENCODER_FILE)), "", "")

    def restore(self, recipe: MoleculeRecipe, kept: Mapping[str, Any], folder: Path) -> Restored:
        """Returns the encoder of the folder."""
        if name := self.named_module(recipe):
            return Restored(OwnMoleculeEncoder.load(folder / ENCODER_FILE, name, recipe.layers, recipe.width))
        return Restored(MoleculeEncoder.load(folder / ENCODER_FILE))

    def read(self, recipe: MoleculeRecipe, source: Source, split: str) -> Inputs:
        """Returns the molecules of a labelled data set by name or of a file, see `read_smiles`."""
        word = source.dataset
        if word.lower() in {name.lower() for name in DATASETS}:
            read = read_labelled(word, source.data_dir, source.cache_dir)
        else:
            read = read_smiles(Path(word), columns=recipe.columns)
        molecules = MoleculeSet(read.smiles)
        left_out = f"{molecules.unreadable} SMILES cannot be read and are left out; a .parquet names the others"
        ids: dict[str, list[Any]] = {}
        if read.assigned is not None and "id" in read.assigned:
            every = list(read.assigned.table.values(read.assigned.column("id")))
            ids["id"] = [every[row] for row in molecules.rows.tolist()]
        return Inputs(molecules, molecules.smiles, ids, [left_out] if molecules.unreadable else [])

    def embed(self, recipe: MoleculeRecipe, module: Any, given: Any) -> Tensor:
        """Returns the representations of molecules, [n, width]: a list of SMILES, or a `MoleculeSet`."""
        molecules = given if isinstance(given, MoleculeSet) else MoleculeSet(given)
        if len(molecules) != len(given):
            raise DataError(f"{molecules.unreadable} of the {len(given)} SMILES cannot be read: leave them out.")
        device = next(module.parameters()).device
        parts = torch.split(torch.arange(len(molecules)), _AT_ONCE)
        return torch.cat([module.encoder(molecules.batch(part).to(device)).cpu() for part in parts])

    def next_command(self, recipe: MoleculeRecipe, data: Molecules, folder: str, dataset: str) -> str:
        """Returns the command that embeds the first labelled data set."""
        first, comma, _ = dataset.partition(",")
        quote = "'" if comma and dataset.endswith("'") else ""  # that of the part after the comma
        return super().next_command(recipe, data, folder, first + quote)

    def card(self, recipe: MoleculeRecipe, module: Any, data: Molecules, results: Mapping[str, Any]) -> Card:
        """Returns the text on encoders of molecules."""
        return Card(
            about="An encoder of molecules, given as SMILES: one vector for each.",
            example='["CCO", "c1ccccc1"]',
            use=f"On labelled molecules, it is fine-tuned:\n\n```bash\n{_TUNE}\n```",
            metadata={"pipeline_tag": "graph-ml", "tags": ["chemistry"]},
        )


def _count(molecules: MoleculeSet) -> str:
    left_out = f" ({molecules.unreadable} SMILES left out, which cannot be read)" if molecules.unreadable else ""
    return f"{len(molecules)} molecules{left_out}"


def _unlabelled_file(recipe: MoleculeRecipe, source: Source) -> Path:
    file = recipe.pretrain_file if recipe.pretrain_file or source.data_dir is None else source.data_dir / UNLABELLED
    if file is None:
        raise DataError("pre-training needs unlabelled molecules: pass --pretrain-file, --data-dir or set TEMPPLUG_DATA.")
    return Path(file)


_TUNE = f"tempplug train molecule --encoder {FOLDER}/{ENCODER_FILE} --dataset TABLE.csv --output-dir tuned"
_AT_ONCE = 256
"""Molecules of a batch of `MoleculeMethod.embed`."""


class _FineTuningProgress(TrainerCallback):
    """Reports the progress of one of several fine-tunings."""

    def __init__(self, progress: Callable[[float], None], number: int, total: int) -> None:
        self.progress, self.number, self.total = progress, number, total

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress((self.number + state.global_step / state.max_steps) / self.total)
