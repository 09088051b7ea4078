"""GraphCL's augmentations, each drawn for a whole batch at once.

Where the authors' code differs from the paper, this is the code: edges are only dropped, each direction separately, and the
subgraph contains only neighbours of its start (here ``neighbourhood``; ``subgraph`` grows as in the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tempplug.errors import UnknownNameError, nearest
from tempplug_adapters.graph.graph_data import GraphBatch, rank, starts

DROPPED = 0.1
"""Fraction of a graph's nodes, edges or features that an augmentation removes."""
SUBGRAPH = 0.2
"""Size of a subgraph without its start, as a fraction of the graph's nodes."""
NOISE_MEAN, NOISE_DEVIATION = 0.5, 0.5

Kept = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Nodes kept [n], edges kept [E], features [n, F]; None for no change."""


def augment(graphs: GraphBatch, pool: Sequence[str], generator: torch.Generator | None = None) -> GraphBatch:
    """Returns a view of each graph by an augmentation drawn from the pool of names; each view has at least one node."""
    check_pool(pool)
    kept = keep(graphs, pool, torch.randint(len(pool), (graphs.num_graphs,), generator=generator), generator)
    return replace(graphs, x=kept.x).kept(kept.nodes, kept.edges)


@dataclass(frozen=True)
class Keep:
    """What remains of graphs after augmentations.

    Attributes:
        nodes: [n] whether a node is kept.
        edges: [E] whether an edge and both of its nodes are kept.
        x: [n, F] features of all nodes.
    """

    nodes: Tensor
    edges: Tensor
    x: Tensor


def keep(graphs: GraphBatch, pool: Sequence[str], choice: Tensor, generator: torch.Generator | None = None) -> Keep:
    """Returns what remains of graphs.

    Args:
        graphs: on the CPU.
        pool: names of `AUGMENTATIONS`; an empty name changes nothing.
        choice: [B] position in the pool for each graph.
        generator: source of all random choices; None for the global one.
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
    """Raises `UnknownNameError` if the pool is empty or a name is unknown."""
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
    """Keeps a random node and a random sample of its neighbours of the size of a subgraph."""
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
    """Keeps a part that grows from a random node by one random neighbour at a time."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    count = len(graphs.x)
    start = _random_nodes(graphs, generator)
    waiting = torch.empty(count, dtype=torch.float64).exponential_(generator=generator)
    source, target = graphs.edge_index[:, torch.argsort(graphs.edge_index[0], stable=True)]
    pointers = starts(torch.bincount(source, minlength=count))
    lengths = csr_array((waiting[target].numpy(), target.numpy(), pointers.numpy()), shape=(count, count))
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
