"""The suite ``molecule``: GraphCL's transfer from unlabelled molecules to MoleculeNet, with every temperature strategy.

Declares tasks, recipes and arms; `molecule_runs` executes them. Importing this loads no framework.
"""

from __future__ import annotations

from dataclasses import dataclass

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Recipe, Task
from tempplug_benchmarks.tasks.molecule_generated import VERSION
from tempplug_benchmarks.tasks.molecule_runs import GENERATED, SCRATCH, train_molecules

BASELINE = "fixed-0.1"
METRICS = (
    Metric(name="ROC-AUC", summary="ROC-AUC × 100 of the test molecules after the last epoch, mean over the tasks"),
    Metric(name="validation", summary="ROC-AUC × 100 of the validation molecules after the last epoch, mean over the tasks"),
)
_METHODS = {BASELINE: "GraphCL", "macl": "w/ MACL"}
_DRUGLIKE = "graph/smiles/zinc_druglike_100k.smi.gz"
# Hu et al.'s set; nothing else is ever used in its place.
_ZINC15 = "graph/smiles/zinc15_2m.smi.gz"


@dataclass(frozen=True)
class _Set:
    """One data set of MoleculeNet.

    Attributes:
        name: its name in MoleculeNet.
        summary: what its molecules and tasks are, and how many.
        tasks: how many.
        printed: whether the figures of MACL's table 5 are known; of the other sets they are lost.
        small: whether it is done in minutes on two cores.
    """

    name: str
    summary: str
    tasks: int = 1
    printed: bool = False
    small: bool = True


SETS = (
    _Set("BBBP", "2,039 drugs: pass the blood-brain barrier or not", printed=True),
    _Set("BACE", "1,513 inhibitors of beta-secretase 1: active or not"),
    _Set("ClinTox", "1,480 drugs: approved, failed for toxicity", 2),
    _Set("SIDER", "1,427 drugs: 27 kinds of side effects", 27, printed=True),
    _Set("Tox21", "7,823 compounds: 12 kinds of toxicity", 12, printed=True, small=False),
    _Set("ToxCast", "8,576 compounds: 617 assays of toxicity", 617, printed=True, small=False),
    _Set("MUV", "93,087 compounds: 17 screenings with few hits", 17, small=False),
    _Set("HIV", "41,120 compounds: stop HIV or not", small=False),
)


def _arms(epochs: int, printed: str = "") -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        epochs: of pre-training; a schedule's period is a fifth of them.
        printed: the paper's name of the data set where its rows answer the same question.
    """
    macl = "macl:base_temperature=0.1,alpha=0.5,threshold=0"
    specs = (
        (SCRATCH, "fixed:temperature=1", "dcl"),
        (BASELINE, "fixed:temperature=0.1", "dcl"),
        ("fixed-0.1-infonce", "fixed:temperature=0.1", "infonce"),
        ("fixed-0.5", "fixed:temperature=0.5", "dcl"),
        ("macl", macl, "dcl"),
        ("macl-infonce", macl, "infonce"),
        ("dystress", "dystress:temperature_min=0.05,temperature_max=0.1", "dcl"),
        ("temperature-free", "temperature-free", "dcl"),
        # Without the positive in the denominator, the loss falls without end as a learned temperature falls.
        ("learnable", "learnable:initial_temperature=0.1", "infonce"),
        ("schedule", f"schedule:temperature_min=0.05,temperature_max=0.2,period={epochs / 5:g}", "dcl"),
    )
    rows = {label: (PaperRow("macl", "5", method, printed),) for label, method in _METHODS.items()} if printed else {}
    return tuple(Arm(*spec, reported=rows.get(spec[0], ())) for spec in specs)


def _recipe(dataset: str, epochs: int, **more: str | int | float | bool | None) -> Recipe:
    return {
        "dataset": dataset,
        "pretrain_epochs": epochs,
        "pretrain_batch_size": 256,
        "pretrain_learning_rate": 1e-3,
        "view_ratio": 0.2,
        "finetune_batch_size": 32,
        "finetune_learning_rate": 1e-3,
        "dropout": 0.5,
        "bf16": False,
        **more,
    }


def _real(each: _Set, molecules: str, recipe: Recipe, epochs: int) -> Profile:
    return Profile(
        dataset=f"{each.name} of MoleculeNet, scaffold split 80/10/10; pre-trained on {molecules}",
        recipe=recipe,
        arms=_arms(epochs, each.name if each.printed else ""),
        metrics=METRICS,
        primary=METRICS[0].name,
        needs=(f"graph/moleculenet/{each.name.lower()}.tar.xz", str(recipe["pretrain_file"])),
    )


def _profiles(each: _Set) -> dict[str, Profile]:
    tasks = min(each.tasks, 3)
    profiles = {
        "quick": Profile(
            dataset=f"generated molecules with {tasks} {'task' if tasks == 1 else 'tasks'}, version {VERSION}",
            recipe=_recipe(
                GENERATED,
                4,
                layers=2,
                width=32,
                pretrain_molecules=512,
                molecules=400,
                tasks=tasks,
                finetune_epochs=8,
            ),
            arms=_arms(4),
            metrics=METRICS,
            primary=METRICS[0].name,
        )
    }
    if each.small:
        recipe = _recipe(
            each.name,
            10,
            layers=5,
            width=128,
            pretrain_file=_DRUGLIKE,
            pretrain_molecules=20_000,
            finetune_epochs=100,
        )
        profiles["small"] = _real(each, "the first 20,000 drug-like molecules of ZINC", recipe, 10)
    recipe = _recipe(each.name, 80, layers=5, width=300, pretrain_file=_ZINC15, pretrain_molecules=None, finetune_epochs=100)
    profiles["paper"] = _real(each, "2,000,000 molecules of ZINC15", recipe, 80)
    return profiles


SUITE = Suite(
    "molecule",
    "GraphCL pre-training on unlabelled molecules, fine-tuned on eight data sets of MoleculeNet",
    tuple(
        Task(
            name=each.name.lower(),
            summary=f"{each.summary}; two views of a molecule are a positive pair, other molecules' views are negatives",
            baseline=BASELINE,
            papers="molecule",
            train=train_molecules,
            profiles=_profiles(each),
        )
        for each in SETS
    ),
)
