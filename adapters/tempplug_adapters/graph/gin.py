"""The graph isomorphism network of GraphCL: sums over neighbours, and each layer's sum over nodes as part of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug_adapters.graph.graph_data import GraphBatch

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GINEncoder(nn.Module):
    """Turns graphs into representations [B, layers · hidden]; a graph without nodes becomes zero.

    Args:
        features: width of the node features, at least 1.
        hidden: width of every layer, at least 1.
        layers: at least 1.

    Raises:
        ConfigError: a size is less than 1.

    Source: Xu et al. 2019 (GIN), eq. 4.1 with ε = 0; You et al. 2020 normalise after the ReLU and concatenate the sums over
    nodes of all layers.

    >>> graphs = GraphBatch(torch.ones(3, 2), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1]), num_graphs=2)
    >>> GINEncoder(features=2, hidden=4, layers=3)(graphs).shape
    torch.Size([2, 12])
    """

    def __init__(self, features: int, hidden: int = 32, layers: int = 3) -> None:
        super().__init__()
        for name, value in (("features", features), ("hidden", hidden), ("layers", layers)):
            if value < 1:
                raise ConfigError(f"{name}={value} of the encoder must be at least 1.")
        widths = [features, *[hidden] * layers]
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden)) for width in widths[:-1]
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.width = layers * hidden

    def forward(self, graphs: GraphBatch | Data) -> Tensor:
        """Returns the representations, [B, layers · hidden], also of a ``Data`` or ``Batch`` of PyTorch Geometric."""
        graphs = GraphBatch.of(graphs)
        x, pooled = graphs.x, []
        for update, norm in zip(self.updates, self.norms, strict=True):
            x = norm(torch.relu(update(x + graphs.neighbours(x))))
            pooled.append(graphs.members(x))
        return torch.cat(pooled, 1)
