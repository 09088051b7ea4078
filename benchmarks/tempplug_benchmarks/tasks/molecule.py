"""The suite ``molecule``: GraphCL pre-trained on unlabelled molecules and fine-tuned on MoleculeNet, with every strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tempplug_adapters.graph.molecule_recipe import METHOD, UNLABELLED, MoleculeRecipe
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.tasks.molecule_generated import VERSION, generated_molecules

if TYPE_CHECKING:
    from tempplug_adapters.graph.molecule_method import Molecules
    from tempplug_adapters.training.method import Source

BASELINE = "fixed:temperature=0.1+dcl"
_ARMS = (
    *(*fixed("dcl", 0.05, 0.1, 0.2, 0.5), *fixed("infonce", 0.1), "macl+dcl", "macl+infonce", "dystress+dcl"),
    # Without the positive in the denominator, the loss is unbounded below for a decreasing learned temperature.
    *("temperature-free+dcl", "learnable+infonce", "schedule+dcl"),
)
_METHODS = {BASELINE: "GraphCL", "macl+dcl": "w/ MACL"}
# Hu et al.'s data set, which is never replaced by another one.
_ZINC15 = "graph/smiles/zinc15_2m.smi.gz"


@dataclass(frozen=True)
class _Set:
    """One data set of MoleculeNet.

    Attributes:
        name: its name in MoleculeNet.
        summary: description of its molecules and tasks.
        tasks: number of tasks.
        printed: whether figures of MACL's table 5 are available.
        small: whether it takes minutes on two cores.
    """

    name: str
    summary: str
    tasks: int = 1
    printed: bool = False
    small: bool = True


SETS = (
    _Set("BBBP", "drugs: pass the blood-brain barrier or not", printed=True),
    _Set("BACE", "inhibitors of beta-secretase 1: active or not"),
    _Set("ClinTox", "drugs: approved, failed for toxicity", 2),
    _Set("SIDER", "drugs: 27 kinds of side effects", 27, printed=True),
    _Set("Tox21", "compounds: 12 kinds of toxicity", 12, printed=True, small=False),
    _Set("ToxCast", "compounds: 617 assays of toxicity", 617, printed=True, small=False),
    _Set("MUV", "compounds: 17 screenings with few hits", 17, small=False),
    _Set("HIV", "compounds: stop HIV or not", small=False),
)


def read_molecules(recipe: MoleculeRecipe, source: Source) -> tuple[MoleculeRecipe, Molecules]:
    """Returns the recipe with the absolute path of the file, and the molecules."""
    if recipe.pretrain_file is not None and source.data_dir is not None:
        recipe = recipe.changed(pretrain_file=str(source.data_dir / recipe.pretrain_file))
    return recipe, METHOD.load().load(recipe, source)


def _metrics(name: str) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=metric,
            figure=f"{figure} {name}",
            summary=f"ROC-AUC × 100 of the {part} molecules after the last epoch, mean over the tasks",
            smallest_difference=0.1,
        )
        for metric, figure, part in (("ROC-AUC", "roc_auc", "test"), ("validation", "valid_roc_auc", "validation"))
    )


def _profile(each: _Set, dataset: str, changes: Mapping[str, Any], printed: bool = False, **more: Any) -> Profile:
    rows = {label: (PaperRow("macl", "5", method, each.name),) for label, method in _METHODS.items()} if printed else {}
    return Profile(
        dataset=dataset,
        recipe=METHOD.recipe(**changes),
        arms=(UNTRAINED, *arms(*_ARMS, reported=rows)),
        metrics=_metrics(each.name),
        primary="ROC-AUC",
        validation="validation",
        source=each.name,
        **more,
    )


def _real(each: _Set, molecules: str, file: str, changes: Mapping[str, Any]) -> Profile:
    return _profile(
        each,
        f"{each.name} of MoleculeNet, scaffold split 80/10/10; pre-trained on {molecules}",
        {"pretrain_file": file, **changes},
        each.printed,
        load=read_molecules,
        needs=(f"graph/moleculenet/{each.name.lower()}.tar.xz", file),
    )


def _profiles(each: _Set) -> dict[str, Profile]:
    tasks = min(each.tasks, 3)
    quick = {"num_train_epochs": 4, "layers": 2, "width": 32, "max_pretrain_molecules": 512, "finetune_epochs": 8}
    small = {"num_train_epochs": 5, "width": 64, "max_pretrain_molecules": 10_000, "finetune_epochs": 20}
    profiles = {
        "quick": _profile(
            each,
            f"generated molecules with {tasks} {'task' if tasks == 1 else 'tasks'}, version {VERSION}",
            quick,
            load=partial(generated_molecules, tasks=tasks),
            stands_in="generated molecules",
        )
    }
    if each.small:
        profiles["small"] = _real(each, "the first 10,000 drug-like molecules of ZINC", UNLABELLED, small)
    profiles["paper"] = _real(each, "2,000,000 molecules of ZINC15", _ZINC15, {})
    return profiles


SUITE = Suite(
    "molecule",
    "GraphCL pre-training on unlabelled molecules, fine-tuned on eight data sets of MoleculeNet",
    tuple(
        Task(
            name=each.name.lower(),
            summary=f"{each.summary}; two views of a molecule are a positive pair, other molecules' views are negatives",
            method=METHOD,
            baseline=BASELINE,
            family="all data sets",
            papers="molecule",
            resources={"paper": GPU},
            profiles=_profiles(each),
        )
        for each in SETS
    ),
)
