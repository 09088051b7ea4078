"""The suite ``graph``: GraphCL with every temperature strategy on six data sets of graph classification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tempplug_adapters.graph.graphcl_recipe import METHOD, POOLS
from tempplug_benchmarks.arm import UNTRAINED, arms
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.tasks.graph_generated import VERSION, generated_graphs

BASELINE = "fixed:temperature=0.2+dcl"
METRICS = (
    Metric(
        name="accuracy",
        summary="accuracy in %, support vector machine on the representations, mean over stratified folds",
        smallest_difference=0.1,
    ),
    Metric(
        name="validation",
        figure="validation_accuracy",
        summary="the same on what each fold holds out of its training part, where test graphs of other folds are",
    ),
)
_ARMS = (
    "fixed:temperature=0.1+dcl",
    BASELINE,
    "fixed:temperature=0.5+dcl",
    "fixed:temperature=1+dcl",
    "fixed:temperature=0.2+infonce",
    "macl+dcl",
    "macl+infonce",
    "dystress+dcl",
    "temperature-free+dcl",
    "learnable+infonce",
    "schedule+dcl",
)
_METHODS = {BASELINE: "GraphCL", "macl+dcl": "w/ MACL"}


@dataclass(frozen=True)
class _Set:
    """One data set of the TU collection.

    Attributes:
        tu: its name in the collection.
        printed: its name in MACL's table 4.
        summary: description of its graphs and classes.
        features: whether its nodes have features.
    """

    tu: str
    printed: str
    summary: str
    features: bool = True


SETS = (
    _Set("MUTAG", "MUTAG", "molecules: mutagenic or not"),
    _Set("PROTEINS", "PROTEINS", "proteins: enzyme or not"),
    _Set("NCI1", "NCI1", "molecules: active against lung cancer cells or not"),
    _Set("DD", "DD", "large proteins: enzyme or not"),
    _Set("IMDB-BINARY", "IMDB-B", "casts: action or romance", features=False),
    _Set("REDDIT-BINARY", "RDT-B", "discussions: question and answer, or debate", features=False),
)


def _profiles(each: _Set) -> dict[str, Profile]:
    def profile(dataset: str, changes: Mapping[str, Any], reported: Mapping[str, tuple[PaperRow, ...]], **more: Any) -> Profile:
        recipe = METHOD.recipe(augmentations=POOLS[each.tu], **changes)
        own = (*arms(*_ARMS, reported=reported), UNTRAINED)
        return Profile(
            dataset=dataset, recipe=recipe, arms=own, metrics=METRICS, primary="accuracy", validation="validation", **more
        )

    kind = "with" if each.features else "without"
    real = f"{each.tu} of the TU collection, {'node labels' if each.features else 'a constant'} as features"
    where = {"source": each.tu, "needs": (f"graph/tu/{each.tu}.tar.xz",)}
    reported = {label: (PaperRow("macl", "4", method, each.printed),) for label, method in _METHODS.items()}
    return {
        "quick": profile(
            f"generated graphs {kind} node features, version {VERSION}",
            {"num_train_epochs": 10, "folds": 5},
            {},
            load=partial(generated_graphs, features=each.features),
            stands_in="generated graphs",
        ),
        "small": profile(real, {"num_train_epochs": 10}, reported, **where),
        "paper": profile(real, {}, reported, **where),
    }


SUITE = Suite(
    "graph",
    "GraphCL graph representations on six TU data sets, measured by a support vector machine",
    tuple(
        Task(
            name=each.tu.lower(),
            summary=f"{each.summary}; a graph's own view is its positive, the views of the others are negatives",
            method=METHOD,
            baseline=BASELINE,
            family="all data sets",
            papers="graph",
            profiles=_profiles(each),
        )
        for each in SETS
    ),
)
