"""One run of the suite ``molecule``: reads or generates molecules, pre-trains and fine-tunes with `tempplug_adapters.graph`.

It must not know how arms are compared. Importing this loads no framework.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_benchmarks.task import RunContext
from tempplug_benchmarks.tasks.molecule_generated import generate, labels

if TYPE_CHECKING:
    from tempplug_adapters.graph.molecule_data import MoleculeSet

GENERATED = "generated"
"""The ``dataset`` of a recipe that generates its molecules; other names are those of MoleculeNet."""
SCRATCH = "scratch"
"""Label of the arm that is fine-tuned without pre-training; its strategy and objective go unused."""

_PRETRAINING = 0.7
"""Share of a run's progress that pre-training is given."""


def train_molecules(context: RunContext) -> dict[str, float]:
    """Pre-trains on unlabelled molecules, fine-tunes on labelled ones, and returns ROC-AUC × 100 of validation and test."""
    from tempplug import ContrastiveLoss
    from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
    from tempplug_adapters.graph.molecule_recipe import LAYOUT, MoleculeSettings
    from tempplug_adapters.graph.molecule_train import finetune, pretrain
    from tempplug_adapters.training.checkpoint import CHECKPOINT

    recipe: dict[str, Any] = dict(context.recipe)
    taken = {each.name for each in fields(MoleculeSettings)} & recipe.keys()
    settings = MoleculeSettings(**{name: recipe[name] for name in taken}, seed=context.seed)
    labelled = _labelled(context)
    if context.arm.label == SCRATCH:
        import torch

        torch.manual_seed(context.seed)
        encoder = MoleculeEncoder(settings.layers, settings.width)
        before = 0.0
    else:
        encoder, _ = pretrain(
            _unlabelled(context),
            ContrastiveLoss(context.arm.strategy, context.arm.objective, LAYOUT),
            settings,
            context.work_dir / "pretrain" / CHECKPOINT,
            progress=lambda done, total, _: context.progress(_PRETRAINING * done / total, f"pre-training, step {done}"),
        )
        before = _PRETRAINING
    found = finetune(
        encoder,
        labelled,
        settings,
        context.work_dir / "finetune" / CHECKPOINT,
        # The run's folder is of this arm and recipe alone.
        origin={"arm": context.arm.label},
        progress=lambda done, total, _: context.progress(before + (1 - before) * done / total, f"fine-tuning, step {done}"),
    )
    return {"ROC-AUC": found["test_roc_auc"], "validation": found["valid_roc_auc"]}


def _unlabelled(context: RunContext) -> MoleculeSet:
    from tempplug_adapters.graph.molecule_data import MoleculeSet
    from tempplug_adapters.graph.molecule_files import read_smiles

    recipe: dict[str, Any] = dict(context.recipe)
    if recipe["dataset"] == GENERATED:
        return MoleculeSet(generate(recipe["pretrain_molecules"], seed=1))
    if context.data_dir is None:
        raise DataError(f"profile '{context.profile}' needs real data: pass --data-dir or set TEMPPLUG_DATA.")
    return MoleculeSet(read_smiles(context.data_dir / recipe["pretrain_file"], recipe["pretrain_molecules"]))


def _labelled(context: RunContext) -> MoleculeSet:
    import torch

    from tempplug_adapters.graph.molecule_data import MoleculeSet
    from tempplug_adapters.graph.molecule_files import read_labelled

    recipe: dict[str, Any] = dict(context.recipe)
    if recipe["dataset"] == GENERATED:
        smiles = generate(recipe["molecules"], seed=0)
        return MoleculeSet(smiles, torch.tensor(labels(smiles, recipe["tasks"], seed=0)))
    return MoleculeSet(*read_labelled(recipe["dataset"], context.data_dir, context.work_dir / "data"))
