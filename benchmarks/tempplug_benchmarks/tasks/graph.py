"""The suite ``graph``: GraphCL with every temperature strategy on six data sets of graph classification."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tempplug_adapters.graph.graphcl_recipe import METHOD, POOLS
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

if TYPE_CHECKING:
    from tempplug_adapters.graph.graph_data import GraphSet
    from tempplug_adapters.graph.graphcl_recipe import GraphCLRecipe
    from tempplug_adapters.graph.graphs import Graphs
    from tempplug_adapters.training.method import Source

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
    *(*fixed("dcl", 0.1, 0.2, 0.5, 1), *fixed("infonce", 0.2), "macl+dcl", "macl+infonce"),
    *("dystress+dcl", "temperature-free+dcl", "learnable+infonce", "schedule+dcl"),
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


VERSION = 1
"""Grows with every change of what is generated, so that results of different data are kept apart."""
KINDS, COUNT = 3, 80
"""Kinds of nodes with features, and graphs."""
_SMALLEST, _LARGEST = 8, 20


def generated_graphs(recipe: GraphCLRecipe, source: Source, *, features: bool) -> tuple[GraphCLRecipe, Graphs]:
    """Returns the recipe and the graphs, which are the same for every seed."""
    from tempplug_adapters.graph.graphs import Graphs

    return recipe, Graphs(generate(COUNT, features, seed=0))


def generate(count: int, with_features: bool, seed: int) -> GraphSet:
    """Returns graphs, half of each class.

    Args:
        count: number of graphs, at least 2.
        with_features: whether nodes have a one-hot kind, which is independent of the class.
        seed: random seed.
    """
    import torch

    from tempplug_adapters.graph.graph_data import GraphSet

    chance = random.Random(seed)
    sizes, edges, labels = [], [], []
    for position in range(count):
        label = position % 2
        size = chance.randint(_SMALLEST, _LARGEST)
        sizes.append(size)
        labels.append(label)
        edges.append(_tree_with_rings(size, size // 3 if label else 0, chance))
    nodes = sum(sizes)
    kinds = torch.tensor([chance.randrange(KINDS) for _ in range(nodes)])
    return GraphSet(
        x=torch.nn.functional.one_hot(kinds, KINDS).float() if with_features else torch.ones(nodes, 1),
        edge_index=torch.tensor([pair for pairs in edges for pair in pairs]).T.contiguous(),
        node_start=torch.cumsum(torch.tensor([0, *sizes]), 0),
        edge_start=torch.cumsum(torch.tensor([0, *map(len, edges)]), 0),
        labels=torch.tensor(labels),
    )


def _tree_with_rings(size: int, rings: int, chance: random.Random) -> list[tuple[int, int]]:
    """Returns the edges, in both directions, of a random tree with additional edges between unconnected nodes."""
    joined = {(chance.randrange(max(0, node - 3), node), node) for node in range(1, size)}
    while len(joined) < size - 1 + rings:
        first, second = sorted(chance.sample(range(size), 2))
        joined.add((first, second))
    return [pair for low, high in sorted(joined) for pair in ((low, high), (high, low))]


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
