"""Batches of small graphs with the attribute names of PyTorch Geometric; batches are selected without a loop over graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tempplug.errors import DataError, quoted
from tempplug_adapters.graph.classes import class_numbers, signed_classes
from tempplug_adapters.sparse_sums import RowSums, ranges


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs with n nodes and E edges in total.

    Attributes:
        x: [n, F] node features.
        edge_index: [2, E] source and target node of every directed edge.
        batch: [n] the graph of each node, ascending.
        num_graphs: number of graphs, including those without nodes.
        edge_attr: [E, A] edge features, or None.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    num_graphs: int
    edge_attr: Tensor | None = None

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
        x, edge_index, batch = (each.to(device) for each in (self.x, self.edge_index, self.batch))
        return GraphBatch(x, edge_index, batch, self.num_graphs, None if self.edge_attr is None else self.edge_attr.to(device))

    def kept(self, nodes: Tensor, edges: Tensor | None = None) -> GraphBatch:
        """Returns the graphs with only the true ``nodes`` [n] and ``edges`` [E]; None for all edges between these nodes."""
        edges = nodes[self.edge_index].all(0) if edges is None else edges
        edge_index = (nodes.cumsum(0) - 1)[self.edge_index[:, edges]]
        edge_attr = None if self.edge_attr is None else self.edge_attr[edges]
        return GraphBatch(self.x[nodes], edge_index, self.batch[nodes], self.num_graphs, edge_attr)


@dataclass(frozen=True)
class GraphSet:
    """A data set of G graphs in a few tensors, so that a batch is selected without a loop over graphs.

    Attributes:
        x: [n, F] features of all nodes; a constant 1 if the graphs have none, as GraphCL does for social networks.
        edge_index: [2, E] edges, with nodes numbered from 0 in each graph.
        node_start: [G + 1] position of each graph's first node.
        edge_start: [G + 1] position of each graph's first edge.
        labels: [G] class of each graph, -1 for none; [G, T] of several labels a graph, 0, 1 or NaN for unknown; None without
            any.
        edge_attr: [E, A] edge features, or None.
    """

    x: Tensor
    edge_index: Tensor
    node_start: Tensor
    edge_start: Tensor
    labels: Tensor | None
    edge_attr: Tensor | None = None

    def __len__(self) -> int:
        return len(self.node_start) - 1

    def batch(self, graphs: Tensor) -> GraphBatch:
        """Returns the graphs at positions [B]."""
        nodes = self.node_start[graphs + 1] - self.node_start[graphs]
        counts = self.edge_start[graphs + 1] - self.edge_start[graphs]
        edges, first = ranges(self.edge_start[graphs], counts), torch.cumsum(nodes, 0) - nodes
        return GraphBatch(
            x=self.x[ranges(self.node_start[graphs], nodes)],
            edge_index=self.edge_index[:, edges] + first.repeat_interleave(counts),
            batch=torch.arange(len(graphs)).repeat_interleave(nodes),
            num_graphs=len(graphs),
            edge_attr=None if self.edge_attr is None else self.edge_attr[edges],
        )

    def graphs(self) -> list[Data]:
        """Returns each graph separately, as PyTorch Geometric objects."""
        x = torch.split(self.x, self.node_start.diff().tolist())
        edges = torch.split(self.edge_index, self.edge_start.diff().tolist(), 1)
        labels = [None] * len(self) if self.labels is None else self.labels if self.labels.ndim == 1 else self.labels[:, None]
        return [Data(x=own, edge_index=between, y=label) for own, between, label in zip(x, edges, labels, strict=True)]

    @classmethod
    def from_graphs(cls, graphs: Iterable[Data]) -> GraphSet:
        """Returns a data set from graphs of PyTorch Geometric: a list of ``Data`` or one of its data sets.

        Args:
            graphs: each with ``x`` [n, F] or, if no graph has features, ``num_nodes``; optionally ``edge_index`` [2, e] and
                ``y``: a class, a number or a word, or T labels [1, T] of 0 and 1; -1 (but not beside 1 alone), NaN or "" for
                unknown. Another ``y`` is not used, with a warning.

        Raises:
            DataError: there is no graph, a graph has no node or edges to nodes that it does not have, or features are given
                for some graphs only or differ in width.
        """
        parts = [_checked(position, graph) for position, graph in enumerate(graphs)]
        if not parts:
            raise DataError("the data set has no graph.")
        sizes, given, edges, labels = zip(*parts, strict=True)
        if any(isinstance(label, str) for label in labels):
            labels = _numbered(labels)
        features = [x for x in given if x is not None]
        if features and len(features) < len(parts):
            missing = given.index(None)
            raise DataError(f"graph {missing} has no node features, but others have: give x to all graphs or to none.")
        if len(widths := {each.shape[1] for each in features}) > 1:
            raise DataError(f"graphs have features of different widths: {sorted(widths)}.")
        return cls(
            x=torch.cat(features) if features else torch.ones(sum(sizes), 1),
            edge_index=torch.cat(edges, 1),
            node_start=starts(torch.tensor(sizes)),
            edge_start=starts(torch.tensor([each.shape[1] for each in edges])),
            labels=_labels(labels),
        )


def _numbered(labels: Sequence[Tensor | str | None]) -> tuple[Tensor, ...]:
    """Returns the numbers [1, 1] of classes that are words; raises `DataError` if others are numbers."""
    for number, label in enumerate(labels):
        if isinstance(label, Tensor):
            raise DataError(f"graph {number} has a number as y, and others words: use one of both.")
    return tuple(class_numbers([str(label or "") for label in labels], "y of the graphs").view(-1, 1, 1))


def _checked(position: int, graph: Any) -> tuple[int, Tensor | None, Tensor, Tensor | str | None]:
    """Returns the number of nodes, the features, the edges and the label of a graph."""
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
    low, high = (int(edges.min()), int(edges.max())) if edges.numel() else (0, 0)
    if low < 0 or high >= nodes:
        raise DataError(f"graph {position} has {nodes} nodes, but edges between nodes {low} to {high}.")
    word = graph.y[0] if isinstance(graph.y, list) and len(graph.y) == 1 else graph.y
    try:
        label = word if word is None or isinstance(word, str) else torch.as_tensor(graph.y).double()
    except (TypeError, ValueError, RuntimeError) as error:
        fault = f"y={quoted(str(graph.y))}, which is neither a number nor a word"
        raise DataError(f"graph {position} has {fault}: leave y out.") from error
    label = label.reshape(1, 1) if isinstance(label, Tensor) and label.numel() == 1 else label
    return nodes, x if x is None or x.shape[1] else None, edges, label


def _labels(given: Sequence[Tensor | None]) -> Tensor | None:
    """Returns the labels of a `GraphSet`, from the ``y`` of each graph."""
    shapes = {tuple(each.shape) for each in given if each is not None}
    if not shapes:
        return None
    shape, rows = shapes.pop(), None
    if not shapes and len(shape) == 2 and shape[0] == 1:
        rows = torch.cat([torch.full(shape, torch.nan, dtype=torch.float64) if each is None else each for each in given])
        rows = signed_classes(rows, "y of the graphs")
    if rows is None or bool((rows.nan_to_num().frac() != 0).any()) or (shape[1] > 1 and bool((rows > 1).any())):
        labels = "labels of 0 and 1 [1, T], equally many for every graph; -1 or NaN for unknown"
        wanted = f"it must be one class, a whole number from 0, or {labels}"
        warnings.warn(f"y of the graphs is not used in the evaluation: {wanted}.", stacklevel=2)
        return None
    if not bool((rows >= 0).any()):
        return None
    rows[rows.isnan() | (rows < 0)] = -1 if shape[1] == 1 else torch.nan
    return rows[:, 0].long() if shape[1] == 1 else rows.float()


def starts(counts: Tensor) -> Tensor:
    """Returns the starts of consecutive ranges and the end of the last, [G + 1], given their lengths [G]."""
    return torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])


def arrival(graphs: GraphBatch, roots: Tensor, waiting: Tensor) -> Tensor:
    """Returns when a part of each graph that grows from a root along edges reaches each node, [n]; infinite for never.

    With exponential waiting times [n], the part grows by one random neighbour at a time, all being equally likely.
    """
    found = torch.full_like(waiting, torch.inf)
    found[roots] = 0.0
    source, target = graphs.edge_index
    while True:
        beside = torch.full_like(found, torch.inf).scatter_reduce_(0, target, found[source], "amin")
        sooner = torch.minimum(found, beside + waiting)
        if torch.equal(sooner, found):
            return found
        found = sooner


def rank(group: Tensor, order: Tensor) -> Tensor:
    """Returns the rank of each member within its group, [n], in the given order."""
    by_group = order[torch.argsort(group[order], stable=True)]
    sizes = torch.bincount(group)
    first = torch.cumsum(sizes, 0) - sizes
    place = torch.empty_like(order)
    place[by_group] = torch.arange(len(order)) - first[group[by_group]]
    return place


class Graphs:
    """A data set with cached batches, because selecting a batch and creating its sparse patterns takes as long as a step.

    Args:
        graphs: a `GraphSet`; or a data set of PyTorch Geometric, a list of its graphs, or a loader of either. Labels are used
            only by the evaluation.

    Raises:
        DataError: they cannot be used for training.
    """

    def __init__(self, graphs: GraphSet | Iterable[Data]) -> None:
        if isinstance(graphs, torch.utils.data.DataLoader):
            graphs = cast("Iterable[Data]", graphs.dataset)
        if not isinstance(graphs, GraphSet | Iterable) or isinstance(graphs, Data):
            raise DataError(f"graphs must be a data set, a list or a loader of graphs, not {type(graphs).__name__}.")
        self._given = None if isinstance(graphs, GraphSet) else list(graphs)
        self.all = graphs if isinstance(graphs, GraphSet) else GraphSet.from_graphs(self._given or ())
        self._batch = cache(lambda index: self.all.batch(torch.tensor(index)))
        self._pyg_batch = cache(lambda index: Batch.from_data_list([self.each[place] for place in index]))

    def __len__(self) -> int:
        return len(self.all)

    @cached_property
    def each(self) -> list[Data]:
        """All graphs separately with all their attributes; graphs without features get a constant feature 1."""
        graphs = self.all.graphs() if self._given is None else [each.clone() for each in self._given]
        everywhere = set[str].intersection(*(set(graph.keys()) for graph in graphs))
        for graph in graphs:
            for name in {*graph.keys()} - everywhere - {"x", "edge_index"}:
                del graph[name]
            if graph.x is None:
                graph.x = torch.ones(int(graph.num_nodes or 0), 1)
            elif graph.x.ndim == 1:
                graph.x = graph.x[:, None]
            if graph.edge_index is None:
                graph.edge_index = torch.zeros(2, 0, dtype=torch.int64)
        return graphs

    def batch(self, index: Tensor) -> GraphBatch:
        """Returns the graphs at positions [B]; the object is cached."""
        return self._batch(tuple(index.tolist()))

    def pyg_batch(self, index: Tensor) -> Batch:
        """Returns the graphs at positions [B] as a batch of PyTorch Geometric."""
        return self._pyg_batch(tuple(index.tolist()))
