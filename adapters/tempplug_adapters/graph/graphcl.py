"""GraphCL's model: a graph encoder, and the projection head that only training uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tempplug_adapters.graph.gin import GINEncoder
from tempplug_adapters.graph.graph_data import GraphBatch

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GraphCL(nn.Module):
    """Turns graphs into embeddings for a contrastive loss; ``encoder`` gives the representations that are evaluated.

    Args:
        features: width of the node features.
        hidden: width of every layer.
        layers: of the encoder; an embedding has layers · hidden numbers.
        encoder: in place of GIN, from graphs to representations [B, ``encoder.width``]; its weights stay as they are.

    Raises:
        ConfigError: a size is less than 1.

    Source: You et al. 2020, figure 1; widths and initial weights (Xavier, no bias) are those of the authors' code.
    """

    def __init__(self, features: int, hidden: int = 32, layers: int = 3, encoder: Any = None) -> None:
        super().__init__()
        self.encoder = GINEncoder(features, hidden, layers) if encoder is None else encoder
        width = layers * hidden
        self.projection_head = nn.Sequential(nn.Linear(self.encoder.width, width), nn.ReLU(), nn.Linear(width, width))
        for module in (self if encoder is None else self.projection_head).modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, graphs: GraphBatch | Data) -> Tensor:
        """Returns the embeddings, [B, layers · hidden]."""
        embeddings: Tensor = self.projection_head(self.encoder(graphs))
        return embeddings
