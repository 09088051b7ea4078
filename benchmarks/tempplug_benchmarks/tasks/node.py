"""The suite ``node``, declared in ``node.toml``, and its generated citation-like graph.

Nodes cite their own class more often, and each class has more likely words. Words or edges alone do not determine the classes,
and an untrained encoder predicts few of them, so that errors in encoder, views or loss reduce the score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempplug_adapters.graph.recipes import GRACE as METHOD
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from tempplug_adapters.graph.nodes import Nodes
    from tempplug_adapters.graph.recipes import GraceRecipe
    from tempplug_adapters.training.method import Source

VERSION = 1
"""Any change of the generated data must increment it; it is part of every result's identity."""

NODES, CLASSES, WORDS = 600, 4, 200
_EDGES = 1500
_SAME_CLASS = 0.6
_WORDS_A_NODE = 12
_OWN_WORDS = 0.25


def generated_nodes(recipe: GraceRecipe, source: Source) -> tuple[GraceRecipe, Nodes]:
    """Returns the recipe and the graph of its seed."""
    from tempplug_adapters.graph.nodes import Nodes

    return recipe, Nodes(citation_graph(recipe.seed), "generated")


def citation_graph(seed: int) -> Data:
    """Returns an undirected graph with 0/1 features [600, 200] and classes [600]; a few nodes are isolated."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.utils import remove_self_loops, to_undirected

    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(NODES) % CLASSES
    sources = torch.randint(NODES, (_EDGES,), generator=generator)
    # Indices of nodes of the same class differ by a multiple of CLASSES.
    away = torch.randint(NODES // CLASSES, (_EDGES,), generator=generator) * CLASSES
    same = torch.rand(_EDGES, generator=generator) < _SAME_CLASS
    targets = torch.where(same, (sources + away) % NODES, torch.randint(NODES, (_EDGES,), generator=generator))
    edges, _ = remove_self_loops(to_undirected(torch.stack((sources, targets)), num_nodes=NODES))
    # Words are assigned to classes like nodes: word w belongs to class w % CLASSES.
    anywhere = torch.randint(WORDS, (NODES, _WORDS_A_NODE), generator=generator)
    own = torch.randint(WORDS // CLASSES, (NODES, _WORDS_A_NODE), generator=generator) * CLASSES + labels[:, None]
    chosen = torch.where(torch.rand(own.shape, generator=generator) < _OWN_WORDS, own, anywhere)
    return Data(x=torch.zeros(NODES, WORDS).scatter_(1, chosen, 1.0), edge_index=edges, y=labels)


SUITE = make_suite(read_file("node"), METHOD, generated_nodes, version=VERSION)
