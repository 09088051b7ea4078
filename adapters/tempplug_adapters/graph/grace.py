"""GRACE: two corrupted views of one graph, an encoder that both go through, and a projection head in front of the loss.

This module must not know the loss, the data sets or the training loop.

Source: Zhu et al. 2020, Deep Graph Contrastive Representation Learning.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug_adapters.graph.gcn import View
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


def corrupted(graph: Data, edge_removal: float, feature_masking: float) -> Data:
    """Returns `corrupt`'s view of a graph written out, with what its edges have, for encoders that know of no views.

    Args:
        graph: with ``x`` [N, F] and ``edge_index`` [2, E].
        edge_removal: probability that an edge is removed, in [0, 1).
        feature_masking: probability that a column is hidden, in [0, 1).
    """
    view = copy.copy(graph)
    view.edge_index, kept = dropout_edge(graph.edge_index, p=edge_removal)
    view.x, _ = mask_feature(graph.x, p=feature_masking, mode="col")
    for name in graph.edge_attrs():
        if name != "edge_index":
            view[name] = graph[name][kept]
    steps = graph.get("num_sampled_edges")
    if steps is not None:
        view.num_sampled_edges = [int(each.sum()) for each in kept.split(steps)]
    return view


class GRACE(nn.Module):
    """The encoder whose representations are kept, and the projection head that only the loss sees.

    Args:
        encoder: a `GCN`; or a module from a graph to representations [N, width], such as an `OwnEncoder`.
        width: of the representations.
        projection: width inside the projection head.
        embedding: width of what the loss sees; None for that of the representations.

    >>> from tempplug_adapters.graph.gcn import GCN
    >>> graph = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> views = [corrupt(graph, 3, 0.3, 0.3) for _ in range(2)]
    >>> view_a, view_b = GRACE(GCN(3))(views, NodeFeatures(torch.eye(3)))
    >>> view_a.shape
    torch.Size([3, 32])
    """

    def __init__(self, encoder: nn.Module, width: int = 32, projection: int = 32, embedding: int | None = None) -> None:
        super().__init__()
        self.encoder: Any = encoder
        outwards = width if embedding is None else embedding
        self.projection_head = nn.Sequential(nn.Linear(width, projection), nn.ELU(), nn.Linear(projection, outwards))

    def forward(
        self,
        views: Sequence[View | Data],
        features: NodeFeatures | None = None,
        nodes: Tensor | None = None,
        first: int | None = None,
    ) -> list[Tensor]:
        """Returns the embeddings of each view, for the loss, [N, embedding].

        Args:
            views: of one graph. A `View` needs a `GCN` and features; a ``Data`` has them with it.
            features: see `GCN.of_views`.
            nodes: see there.
            first: how many nodes to embed; None for all.
        """
        hidden = self.encoder.of_views(features, views, nodes) if features is not None else map(self.encoder, views)
        return [self.projection_head(each[:first]) for each in hidden]
