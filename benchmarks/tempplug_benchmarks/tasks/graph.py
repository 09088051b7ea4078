"""The suite ``graph``: GraphCL with every temperature strategy on six data sets of graph classification.

Declares tasks, recipes and arms; `graph_runs` executes them. Importing this loads no framework.
"""

from __future__ import annotations

from dataclasses import dataclass

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Recipe, Task
from tempplug_benchmarks.tasks.graph_generated import VERSION
from tempplug_benchmarks.tasks.graph_runs import GENERATED, GENERATED_PLAIN, train_graphs

BASELINE = "fixed-0.2"
METRIC = Metric(
    name="accuracy", summary="accuracy in %, support vector machine on the representations, mean over stratified folds"
)
_METHODS = {BASELINE: "GraphCL", "macl": "w/ MACL"}
_MOLECULES = "drop-nodes neighbourhood"
_SOCIAL = "drop-nodes neighbourhood drop-edges"
_PROTEINS = "drop-nodes neighbourhood drop-edges mask-attributes"


@dataclass(frozen=True)
class _Set:
    """One data set of the TU collection.

    Attributes:
        tu: its name in the collection.
        printed: its name in MACL's table 4.
        summary: what its graphs and classes are, and how many.
        augmentations: what views are made with.
        features: whether its nodes have any.
    """

    tu: str
    printed: str
    summary: str
    augmentations: str
    features: bool = True


SETS = (
    _Set("MUTAG", "MUTAG", "188 molecules: mutagenic or not", _MOLECULES),
    _Set("PROTEINS", "PROTEINS", "1,113 proteins: enzyme or not", _PROTEINS),
    _Set("NCI1", "NCI1", "4,110 molecules: active against lung cancer cells or not", _MOLECULES),
    _Set("DD", "DD", "1,178 large proteins: enzyme or not", _PROTEINS),
    _Set("IMDB-BINARY", "IMDB-B", "1,000 casts: action or romance", _SOCIAL, features=False),
    _Set("REDDIT-BINARY", "RDT-B", "2,000 discussions: question and answer, or debate", _SOCIAL, features=False),
)


def _arms(epochs: int, printed: str = "") -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        epochs: of its recipe; a schedule's period is a fifth of them.
        printed: the paper's name of the data set where its rows answer the same question.
    """
    macl = "macl:base_temperature=0.2,alpha=0.5,threshold=0"
    specs = (
        ("fixed-0.1", "fixed:temperature=0.1", "dcl"),
        (BASELINE, "fixed:temperature=0.2", "dcl"),
        ("fixed-0.5", "fixed:temperature=0.5", "dcl"),
        ("fixed-0.2-infonce", "fixed:temperature=0.2", "infonce"),
        ("macl", macl, "dcl"),
        ("macl-infonce", macl, "infonce"),
        ("dystress", "dystress:temperature_min=0.1,temperature_max=0.2", "dcl"),
        ("temperature-free", "temperature-free", "dcl"),
        ("learnable", "learnable:initial_temperature=0.2", "infonce"),
        ("schedule", f"schedule:temperature_min=0.1,temperature_max=0.4,period={epochs / 5:g}", "dcl"),
    )
    rows = {label: (PaperRow("macl", "4", method, printed),) for label, method in _METHODS.items()} if printed else {}
    return tuple(Arm(*spec, reported=rows.get(spec[0], ())) for spec in specs)


def _recipe(graphs: str, augmentations: str, epochs: int, folds: int, count: int | None = None) -> Recipe:
    return {
        "graphs": graphs,
        "count": count,
        "augmentations": augmentations,
        "epochs": epochs,
        "batch_size": 128,
        "learning_rate": 0.01,
        "hidden": 32,
        "layers": 3,
        "folds": folds,
    }


def _profiles(each: _Set) -> dict[str, Profile]:
    kind = "with" if each.features else "without"
    quick = Profile(
        dataset=f"generated graphs {kind} node features, version {VERSION}",
        recipe=_recipe(GENERATED if each.features else GENERATED_PLAIN, each.augmentations, epochs=10, folds=5, count=80),
        arms=_arms(epochs=10),
        metrics=(METRIC,),
        primary=METRIC.name,
    )
    real = {
        name: Profile(
            dataset=f"{each.tu} of the TU collection, {'node labels' if each.features else 'a constant'} as features",
            recipe=_recipe(each.tu, each.augmentations, epochs, folds=10),
            arms=_arms(epochs, each.printed),
            metrics=(METRIC,),
            primary=METRIC.name,
            needs=(f"graph/tu/{each.tu}.tar.xz",),
        )
        for name, epochs in (("small", 10), ("paper", 20))
    }
    return {"quick": quick, **real}


SUITE = Suite(
    "graph",
    "GraphCL graph representations on six TU data sets, measured by a support vector machine",
    tuple(
        Task(
            name=each.tu.lower(),
            summary=f"{each.summary}; a graph's own view is its positive, the views of the others are negatives",
            baseline=BASELINE,
            papers="graph",
            train=train_graphs,
            profiles=_profiles(each),
        )
        for each in SETS
    ),
)
