"""Graphs of items, by which items follow each other in histories and which have the same users, and LightGCN on them.

LightGCN (He et al. 2020) has no weights to learn. Source of the graphs: DCRec (Yang et al. 2023, section 3.1), whose code gives
the details that the paper lacks.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch_geometric.utils import degree

from tempplug_adapters.recommendation.interactions import Interactions, Ranges
from tempplug_adapters.sparse_sums import RowSums, compressed_rows, ranges


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


_ROWS = 1024  # of similarities at a time
SLICE = 256
"""Slice size of the authors' code."""


class ItemGraphs:
    """The two graphs of a data set, built once for the histories of each split.

    Args:
        data: the items are the nodes; node 0 has no edges to others.
        similarity_graph: ``fixed``, or ``faithful`` to the authors' code, see `similarity_edges`.
        similar_items: neighbours of an item in the similarity graph.
    """

    def __init__(self, data: Interactions, similarity_graph: str = "fixed", similar_items: int = 4) -> None:
        self._data, self._faithful, self._similar_items = data, similarity_graph == "faithful", similar_items
        self.of = cache(self._of)

    def _of(self, split: str) -> tuple[ItemGraph, ItemGraph]:
        """Returns the co-interaction graph and the similarity graph for ``train``, ``validation`` or ``test``."""
        histories, nodes = self._data.histories(split), self._data.item_count + 1
        similar = similarity_edges(self._data.items, histories, nodes, self._similar_items, faithful=self._faithful)
        return co_interaction_graph(self._data.items, histories, nodes), _graph(*similar, nodes)


class OwnEdges:
    """The edges of the co-interaction graph in the histories of some users.

    Args:
        graph: of the histories.
        items: [n] of all users.
        histories: of every user, in their order.
    """

    def __init__(self, graph: ItemGraph, items: NDArray[np.int64], histories: Ranges) -> None:
        self._keys = graph.sources * graph.nodes + graph.targets
        self._nodes = graph.nodes
        self._items = torch.from_numpy(items)
        self._starts = torch.from_numpy(histories.starts)
        self._pairs = torch.from_numpy(np.maximum(histories.ends - histories.starts - 1, 0))

    def __call__(self, users: Tensor) -> Tensor:
        """Returns which edges occur in the users' [B] histories, in either direction, [E] boolean."""
        users = torch.unique(users)
        places = ranges(self._starts[users], self._pairs[users])
        one, other = self._items[places], self._items[places + 1]
        one, other = one[one != other], other[one != other]  # repeated items add no edge
        keys = torch.cat([one * self._nodes + other, other * self._nodes + one])
        own = torch.zeros(len(self._keys), dtype=torch.bool)
        own[torch.searchsorted(self._keys, keys)] = True
        return own


def co_interaction_graph(items: NDArray[np.int64], histories: Ranges, nodes: int) -> ItemGraph:
    """Returns the graph with edges in both directions between items that follow each other in a history.

    The weights are D^(-1/2) A D^(-1/2), where A holds twice the number of occurrences (the authors' code counts each pair from
    both ends), and 1 on the diagonal. Items [n] of all users are below ``nodes``.
    """
    places, _ = Ranges(histories.users, histories.starts, np.maximum(histories.ends - 1, histories.starts)).places()
    one, other = items[places], items[places + 1]
    one, other = one[one != other], other[one != other]
    counts = sparse.coo_array((np.full(len(one), 2.0), (one, other)), (nodes, nodes))
    together = (counts + counts.T + sparse.eye_array(nodes)).tocoo()
    scale = np.asarray(together.sum(1)) ** -0.5
    rows, columns = (each.astype(np.int64) for each in together.coords)
    return _graph(rows, columns, together.data * scale[rows] * scale[columns], nodes)


def similarity_edges(
    items: NDArray[np.int64], histories: Ranges, nodes: int, similar_items: int, *, faithful: bool = False, block: int = SLICE
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns edges from each item to itself and the most similar others, weighted by similarities scaled to the sum 1.

    The similarity is the cosine between the users of two items. Among equal ones, the item itself comes first, then the lower
    number; an item in no history has no edges. (The authors' code adds items without common users, with weight 0, and breaks
    ties as NumPy does.)

    Args:
        items: [n] of all users.
        histories: ranges of them.
        nodes: number of nodes.
        similar_items: k; including itself an item has k + 1.
        faithful: with the fault of the authors' code, by which most items get the neighbours of another item: see `cut_rows`.
        block: slice size.
    """
    places, owner = histories.places()
    taken = sparse.coo_array((np.ones(len(places)), (owner, items[places])), (max(1, len(histories)), nodes)).tocsc()
    norms = np.sqrt(np.asarray(taken.multiply(taken).sum(0)))
    unit = (taken @ sparse.diags_array(1 / np.maximum(norms, 1))).tocsc()
    wanted = cut_rows(nodes, block) if faithful else np.arange(nodes)
    found = []
    for first in range(0, len(wanted), _ROWS):
        own = wanted[first : first + _ROWS]
        alike = (unit[:, own].T @ unit).tocoo()
        rows, columns = (each.astype(np.int64) for each in alike.coords)
        # rounded, so that equal ones are equal
        order = np.lexsort((columns, columns != own[rows], -alike.data.round(9), rows))
        rows, columns, values = rows[order], columns[order], alike.data[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        kept = place <= similar_items
        found.append((rows[kept] + first, columns[kept], values[kept]))
    rows, columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, columns, values / np.bincount(rows, values, minlength=1)[rows]


def cut_rows(count: int, block: int = SLICE) -> NDArray[np.int64]:
    """Returns the rows whose similarities the authors' code uses for items 0, 1, 2, …; there are fewer rows than items.

    In each turn it skips as many rows as it has passed in total: slices of ``block`` rows start at 0, 1, 3, 6, … times
    ``block``.

    >>> cut_rows(9, 2)
    array([0, 1, 2, 3, 6, 7, 8])
    """
    found, offset, cut = [], 0, 0
    while cut < count - offset:
        offset += cut
        found.append(np.arange(offset, min(offset + block, count)))
        cut += block
    found.append(np.arange(offset + block, count))
    return np.concatenate(found)


def _graph(rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float64], nodes: int) -> ItemGraph:
    order = np.lexsort((columns, rows))
    sources, targets, weights = (torch.from_numpy(part[order]) for part in (rows, columns, values))
    return ItemGraph(sources.long(), targets.long(), weights, nodes)
