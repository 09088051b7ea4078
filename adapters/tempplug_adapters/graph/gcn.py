"""The GCN of GRACE (Kipf and Welling 2017), computed for several views of one graph at once, and the node features.

A view hides columns of the features: X·diag(m)·W = X·(diag(m)·W), so that all views share the product with the unchanged X. For
sampled nodes, each layer computes only the nodes that the next one needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from tempplug_adapters.sparse_sums import RowSums

_ACTIVATIONS = {"relu": nn.ReLU, "prelu": nn.PReLU, "elu": nn.ELU}
_AT_ONCE = 2**14  # block size in nodes for computations without gradients
# Costs measured on CiteSeer (0.9 % nonzeros), in multiplications of a dense product: of a nonzero in a sparse product, and of
# a number that is summed over edges.
_NONZERO_COST = 4
_EDGE_COST = 20


class NodeFeatures:
    """The features of all nodes, which no training step changes, with the cheapest way to multiply them by weights.

    Args:
        x: [N, F].
    """

    def __init__(self, x: Tensor) -> None:
        self.dense = (x if x.layout == torch.strided else x.to_dense()).float()
        self.nodes, self.columns = self.dense.shape
        self._nonzeros = int(torch.count_nonzero(self.dense))
        self._sparse: RowSums | None = None
        self._elsewhere: dict[torch.device, NodeFeatures] = {}
        if self._sparse_is_quicker(self.nodes):
            rows, columns = self.dense.nonzero(as_tuple=True)
            self._sparse = RowSums.from_pairs(rows, columns, self.nodes, self.columns, self.dense[rows, columns])

    def to(self, device: torch.device) -> NodeFeatures:
        """Returns the features on a device; they are copied to it once."""
        if self.dense.device == device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = NodeFeatures(self.dense.to(device))
        return self._elsewhere[device]

    def rows(self, nodes: Tensor | None = None) -> Tensor:
        """Returns the features of ``nodes`` [n, F], by default of all."""
        return self.dense if nodes is None else self.dense[nodes]

    def product(self, weight: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Returns x·weightᵀ [N, O] for a weight [O, F], or its rows of ``nodes`` [n]."""
        # All rows of a sparse product can cost less than some rows of a dense one.
        if self._sparse is not None and self._sparse_is_quicker(self.nodes if nodes is None else len(nodes)):
            product = self._sparse(weight.T.contiguous())
            return product if nodes is None else product[nodes]
        return self.rows(nodes) @ weight.T

    def _sparse_is_quicker(self, wanted: int) -> bool:
        return _NONZERO_COST * self._nonzeros < wanted * self.columns

    def sums_first(self, wanted: int, results: int, edges: int, width: int) -> bool:
        """Returns whether summing the features of neighbours before the product costs less than summing products [width]."""
        sparse = self._sparse is not None and self._sparse_is_quicker(wanted)
        products = (_NONZERO_COST * self._nonzeros if sparse else wanted * self.columns) * width
        # Features are constant: their sums need no gradient, unlike those of products.
        return _EDGE_COST * edges * self.columns + results * self.columns * width < products + 2 * _EDGE_COST * edges * width


@dataclass(frozen=True)
class View:
    """A corrupted graph: the remaining edges and the visible columns of the features.

    Attributes:
        edge_index: [2, E].
        columns: [F], 1 for a visible and 0 for a hidden column; None if all are visible.
        edge_weight: [E], 0 or more; None for 1.
        reach: number of nodes within 0, 1, 2, … steps of the nodes to contrast, which also gives the order of the nodes; empty
            if every layer computes all nodes.
    """

    edge_index: Tensor
    columns: Tensor | None = None
    edge_weight: Tensor | None = None
    reach: tuple[int, ...] = ()

    def to(self, device: torch.device) -> View:
        """Returns the view on a device."""
        columns, weight = (None if each is None else each.to(device) for each in (self.columns, self.edge_weight))
        return View(self.edge_index.to(device), columns, weight, self.reach)


class GCN(nn.Module):
    """Graph convolutions, each followed by the activation.

    Args:
        in_features: F.
        hidden: width of every layer, at least 1.
        layers: how many, at least 1.
        activation: one of relu, prelu, elu.

    >>> GCN(3)(torch.eye(3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
    torch.Size([3, 32])
    """

    def __init__(self, in_features: int, hidden: int = 32, layers: int = 2, activation: str = "relu") -> None:
        super().__init__()
        # Edge weights are computed once per view, not once per layer.
        widths = [in_features] + [hidden] * (layers - 1)
        self.layers = nn.ModuleList(GCNConv(width, hidden, normalize=False) for width in widths)
        self.activation = _ACTIVATIONS[activation]()

    def forward(self, x: Tensor | Data, edge_index: Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """Returns the representations [N, hidden] of any graph.

        Args:
            x: [N, F] features; or a ``Data`` or ``Batch`` of PyTorch Geometric, whose ``edge_weight`` is used if it has one.
            edge_index: [2, E]; None with a graph.
            edge_weight: [E], 0 or more; None for 1.
        """
        if not isinstance(x, Tensor):
            x, edge_index, edge_weight = x.x, x.edge_index, x.get("edge_weight")
        hidden = (x if x.layout == torch.strided else x.to_dense()).float()
        edges, weights = gcn_norm(edge_index, edge_weight, len(hidden), dtype=hidden.dtype)
        for layer in self.layers:
            hidden = self.activation(layer(hidden, edges, weights))
        return hidden

    def of_views(self, features: NodeFeatures, views: Sequence[View], nodes: Tensor | None = None) -> list[Tensor]:
        """Returns the representations of each view: of all its nodes [N, hidden], or of the nodes to contrast.

        Args:
            features: of the nodes of the whole graph.
            views: at least one.
            nodes: [n] positions of the nodes that the views number from 0 to n - 1; None if views contain all nodes.
        """
        first: Any = self.layers[0]
        count = features.nodes if nodes is None else len(nodes)
        sums = [self._sums(view, count) for view in views]
        seen = [first.lin.weight if view.columns is None else first.lin.weight * view.columns for view in views]
        height, width = sums[0][0].pattern.shape
        read = None if nodes is None else nodes[:width]
        if features.sums_first(width, height, len(sums[0][0].pattern.values()), len(first.bias)):
            rows = features.rows(read)
            found = [own[0](rows) @ weight.T for own, weight in zip(sums, seen, strict=True)]
        else:
            products = features.product(torch.cat(seen), read).chunk(len(views), dim=1)
            found = [own[0](product) for own, product in zip(sums, products, strict=True)]
        layers: Any = self.layers
        for place, layer in enumerate(layers):
            if place:
                found = [own[place](layer.lin(hidden)) for own, hidden in zip(sums, found, strict=True)]
            found = [self.activation(hidden + layer.bias) for hidden in found]
        return found

    @torch.no_grad()
    def of_graph(self, features: NodeFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Returns the representations of all nodes [N, hidden] without gradients, computed in blocks of nodes.

        Args:
            features: of the nodes.
            edge_index: [2, E].
            edge_weight: [E], 0 or more; None for 1.
        """
        (sums, *_) = self._sums(View(edge_index, None, edge_weight), features.nodes)
        edges, hidden = len(sums.pattern.values()), features.dense
        layers: Any = self.layers
        for place, layer in enumerate(layers):
            weight, first = layer.lin.weight, place == 0
            multiplied = first and not features.sums_first(features.nodes, features.nodes, edges, len(weight))
            hidden = features.product(weight) if multiplied else hidden
            found = hidden.new_empty(features.nodes, len(weight))
            for part, into in zip(sums.parts(_AT_ONCE), torch.split(found, _AT_ONCE), strict=True):
                summed = part @ hidden
                into.copy_(self.activation((summed if multiplied else summed @ weight.T) + layer.bias))
            hidden = found
        return hidden

    def _sums(self, view: View, nodes: int) -> list[RowSums]:
        """Returns the weighted sums over neighbours for each layer and the nodes that it computes."""
        edges, weights = gcn_norm(view.edge_index, view.edge_weight, nodes, dtype=torch.float32)
        source, target = edges
        layers = len(self.layers)
        if not view.reach:
            return [RowSums.from_pairs(target, source, nodes, nodes, weights)] * layers
        sums = []
        for width, height in pairwise(view.reach[min(step, len(view.reach) - 1)] for step in range(layers, -1, -1)):
            wanted = target < height
            source, target, weights = source[wanted], target[wanted], weights[wanted]
            sums.append(RowSums.from_pairs(target, source, height, width, weights))
        return sums
