"""GRACE: two corrupted views of one graph, an encoder that both go through, and a projection head in front of the loss.

This module must not know the loss, the data sets or the training loop.

Source: Zhu et al. 2020, Deep Graph Contrastive Representation Learning.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug_adapters.graph.gcn import GCN, View
from tempplug_adapters.graph.node_features import NodeFeatures


def corrupt(
    edge_index: Tensor, columns: int, edge_removal: float, feature_masking: float, edge_weight: Tensor | None = None
) -> View:
    """Returns a view that lacks random edges, each direction by itself, and random columns of the features, for all nodes.

    Args:
        edge_index: [2, E].
        columns: F, the number of features.
        edge_removal: probability that an edge is removed, in [0, 1).
        feature_masking: probability that a column is hidden, in [0, 1).
        edge_weight: [E], which the edges keep; None for 1.
    """
    kept_edges, kept = dropout_edge(edge_index, p=edge_removal)
    shown, _ = mask_feature(torch.ones(1, columns, device=edge_index.device), p=feature_masking, mode="col")
    return View(kept_edges, shown[0], None if edge_weight is None else edge_weight[kept])


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
        self.projection_head = projection_head(hidden, projection, hidden)

    def forward(
        self, features: NodeFeatures, views: Sequence[View], nodes: Tensor | None = None, first: int | None = None
    ) -> list[Tensor]:
        """Returns the embeddings of each view, for the loss, [N, hidden].

        Args:
            features: see `GCN.of_views`.
            views: see there.
            nodes: see there.
            first: how many nodes to embed; None for all.
        """
        return [self.projection_head(hidden[:first]) for hidden in self.encoder.of_views(features, views, nodes)]


def projection_head(width: int, projection: int, embedding: int) -> nn.Sequential:
    """Returns GRACE's projection head.

    Args:
        width: of the representations.
        projection: width inside.
        embedding: width of what the loss sees.
    """
    return nn.Sequential(nn.Linear(width, projection), nn.ELU(), nn.Linear(projection, embedding))
