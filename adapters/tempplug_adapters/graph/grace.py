"""GRACE: two corrupted views of one graph, a GCN that both go through, and a projection head in front of the loss.

The first layer is where graphs with wide, sparse features spend their time, so it is told what it needs to know: a view hides
whole columns of the features, X·diag(m), and X·diag(m)·W = X·(diag(m)·W), so that only the small W is written anew for a view
and both views share one product with an X that stays as it is. This module must not know the loss, the data sets or the
training loop.

Source: Zhu et al. 2020, Deep Graph Contrastive Representation Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug.errors import ConfigError

_ACTIVATIONS = {"relu": nn.ReLU, "prelu": nn.PReLU, "elu": nn.ELU}
# A nonzero costs a sparse product about as much as four numbers cost a dense one (CiteSeer, 0.9 % nonzeros: 30 times as quick).
_NONZERO_COST = 4


@dataclass(frozen=True)
class View:
    """A corrupted graph: which edges are left, and which columns of the features.

    Attributes:
        edge_index: [2, E].
        columns: [F], 1 for a column that is seen and 0 for a hidden one; None where all are seen.
    """

    edge_index: Tensor
    columns: Tensor | None = None

    def to(self, device: torch.device) -> View:
        """Returns the view on a device."""
        return View(self.edge_index.to(device), None if self.columns is None else self.columns.to(device))


def corrupt(edge_index: Tensor, columns: int, edge_removal: float, feature_masking: float) -> View:
    """Returns a view that lacks random edges, each direction by itself, and random columns of the features, for all nodes.

    Args:
        edge_index: [2, E].
        columns: F, the number of features.
        edge_removal: probability that an edge is removed, in [0, 1).
        feature_masking: probability that a column is hidden, in [0, 1).
    """
    kept_edges, _ = dropout_edge(edge_index, p=edge_removal)
    shown, _ = mask_feature(torch.ones(1, columns, device=edge_index.device), p=feature_masking, mode="col")
    return View(kept_edges, shown[0])


class _SparseProduct(torch.autograd.Function):
    """weight [O, F] → X · weightᵀ for a constant sparse X, given in both orders, since the gradient needs Xᵀ."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return features @ weight.T.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (ctx.transposed @ gradient.contiguous()).T, None, None


class NodeFeatures:
    """The features of all nodes, which no training step changes.

    Args:
        x: [N, F].
    """

    def __init__(self, x: Tensor) -> None:
        self.dense = x if x.layout == torch.strided else x.to_dense()
        self.nodes, self.columns = self.dense.shape
        self._nonzeros = int(torch.count_nonzero(self.dense))
        self._sparse: tuple[Tensor, Tensor] | None = None
        self._elsewhere: dict[torch.device, NodeFeatures] = {}
        if self._sparse_is_quicker(self.nodes):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
                self._sparse = self.dense.to_sparse_csr(), self.dense.T.contiguous().to_sparse_csr()

    def to(self, device: torch.device) -> NodeFeatures:
        """Returns the features on a device; they are brought to it once."""
        if self.dense.device == device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = NodeFeatures(self.dense.to(device))
        return self._elsewhere[device]

    def product(self, weight: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Returns x·weightᵀ, [N, O], or its rows of ``nodes``.

        Args:
            weight: [O, F].
            nodes: [n] positions; None for all.
        """
        wanted = self.nodes if nodes is None else len(nodes)
        # For some nodes, too, all rows of a sparse product may be had for less than some rows of a dense one.
        if self._sparse is not None and self._sparse_is_quicker(wanted):
            product: Tensor = _SparseProduct.apply(weight, *self._sparse)  # type: ignore[no-untyped-call]
            return product if nodes is None else product[nodes]
        return (self.dense if nodes is None else self.dense[nodes]) @ weight.T

    def _sparse_is_quicker(self, wanted: int) -> bool:
        return _NONZERO_COST * self._nonzeros < wanted * self.columns


class GCN(nn.Module):
    """Graph convolutions, each followed by the activation, that take several views at once.

    Args:
        in_features: F.
        hidden: width of every layer, at least 1.
        layers: how many, at least 1.
        activation: one of relu, prelu, elu.

    Raises:
        ConfigError: the activation is not known.
    """

    def __init__(self, in_features: int, hidden: int = 32, layers: int = 2, activation: str = "relu") -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise ConfigError(f"activation='{activation}' must be one of {', '.join(_ACTIVATIONS)}.")
        # The weights of the edges are worked out once a view here, not once a layer.
        widths = [in_features] + [hidden] * (layers - 1)
        self.layers = nn.ModuleList(GCNConv(width, hidden, normalize=False) for width in widths)
        self.activation = _ACTIVATIONS[activation]()

    def forward(self, features: NodeFeatures, views: Sequence[View], nodes: Tensor | None = None) -> list[Tensor]:
        """Returns the representations [N, hidden] of each view.

        Args:
            features: of the nodes of the whole graph.
            views: at least one.
            nodes: [n] positions of the nodes that the views number 0 to n - 1; None where they number all.
        """
        first: Any = self.layers[0]
        weight = first.lin.weight
        seen = [weight if view.columns is None else weight * view.columns for view in views]
        products = features.product(torch.cat(seen), nodes).chunk(len(views), dim=1)
        found = []
        for view, product in zip(views, products, strict=True):
            edges, edge_weight = gcn_norm(view.edge_index, None, len(product), dtype=product.dtype)
            hidden = self.activation(first.propagate(edges, x=product, edge_weight=edge_weight) + first.bias)
            for layer in list(self.layers)[1:]:
                hidden = self.activation(layer(hidden, edges, edge_weight))
            found.append(hidden)
        return found


class GRACE(nn.Module):
    """The encoder whose representations are kept, and the projection head that only the loss sees.

    Args:
        in_features: F, the number of node features.
        hidden: width of the representations.
        projection: width of the embeddings.
        layers: graph convolutions of the encoder.
        activation: of the encoder, one of relu, prelu, elu.

    >>> graph = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> features = NodeFeatures(torch.eye(3))
    >>> view_a, view_b = GRACE(3)(features, [corrupt(graph, 3, 0.3, 0.3) for _ in range(2)])
    >>> view_a.shape
    torch.Size([3, 32])
    """

    def __init__(
        self, in_features: int, hidden: int = 32, projection: int = 32, layers: int = 2, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.encoder = GCN(in_features, hidden, layers, activation)
        self.projection_head = nn.Sequential(nn.Linear(hidden, projection), nn.ELU(), nn.Linear(projection, hidden))

    def forward(
        self, features: NodeFeatures, views: Sequence[View], nodes: Tensor | None = None, first: int | None = None
    ) -> list[Tensor]:
        """Returns the embeddings of each view, for the loss, [N, hidden].

        Args:
            features: see `GCN.forward`.
            views: see there.
            nodes: see there.
            first: how many nodes to embed; None for all.
        """
        return [self.projection_head(hidden[:first]) for hidden in self.encoder(features, views, nodes)]

    @torch.no_grad()
    def representations(self, features: NodeFeatures, edge_index: Tensor) -> Tensor:
        """Returns the representations of all nodes of the graph as it is, [N, hidden]."""
        return self.encoder(features, [View(edge_index)])[0]  # type: ignore[no-any-return]
