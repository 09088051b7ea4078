"""Graphs of items: which items follow each other in histories, and which have the same users.

Source: DCRec (Yang et al. 2023, section 3.1); details that the paper does not give are those of the authors' code.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from tempplug_adapters.recommendation.graph_encoder import ItemGraph
from tempplug_adapters.recommendation.interactions import Interactions, Ranges
from tempplug_adapters.sparse_sums import ranges

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
