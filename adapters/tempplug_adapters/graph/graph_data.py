"""Batches of small graphs with the attribute names of PyTorch Geometric; batches are selected without a loop over graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.sparse_sums import RowSums

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs with n nodes and E edges in total.

    Attributes:
        x: [n, F] node features.
        edge_index: [2, E] source and target node of every directed edge.
        batch: [n] the graph of each node, ascending.
        num_graphs: number of graphs, including those without nodes.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    num_graphs: int

    @cached_property
    def neighbours(self) -> RowSums:
        """Returns the row sums over the neighbours of each node, the sources of its incoming edges."""
        return RowSums.from_pairs(self.edge_index[1], self.edge_index[0], len(self.x), len(self.x))

    @cached_property
    def members(self) -> RowSums:
        """Returns the row sums over the nodes of each graph."""
        return RowSums.from_groups(self.batch, self.num_graphs)

    @classmethod
    def of(cls, graphs: Data | GraphBatch) -> GraphBatch:
        """Converts a ``Data`` or ``Batch`` of PyTorch Geometric; graphs without features get a constant feature 1."""
        if isinstance(graphs, GraphBatch):
            return graphs
        nodes: Any = graphs.num_nodes
        edges, of_node = graphs.edge_index, graphs.get("batch")
        x = graphs.x if graphs.x is not None else torch.ones(nodes, 1, device=edges.device)
        of_node = edges.new_zeros(nodes) if of_node is None else of_node
        return cls((x[:, None] if x.ndim == 1 else x).float(), edges, of_node, getattr(graphs, "num_graphs", 1))

    def to(self, device: torch.device) -> GraphBatch:
        """Returns the graphs on a device, or the same object if they are already there."""
        if self.x.device == device:
            return self
        return GraphBatch(self.x.to(device), self.edge_index.to(device), self.batch.to(device), self.num_graphs)


@dataclass(frozen=True)
class GraphSet:
    """A data set of G graphs, one after the other in a few tensors, so that a batch is cut without a loop over graphs.

    Attributes:
        x: [n, F] features of all nodes; a single 1 where the graphs have none, as GraphCL does for social networks.
        edge_index: [2, E] edges, counted from the first node of their graph.
        node_start: [G + 1] where each graph's nodes begin.
        edge_start: [G + 1] where each graph's edges begin.
        labels: [G] class of each graph, -1 where it has none; [G, T] of several labels a graph, 0 or 1 or NaN where one is not
            known; None where there is none.
    """

    x: Tensor
    edge_index: Tensor
    node_start: Tensor
    edge_start: Tensor
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.node_start) - 1

    def batch(self, graphs: Tensor) -> GraphBatch:
        """Returns some of the graphs.

        Args:
            graphs: [B] positions in the data set, in the order wanted.
        """
        nodes = self.node_start[graphs + 1] - self.node_start[graphs]
        edges = self.edge_start[graphs + 1] - self.edge_start[graphs]
        edge_index = self.edge_index[:, ranges(self.edge_start[graphs], edges)]
        first = torch.cumsum(nodes, 0) - nodes
        return GraphBatch(
            x=self.x[ranges(self.node_start[graphs], nodes)],
            edge_index=edge_index + first.repeat_interleave(edges),
            batch=torch.arange(len(graphs)).repeat_interleave(nodes),
            num_graphs=len(graphs),
        )

    def graphs(self) -> list[Data]:
        """Returns each graph separately, as PyTorch Geometric objects."""
        from torch_geometric.data import Data

        nodes, edges = (torch.stack([each[:-1], each[1:]], 1).tolist() for each in (self.node_start, self.edge_start))
        labels = [None] * len(self) if self.labels is None else self.labels if self.labels.ndim == 1 else self.labels[:, None]
        return [
            Data(x=self.x[slice(*own)], edge_index=self.edge_index[:, slice(*between)], y=label)
            for own, between, label in zip(nodes, edges, labels, strict=True)
        ]

    @classmethod
    def from_graphs(cls, graphs: Iterable[Data]) -> GraphSet:
        """Returns a data set from graphs of PyTorch Geometric: a list of ``Data`` or one of its data sets.

        Args:
            graphs: each with ``edge_index`` [2, e] and ``x`` [n, F] or, where no graph has features, ``num_nodes``; ``y``
                is its class where there is one (not where it is -1 or NaN), or T labels [1, T], each 0, 1, or -1 or NaN where
                it is not known; there is a warning of another ``y``, which is not used. Edges may be absent, isolated nodes are
                kept.

        Raises:
            DataError: there is no graph, one has no node or edges between nodes that it does not have, or features or
                labels are there for some graphs only or differ in width.
        """
        parts = [_checked(position, graph) for position, graph in enumerate(graphs)]
        if not parts:
            raise DataError("the data set has no graph.")
        features = [part.x for part in parts if part.x is not None]
        if features and len(features) < len(parts):
            missing = next(position for position, part in enumerate(parts) if part.x is None)
            raise DataError(f"graph {missing} has no node features, but others have: give x to all graphs or to none.")
        if len({each.shape[1] for each in features}) > 1:
            raise DataError(f"graphs have features of different widths: {sorted({each.shape[1] for each in features})}.")
        nodes = torch.tensor([part.nodes for part in parts])
        edges = torch.tensor([part.edge_index.shape[1] for part in parts])
        return cls(
            x=torch.cat(features) if features else torch.ones(int(nodes.sum()), 1),
            edge_index=torch.cat([part.edge_index for part in parts], 1),
            node_start=starts(nodes),
            edge_start=starts(edges),
            labels=_labels([part.label for part in parts]),
        )


@dataclass(frozen=True)
class _Graph:
    nodes: int
    x: Tensor | None
    edge_index: Tensor
    label: Tensor | None


def _checked(position: int, graph: Any) -> _Graph:
    x = graph.x
    if x is None and "num_nodes" not in graph:
        raise DataError(f"graph {position} has neither x nor num_nodes: how many nodes it has is not known.")
    nodes = int(graph.num_nodes)
    if nodes == 0:
        raise DataError(f"graph {position} has no node.")
    if x is not None:
        x = (x[:, None] if x.ndim == 1 else x).float()
        if not bool(torch.isfinite(x).all()):
            raise DataError(f"graph {position} has node features that are not finite.")
    edges = graph.edge_index if graph.edge_index is not None else torch.empty(2, 0, dtype=torch.int64)
    if edges.numel() and not (int(edges.min()) >= 0 and int(edges.max()) < nodes):
        raise DataError(
            f"graph {position} has {nodes} nodes, but edges between nodes {int(edges.min())} to {int(edges.max())}."
        )
    label = None if graph.y is None else torch.as_tensor(graph.y).double()
    label = label.reshape(1, 1) if label is not None and label.numel() == 1 else label
    return _Graph(nodes, x if x is None or x.shape[1] else None, edges, label)


def _labels(given: Sequence[Tensor | None]) -> Tensor | None:
    """Returns the classes or labels of graphs, see `GraphSet`, from the ``y`` of each."""
    shapes = {tuple(each.shape) for each in given if each is not None}
    if not shapes:
        return None
    shape, rows = shapes.pop(), None
    if not shapes and len(shape) == 2 and shape[0] == 1:
        rows = torch.cat([torch.full(shape, torch.nan) if each is None else each for each in given])
    if rows is None or bool((rows.nan_to_num().frac() != 0).any()) or (shape[1] > 1 and bool((rows > 1).any())):
        warnings.warn(
            "y of the graphs is not used, and so they are not classified: it must be a class each, as a whole number from 0, "
            "or labels of 0 and 1 [1, T], as many for every graph; -1 or NaN where it is not known.",
            stacklevel=2,
        )
        return None
    if not bool((rows >= 0).any()):
        return None
    rows[rows.isnan() | (rows < 0)] = -1 if shape[1] == 1 else torch.nan
    return rows[:, 0].long() if shape[1] == 1 else rows.float()


def starts(counts: Tensor) -> Tensor:
    """Returns the start of each run and the end of the last one, [G + 1], given their lengths [G]."""
    return torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Returns the concatenated ranges of positions given by starts and counts."""
    shift = starts - (torch.cumsum(counts, 0) - counts)
    return torch.arange(int(counts.sum())) + shift.repeat_interleave(counts)


def rank(group: Tensor, order: Tensor) -> Tensor:
    """Returns the rank of each member within its group, [n], in the given order."""
    by_group = order[torch.argsort(group[order], stable=True)]
    sizes = torch.bincount(group)
    first = torch.cumsum(sizes, 0) - sizes
    place = torch.empty_like(order)
    place[by_group] = torch.arange(len(order)) - first[group[by_group]]
    return place
