"""GraphCL's augmentations, each drawn for a whole batch at once, alone or beside augmentations of the user.

Where the authors' code differs from the paper, this is the code: edges are only dropped, each direction separately, and the
subgraph contains only neighbours of its start (here ``neighbourhood``; ``subgraph`` grows as in the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tempplug.errors import ConfigError, UnknownNameError, unknown
from tempplug_adapters.graph.graph_data import GraphBatch, arrival, rank, starts
from tempplug_adapters.graph.user_modules import Augmentation, augmented, takes_batch

DROPPED = 0.1
"""Fraction of a graph's nodes, edges or features that an augmentation removes."""
SUBGRAPH = 0.2
"""Size of a subgraph without its start, as a fraction of the graph's nodes."""
NOISE_MEAN, NOISE_DEVIATION = 0.5, 0.5

Kept = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Nodes kept [n], edges kept [E], features [n, F]; None for no change."""


def augment(graphs: GraphBatch, pool: Sequence[str]) -> GraphBatch:
    """Returns a view of each graph by an augmentation drawn from the pool of names; each view has at least one node."""
    check_pool(pool)
    nodes, edges, x = keep(graphs, pool, torch.randint(len(pool), (graphs.num_graphs,)))
    return replace(graphs, x=x).kept(nodes, edges)


def keep(graphs: GraphBatch, pool: Sequence[str], choice: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what augmentations leave of graphs.

    Args:
        graphs: on the CPU.
        pool: names of `AUGMENTATIONS`; an empty name changes nothing.
        choice: [B] position in the pool for each graph.

    Returns:
        Whether a node is kept [n]; whether an edge and both of its nodes are kept [E]; the features of all nodes [n, F].
    """
    nodes = torch.ones(len(graphs.x), dtype=torch.bool)
    edges = torch.ones(graphs.edge_index.shape[1], dtype=torch.bool)
    x = graphs.x
    for position, name in enumerate(pool):
        chosen = choice == position
        if not name or not bool(chosen.any()):
            continue
        kept_nodes, kept_edges, features = AUGMENTATIONS[name](graphs)
        of_node = chosen[graphs.batch]
        if kept_nodes is not None:
            nodes &= kept_nodes | ~of_node
        if kept_edges is not None:
            edges &= kept_edges | ~of_node[graphs.edge_index[0]]
        if features is not None:
            x = torch.where(of_node[:, None], features, x)
    return nodes, edges & nodes[graphs.edge_index].all(0), x


def check_pool(pool: Sequence[str]) -> None:
    """Raises `UnknownNameError` if the pool is empty or a name is unknown."""
    known = (*AUGMENTATIONS, "MODULE:NAME of your own")
    if not pool:
        raise UnknownNameError(f"no augmentation is named. Known: {', '.join(known)}.")
    for name in pool:
        if name not in AUGMENTATIONS:
            raise unknown("augmentation", name, known)


def _drop_nodes(graphs: GraphBatch) -> Kept:
    return ~_share(graphs.batch, graphs.num_graphs, DROPPED), None, None


def _drop_edges(graphs: GraphBatch) -> Kept:
    return None, ~_share(graphs.batch[graphs.edge_index[0]], graphs.num_graphs, DROPPED), None


def _mask_attributes(graphs: GraphBatch) -> Kept:
    masked = _share(graphs.batch, graphs.num_graphs, DROPPED)
    noise = torch.randn(graphs.x.shape) * NOISE_DEVIATION + NOISE_MEAN
    return None, None, torch.where(masked[:, None], noise, graphs.x)


def _neighbourhood(graphs: GraphBatch) -> Kept:
    """Keeps a random node and a random sample of its neighbours of the size of a subgraph."""
    start = _random_nodes(graphs)
    source, target = graphs.edge_index
    kept = torch.zeros(len(graphs.x), dtype=torch.bool)
    kept[target[torch.isin(source, start)]] = True
    kept[start] = False
    members = kept.nonzero()[:, 0]
    kept[members] = _random_rank(graphs.batch[members]) < _subgraph_size(graphs)[graphs.batch[members]]
    kept[start] = True
    return kept, None, None


def _subgraph(graphs: GraphBatch) -> Kept:
    """Keeps a part that grows from a random node by one random neighbour at a time."""
    start = _random_nodes(graphs)
    waiting = torch.empty(len(graphs.x), dtype=torch.float64).exponential_()
    joined = arrival(graphs, start, waiting)
    place = rank(graphs.batch, torch.argsort(joined, stable=True))
    return (place <= _subgraph_size(graphs)[graphs.batch]) & joined.isfinite(), None, None


def _subgraph_size(graphs: GraphBatch) -> Tensor:
    return (_sizes(graphs) * SUBGRAPH).long()


def _sizes(graphs: GraphBatch) -> Tensor:
    return torch.bincount(graphs.batch, minlength=graphs.num_graphs)


def _random_nodes(graphs: GraphBatch) -> Tensor:
    """Returns one node of every graph that has one."""
    sizes = _sizes(graphs)
    within = (torch.rand(graphs.num_graphs, dtype=torch.float64) * sizes).long()
    return (torch.cumsum(sizes, 0) - sizes + within)[sizes > 0]


def _share(group: Tensor, groups: int, fraction: float) -> Tensor:
    """Returns which members a random choice of that fraction of each group has, rounded down, [n]."""
    allowed = (torch.bincount(group, minlength=groups) * fraction).long()
    return _random_rank(group) < allowed[group]


def _random_rank(group: Tensor) -> Tensor:
    return rank(group, torch.randperm(len(group)))


AUGMENTATIONS: dict[str, Callable[[GraphBatch], Kept]] = {
    "drop-nodes": _drop_nodes,
    "drop-edges": _drop_edges,
    "mask-attributes": _mask_attributes,
    "subgraph": _subgraph,
    "neighbourhood": _neighbourhood,
}


def user_views(graphs: Sequence[Data], pool: Sequence[str | Augmentation]) -> Batch:
    """Returns a view of each graph by an augmentation drawn from the pool with PyTorch's global generator.

    Args:
        graphs: not changed.
        pool: names of `AUGMENTATIONS`, and callables from a ``Data`` to one; or a single callable with an argument annotated
            as ``Batch``, which returns a batch of as many graphs.

    Raises:
        ConfigError: an augmentation returns another type, needs other features, or takes a batch in a pool of several.
    """
    for each in pool:
        if not isinstance(each, str) and takes_batch(each):
            if len(pool) > 1:
                raise ConfigError(f"augmentation {each!r} takes a whole batch, and so must be the only one.")
            view = augmented(Batch.from_data_list(list(graphs)), each)
            if getattr(view, "num_graphs", None) != len(graphs):
                raise ConfigError(f"augmentation {each!r} must return a Batch of {len(graphs)} graphs.")
            return view
    choice = torch.randint(len(pool), (len(graphs),))
    chosen = [pool[place] for place in choice.tolist()]
    made = [graph if isinstance(each, str) else augmented(graph, each) for graph, each in zip(graphs, chosen, strict=True)]
    batch, names = Batch.from_data_list(made), [each if isinstance(each, str) else "" for each in pool]
    return _kept(batch, names, choice) if any(names) else batch


def _kept(batch: Batch, names: Sequence[str], choice: Tensor) -> Batch:
    """Returns the views by built-in augmentations, with all attributes of nodes and edges."""
    masked = "mask-attributes" in names
    if masked and not (batch.x is not None and batch.x.is_floating_point()):
        raise ConfigError("augmentation 'mask-attributes' puts noise in place of features, which must be floating point.")
    nodes, edges, x = keep(GraphBatch.of(batch), names, choice)
    of_node = batch.batch[nodes]
    view = Batch(batch=of_node, ptr=starts(torch.bincount(of_node, minlength=batch.num_graphs)))
    for name in batch.keys():  # noqa: SIM118 (a Batch is no dictionary)
        if name not in ("edge_index", "batch", "ptr", "num_nodes"):
            kept = nodes if batch.is_node_attr(name) else edges if batch.is_edge_attr(name) else None
            view[name] = batch[name] if kept is None else batch[name][kept]
    view.edge_index = (nodes.cumsum(0) - 1)[batch.edge_index[:, edges]]
    if masked:
        view.x = x[nodes]
    if batch.x is None:
        view.num_nodes = len(of_node)
    return view
