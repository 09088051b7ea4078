"""The graph that GRACE trains on: its features, its labels, and its parts around some nodes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

from tempplug.errors import DataError
from tempplug_adapters.graph.node_data import check_graph, labels_of, plain_features
from tempplug_adapters.graph.node_tables import NodeTables

_MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class NodeBatch:
    """The part of a graph around the nodes to be contrasted.

    Attributes:
        nodes: [n] positions in the whole graph, ordered by their distance in steps from the nodes to be contrasted.
        edge_index: [2, E] with positions in ``nodes``, ordered by the distance of their targets.
        edges: [E] positions of the edges in the whole graph.
        reach: numbers of nodes that are at most 0, 1, 2, … steps away; the first is that of the nodes to be contrasted.
    """

    nodes: Tensor
    edge_index: Tensor
    edges: Tensor
    reach: tuple[int, ...]

    @property
    def seeds(self) -> int:
        """Number of nodes to be contrasted."""
        return self.reach[0]


class NodeSampler:
    """Finds the part of a graph that an encoder reads around some nodes, with a random sample of the neighbours.

    PyTorch Geometric samples where pyg-lib is installed, which its sampler needs (Hamilton et al. 2017).

    Args:
        edge_index: [2, E] of the whole graph, from source to target.
        nodes: N.

    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> NodeSampler(path, nodes=3).around(torch.tensor([2]), neighbours=5, layers=1).nodes
    tensor([2, 1])
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        self.nodes = nodes
        self._edge_index = edge_index
        self._order = torch.argsort(edge_index[1], stable=True)
        self._degrees = torch.bincount(edge_index[1], minlength=nodes)
        self._starts = self._degrees.cumsum(0) - self._degrees
        self._samplers: dict[tuple[int, int], Any] = {}

    def around(self, seeds: Tensor, neighbours: int | None, layers: int) -> NodeBatch:
        """Returns the batch that contrasts some nodes.

        Args:
            seeds: [s] positions, each named once.
            neighbours: number of incoming edges to follow for each node and layer, at least 1; None for all.
            layers: number of layers of the encoder, the distance from the seeds.
        """
        if torch_geometric.typing.WITH_PYG_LIB:
            return self._by_library(seeds, -1 if neighbours is None else neighbours, layers)
        place = torch.full((self.nodes,), -1, device=seeds.device)
        place[seeds] = torch.arange(len(seeds), device=seeds.device)
        nodes, frontier, reach = seeds, seeds, [len(seeds)]
        followed: list[Tensor] = []
        for _ in range(layers):
            edges = self._sampled(frontier, neighbours)
            sources = self._edge_index[0, edges]
            fresh = torch.unique(sources[place[sources] < 0])
            place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh), device=seeds.device)
            followed.append(edges)
            nodes, frontier = torch.cat((nodes, fresh)), fresh
            reach.append(len(nodes))
        every = torch.cat(followed)
        return NodeBatch(nodes, place[self._edge_index[:, every]], every, tuple(reach))

    def _sampled(self, targets: Tensor, neighbours: int | None) -> Tensor:
        """Returns up to ``neighbours`` incoming edges of each target, without replacement, in the order of the targets."""
        degrees = self._degrees[targets]
        group = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), degrees)
        first = degrees.cumsum(0) - degrees
        within = torch.arange(len(group), device=targets.device) - first[group]
        position = self._starts[targets][group] + within
        if neighbours is not None and bool((degrees > neighbours).any()):
            # Sorting group + random leaves the groups in order and shuffles inside them, so `within` ranks the shuffled edges.
            shuffled = torch.argsort(group + torch.rand(len(group), dtype=torch.float64, device=targets.device))
            position = position[shuffled[within < neighbours]]
        return self._order[position]

    def _by_library(self, seeds: Tensor, neighbours: int, layers: int) -> NodeBatch:
        if (neighbours, layers) not in self._samplers:
            graph = Data(edge_index=self._edge_index, num_nodes=self.nodes)
            self._samplers[neighbours, layers] = NeighborSampler(graph, [neighbours] * layers)
        sampler = self._samplers[neighbours, layers]
        found = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        # the sampler sorts edges by target, and numbers them in that order
        edges = found.edge if sampler.edge_permutation is None else sampler.edge_permutation[found.edge]
        return NodeBatch(found.node, torch.stack((found.row, found.col)), edges, tuple(accumulate(found.num_sampled_nodes)))


class Nodes:
    """A graph with a sampler of its neighbourhoods; ``len`` is the number of nodes.

    Args:
        graph: any PyTorch Geometric graph with node features (see `check_graph`); a data set or a list of such graphs, which
            are joined; or a loader of either kind, whose own sampler, if it has one (``NeighborLoader``), finds the neighbours.
        name: its name in messages.
        measured: whether the classes are used and must be valid.
        tables: from which the graph was read; None for others.

    Attributes:
        tables: as given.
        scaled: whether the features of each node were scaled to the sum 1, as graphs that are embedded later are then, too.

    Raises:
        DataError: it cannot be used for training.
    """

    scaled = False

    def __init__(
        self, graph: Data | Iterable[Data], name: str = "graph", measured: bool = True, tables: NodeTables | None = None
    ) -> None:
        self.tables = tables
        loader = graph if isinstance(graph, NodeLoader) else None
        self.graph = copy.copy(one_graph(graph, name))
        check_graph(self.graph, name)
        self.x = self.graph.x = plain_features(self.graph.x)
        self.edge_index, self.edge_weight = self.graph.edge_index, self.graph.get("edge_weight")
        self.labels = labels_of(self.graph, name) if measured else None
        masks = [self.graph.get(each) for each in _MASKS]
        self.masks = None if any(each is None for each in masks) else masks
        self._own = NodeSampler(self.edge_index, len(self))
        self.sampler: NodeSampler | LoaderSampler = self._own if loader is None else LoaderSampler(loader)

    def __len__(self) -> int:
        return len(self.x)

    def part(self, seeds: Tensor, neighbours: int | None, steps: int) -> Data:
        """Returns the part of the graph that an encoder reads around some nodes, in the form of PyTorch Geometric's loaders.

        Args:
            seeds: [s] positions, each named once; they come first.
            neighbours: number to follow for each node and step; None for all.
            steps: distance from the seeds.

        Returns:
            The attributes of nodes and edges without labels and masks, and ``n_id``, ``batch_size``, ``num_sampled_nodes`` and
            ``num_sampled_edges``.
        """
        batch = (self._own if neighbours is None else self.sampler).around(seeds, neighbours, steps)
        part = Data(edge_index=batch.edge_index, n_id=batch.nodes, batch_size=batch.seeds, num_nodes=len(batch.nodes))
        for name in self.graph.keys():  # noqa: SIM118 (a Data is no dictionary)
            if name in ("edge_index", "y", *_MASKS):
                continue
            if self.graph.is_node_attr(name):
                part[name] = self.graph[name][batch.nodes]
            elif self.graph.is_edge_attr(name):
                part[name] = self.graph[name][batch.edges]
        part.num_sampled_nodes = [batch.seeds, *torch.tensor(batch.reach).diff().tolist()]
        targets = batch.edge_index[1]
        within = [0, *(int((targets < reached).sum()) for reached in batch.reach[:-1])]
        part.num_sampled_edges = torch.tensor(within).diff().tolist()
        return part


class LoaderSampler:
    """Finds neighbours with a loader of PyTorch Geometric.

    Args:
        loader: of all nodes of a graph.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def around(self, seeds: Tensor, neighbours: int | None, layers: int) -> NodeBatch:
        """Returns the batch around seeds [s]; the settings of the loader replace ``neighbours`` and ``layers``."""
        found = self.loader(seeds)
        counts = found.get("num_sampled_nodes") or [len(seeds), found.num_nodes - len(seeds)]
        return NodeBatch(found.n_id, found.edge_index, found.e_id, tuple(accumulate(map(int, counts))))


def one_graph(given: Any, name: str) -> Data:
    """Returns the graph of a ``Data``, a data set, a list or a loader, joining several; raises `DataError` without one."""
    if isinstance(given, NodeLoader):
        given = given.data
    if isinstance(given, torch.utils.data.DataLoader):
        given = given.dataset
    if isinstance(given, Data):
        return given
    graphs = list(given) if isinstance(given, Iterable) else []
    if not graphs or not all(isinstance(each, Data) for each in graphs):
        raise DataError(f"{name} must be a graph (torch_geometric.data.Data), or a data set, list or loader of such graphs.")
    return graphs[0] if len(graphs) == 1 else Batch.from_data_list(graphs)
