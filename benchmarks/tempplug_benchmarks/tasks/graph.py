"""The suite ``graph``, declared in ``graph.toml``, and its generated graphs: trees, those of one class with rings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tempplug_adapters.graph.recipes import GRAPHCL as METHOD
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from tempplug_adapters.graph.graph_data import Graphs, GraphSet
    from tempplug_adapters.graph.recipes import GraphCLRecipe
    from tempplug_adapters.training.method import Source

VERSION = 1
"""Any change of the generated data must increment it; it is part of every result's identity."""
KINDS, COUNT = 3, 80
"""Kinds of nodes with features, and graphs."""
_SMALLEST, _LARGEST = 8, 20


def generated_graphs(recipe: GraphCLRecipe, source: Source, *, features: bool) -> tuple[GraphCLRecipe, Graphs]:
    """Returns the recipe and the graphs, which are the same for every seed."""
    from tempplug_adapters.graph.graph_data import Graphs

    return recipe, Graphs(generate(COUNT, features, seed=0))


def generate(count: int, with_features: bool, seed: int) -> GraphSet:
    """Returns ``count`` graphs, half of each class, whose nodes may have a one-hot kind that is independent of the class."""
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


SUITE = make_suite(read_file("graph"), METHOD, generated_graphs, version=VERSION)
