"""A graph of items and LightGCN on it, without learned weights.

Source: He et al. 2020 (LightGCN), as in DCRec's code (Yang et al. 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.utils import degree

from tempplug_adapters.sparse_sums import RowSums, compressed_rows


class ItemGraph:
    """Directed, weighted edges between nodes; propagation adds a loop of weight 1 to each node.

    Args:
        sources: [E], ascending.
        targets: [E].
        weights: [E].
        nodes: number of nodes.

    Attributes:
        starts: [nodes + 1] position of the first edge of each source.
    """

    def __init__(self, sources: Tensor, targets: Tensor, weights: Tensor, nodes: int) -> None:
        self.sources, self.targets, self.weights, self.nodes = sources, targets, weights, nodes
        self.starts = _starts(sources, nodes)
        loops = torch.arange(nodes, device=sources.device)
        self._from, self._to = torch.cat([sources, loops]), torch.cat([targets, loops])
        self._weights = torch.cat([weights, weights.new_ones(nodes)])
        self._patterns = [
            (order := into.argsort(stable=True), _starts(into[order], nodes), out[order])
            for into, out in ((self._to, self._from), (self._from, self._to))
        ]

    def __len__(self) -> int:
        return len(self.sources)

    def to(self, device: torch.device) -> ItemGraph:
        """Returns the graph on a device, or the same object if it is already there."""
        if self.sources.device == device:
            return self
        return ItemGraph(self.sources.to(device), self.targets.to(device), self.weights.to(device), self.nodes)

    def propagation(self, dtype: torch.dtype, removed: Tensor | None = None, dropout: float = 0.0) -> RowSums:
        """Returns one propagation step with edge weights w / √(out-degree of the source · in-degree of the target).

        Args:
            dtype: of the messages.
            removed: [E] which edges to leave out; None for none.
            dropout: share of the edges, loops included, that are drawn with replacement and set to zero; the degrees include
                them.
        """
        there = torch.ones(len(self._from), dtype=torch.bool, device=self._from.device)
        if removed is not None:
            there[: len(self)] = ~removed
        edges = there.nonzero()[:, 0]
        out_degree, in_degree = (degree(ends[edges], self.nodes, dtype) for ends in (self._from, self._to))
        weights = self._weights.to(dtype) * there * (out_degree[self._from] * in_degree[self._to]).rsqrt()
        drawn = torch.randint(len(edges), (int(dropout * len(edges)),), device=edges.device)
        weights[edges[drawn]] = 0

        def matrix(order: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
            return compressed_rows(starts, ends, self.nodes, self.nodes, weights[order])

        forwards, backwards = self._patterns
        return RowSums(matrix(*forwards), lambda: matrix(*backwards))


class GraphEncoder(nn.Module):
    """Propagates embeddings of items over a graph: LN(mean over layers 0 to ``layers`` + embedding).

    Args:
        width: D.
        layers: number of propagation steps.
        dropout: of the input.
        edge_dropout: see `ItemGraph.propagation`.
        edge_dropout_at_evaluation: whether edges are dropped at evaluation, too, as the authors' code does.
    """

    def __init__(
        self, width: int, layers: int = 2, dropout: float = 0.5, edge_dropout: float = 0.5, *, edge_dropout_at_evaluation: bool
    ) -> None:
        super().__init__()
        self.layers, self.edge_dropout, self.edge_dropout_at_evaluation = layers, edge_dropout, edge_dropout_at_evaluation
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(width, 1e-12)

    def forward(self, embeddings: Tensor, graph: ItemGraph, removed: Tensor | None = None) -> Tensor:
        """Returns the output for each node, [n, D].

        Args:
            embeddings: [n, D].
            graph: of n nodes, on their device.
            removed: [E] edges to leave out.
        """
        embeddings = self.dropout(embeddings)
        dropped = self.edge_dropout if self.training or self.edge_dropout_at_evaluation else 0.0
        propagation = graph.propagation(embeddings.dtype, removed, dropped)
        hidden = total = embeddings
        for _ in range(self.layers):
            hidden = propagation(hidden)
            total = total + hidden
        out: Tensor = self.norm(total / (self.layers + 1) + embeddings)
        return out


def _starts(ascending: Tensor, count: int) -> Tensor:
    return torch.searchsorted(ascending, torch.arange(count + 1, device=ascending.device))
