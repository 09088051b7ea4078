"""A graph as GRACE trains on it: its features, its labels, its parts around some nodes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import NodeLoader

from tempplug.errors import DataError
from tempplug_adapters.graph.node_batches import NodeBatch, NodeSampler
from tempplug_adapters.graph.node_data import check_graph, labels_of, plain_features

_MASKS = ("train_mask", "val_mask", "test_mask")


class Nodes:
    """A graph as long as it has nodes, with a sampler of its neighbourhoods.

    Args:
        graph: any PyTorch Geometric graph with node features (see `check_graph`); a data set or a list of such graphs, which
            are taken together; or a loader of either kind, whose own sampler finds neighbours where it has one
            (``NeighborLoader``).
        name: what messages call it.
        measured: whether the classes matter; else they may be anything.

    Raises:
        DataError: it cannot be trained on.
    """

    def __init__(self, graph: Data | Iterable[Data], name: str = "graph", measured: bool = True) -> None:
        loader = graph if isinstance(graph, NodeLoader) else None
        self.graph = copy.copy(one_graph(graph, name))
        check_graph(self.graph, name)
        self.graph.x = plain_features(self.graph.x)
        self.edge_index, self.edge_weight = self.graph.edge_index, self.graph.get("edge_weight")
        self.labels = labels_of(self.graph, name) if measured else None
        masks = [self.graph.get(each) for each in _MASKS]
        self.masks = None if any(each is None for each in masks) else masks
        self._own = NodeSampler(self.edge_index, len(self))
        self.sampler: NodeSampler | LoaderSampler = self._own if loader is None else LoaderSampler(loader)

    def __len__(self) -> int:
        return int(self.graph.x.shape[0])

    @property
    def x(self) -> Tensor:
        """Features of all nodes, [N, F], as they are."""
        features: Tensor = self.graph.x
        return features

    def part(self, seeds: Tensor, neighbours: int | None, steps: int) -> Data:
        """Returns the part of the graph that an encoder reads around some nodes, as PyTorch Geometric's loaders give it.

        Args:
            seeds: [s] positions, each named once; they come first.
            neighbours: followed of each node and step; None for all.
            steps: away from the seeds.

        Returns:
            Every attribute of nodes and edges but labels and masks, ``n_id``, ``batch_size``, ``num_sampled_nodes`` and
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
    """Finds neighbours by a loader of PyTorch Geometric, which decides how many and how far.

    Args:
        loader: of all nodes of a graph.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def around(self, seeds: Tensor, neighbours: int | None, layers: int) -> NodeBatch:
        """Returns the batch around seeds [s]; the loader decides how many neighbours and how far."""
        found = self.loader(seeds)
        counts = found.get("num_sampled_nodes") or [len(seeds), found.num_nodes - len(seeds)]
        return NodeBatch(found.n_id, found.edge_index, found.e_id, tuple(accumulate(map(int, counts))))


def one_graph(given: Any, name: str) -> Data:
    """Returns one graph of what may be one, a data set, a list, or a loader of these; several are put side by side.

    Raises:
        DataError: there is none.
    """
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
