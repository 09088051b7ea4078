"""GraphCL's augmentations, each drawn for a whole batch at once.

Their code is followed where it departs from the paper: edges are only dropped, a direction at a time, and their subgraph
never leaves the start's neighbours (here ``neighbourhood``; ``subgraph`` grows as the paper says).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tempplug.errors import UnknownNameError, nearest
from tempplug_adapters.graph.graph_data import GraphBatch, rank

DROPPED = 0.1
"""Fraction of a graph's nodes, edges or features that an augmentation takes away."""
SUBGRAPH = 0.2
"""Fraction of a graph's nodes that a subgraph has beside its start."""
NOISE_MEAN, NOISE_DEVIATION = 0.5, 0.5

Kept = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Nodes kept [n], edges kept [E], features [n, F]; None leaves all as they are."""


def augment(graphs: GraphBatch, pool: Sequence[str], generator: torch.Generator | None = None) -> GraphBatch:
    """Returns a view of each graph, made by one augmentation drawn from the pool of names; each keeps a node at least."""
    check_pool(pool)
    kept = keep(graphs, pool, torch.randint(len(pool), (graphs.num_graphs,), generator=generator), generator)
    new_place = torch.cumsum(kept.nodes, 0) - 1
    edge_index = new_place[graphs.edge_index[:, kept.edges]]
    return GraphBatch(kept.x[kept.nodes], edge_index, graphs.batch[kept.nodes], graphs.num_graphs)


@dataclass(frozen=True)
class Keep:
    """What augmentations leave of graphs.

    Attributes:
        nodes: [n] whether a node stays.
        edges: [E] whether an edge stays, which needs both of its nodes.
        x: [n, F] features, of all nodes.
    """

    nodes: Tensor
    edges: Tensor
    x: Tensor


def keep(graphs: GraphBatch, pool: Sequence[str], choice: Tensor, generator: torch.Generator | None = None) -> Keep:
    """Returns what the augmentations leave.

    Args:
        graphs: on the CPU.
        pool: names of `AUGMENTATIONS`; an empty one leaves a graph as it is.
        choice: [B] position in the pool for each graph.
        generator: of all random choices; None is the global one.
    """
    nodes = torch.ones(len(graphs.x), dtype=torch.bool)
    edges = torch.ones(graphs.edge_index.shape[1], dtype=torch.bool)
    x = graphs.x
    for position, name in enumerate(pool):
        chosen = choice == position
        if not name or not bool(chosen.any()):
            continue
        kept_nodes, kept_edges, features = AUGMENTATIONS[name](graphs, generator)
        of_node = chosen[graphs.batch]
        if kept_nodes is not None:
            nodes &= kept_nodes | ~of_node
        if kept_edges is not None:
            edges &= kept_edges | ~of_node[graphs.edge_index[0]]
        if features is not None:
            x = torch.where(of_node[:, None], features, x)
    source, target = graphs.edge_index
    return Keep(nodes, edges & nodes[source] & nodes[target], x)


def check_pool(pool: Sequence[str]) -> None:
    """Raises `UnknownNameError` unless the pool names augmentations, and one at least."""
    known = ", ".join((*AUGMENTATIONS, "MODULE:NAME of your own"))
    if not pool:
        raise UnknownNameError(f"no augmentation is named. Known: {known}.")
    for name in pool:
        if name not in AUGMENTATIONS:
            raise UnknownNameError(f"unknown augmentation '{name}'.{nearest(name, AUGMENTATIONS)} Known: {known}.")


def _drop_nodes(graphs: GraphBatch, generator: torch.Generator | None) -> Kept:
    return ~_share(graphs.batch, graphs.num_graphs, DROPPED, generator), None, None


def _drop_edges(graphs: GraphBatch, generator: torch.Generator | None) -> Kept:
    return None, ~_share(graphs.batch[graphs.edge_index[0]], graphs.num_graphs, DROPPED, generator), None


def _mask_attributes(graphs: GraphBatch, generator: torch.Generator | None) -> Kept:
    masked = _share(graphs.batch, graphs.num_graphs, DROPPED, generator)
    noise = torch.randn(graphs.x.shape, generator=generator) * NOISE_DEVIATION + NOISE_MEAN
    return None, None, torch.where(masked[:, None], noise, graphs.x)


def _neighbourhood(graphs: GraphBatch, generator: torch.Generator | None) -> Kept:
    """Keeps a random node and, at random, as many of its neighbours as a subgraph may have."""
    start = _random_nodes(graphs, generator)
    source, target = graphs.edge_index
    kept = torch.zeros(len(graphs.x), dtype=torch.bool)
    kept[target[torch.isin(source, start)]] = True
    kept[start] = False
    members = kept.nonzero()[:, 0]
    kept[members] = _random_rank(graphs.batch[members], generator) < _subgraph_size(graphs)[graphs.batch[members]]
    kept[start] = True
    return kept, None, None


def _subgraph(graphs: GraphBatch, generator: torch.Generator | None) -> Kept:
    """Keeps what grows from a random node, a random node next to the grown part at a time."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    count = len(graphs.x)
    start = _random_nodes(graphs, generator)
    waiting = torch.empty(count, dtype=torch.float64).exponential_(generator=generator)
    order = torch.argsort(graphs.edge_index[0], stable=True)
    source, target = graphs.edge_index[:, order]
    starts = torch.zeros(count + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(source, minlength=count).cumsum(0)
    lengths = csr_array((waiting[target].numpy(), target.numpy(), starts.numpy()), shape=(count, count))
    joined = torch.from_numpy(dijkstra(lengths, indices=start.numpy(), min_only=True))
    place = rank(graphs.batch, torch.argsort(joined, stable=True))
    return (place <= _subgraph_size(graphs)[graphs.batch]) & joined.isfinite(), None, None


def _subgraph_size(graphs: GraphBatch) -> Tensor:
    return (_sizes(graphs) * SUBGRAPH).long()


def _sizes(graphs: GraphBatch) -> Tensor:
    return torch.bincount(graphs.batch, minlength=graphs.num_graphs)


def _random_nodes(graphs: GraphBatch, generator: torch.Generator | None) -> Tensor:
    """Returns one node of every graph that has one."""
    sizes = _sizes(graphs)
    within = (torch.rand(graphs.num_graphs, dtype=torch.float64, generator=generator) * sizes).long()
    return (torch.cumsum(sizes, 0) - sizes + within)[sizes > 0]


def _share(group: Tensor, groups: int, fraction: float, generator: torch.Generator | None) -> Tensor:
    """Returns which members a random choice of that fraction of each group has, rounded down, [n]."""
    allowed = (torch.bincount(group, minlength=groups) * fraction).long()
    return _random_rank(group, generator) < allowed[group]


def _random_rank(group: Tensor, generator: torch.Generator | None) -> Tensor:
    return rank(group, torch.randperm(len(group), generator=generator))


AUGMENTATIONS: dict[str, Callable[[GraphBatch, torch.Generator | None], Kept]] = {
    "drop-nodes": _drop_nodes,
    "drop-edges": _drop_edges,
    "mask-attributes": _mask_attributes,
    "subgraph": _subgraph,
    "neighbourhood": _neighbourhood,
}
