"""A transformer over histories of items, in the manner of SASRec and BERT4Rec. It must not know losses, graphs or data sets."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_DEVIATION = 0.02
# as in the authors' code; float32 cannot tell it from 0 beside any variance that occurs
_EPS = 1e-12


class _Layer(nn.Module):
    """Attention and a perceptron, each added to its input and normalised after that."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.query_key_value, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width, _EPS), nn.LayerNorm(width, _EPS)
        self.perceptron = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, known: Tensor) -> Tensor:
        size, length, width = hidden.shape
        parts = self.query_key_value(hidden).view(size, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        share = self.attention_dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, known[:, None, None], share)
        merged = self.merge(seen.transpose(1, 2).reshape(size, length, width))
        hidden = self.attention_norm(self.dropout(merged) + hidden)
        out: Tensor = self.perceptron_norm(self.dropout(self.perceptron(hidden)) + hidden)
        return out


class SequenceEncoder(nn.Module):
    """Histories to what comes next.

    Attention goes both ways: a history is encoded for its end alone, and every prefix of it is a history of its own.

    Args:
        items: I.
        max_length: longest history.
        width: D, of items, positions and histories.
        inner: of a layer's perceptron.
        layers: how many.
        heads: of attention; the width must be a multiple.
        dropout: of hidden states.
        attention_dropout: of attention.

    Source: Kang & McAuley 2018 (SASRec); the settings and the missing causal mask are DCRec's (Yang et al. 2023, code).

    >>> SequenceEncoder(9, 5)(torch.tensor([[3, 4, 0], [7, 0, 0]]), torch.tensor([2, 1])).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        items: int,
        max_length: int,
        width: int = 64,
        inner: int = 256,
        layers: int = 2,
        heads: int = 2,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width, padding_idx=0)
        self.positions = nn.Embedding(max_length, width)
        self.norm, self.dropout = nn.LayerNorm(width, _EPS), nn.Dropout(dropout)
        self.layers = nn.ModuleList(_Layer(width, inner, heads, dropout, attention_dropout) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_DEVIATION)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.items.weight[0] = 0

    def forward(self, histories: Tensor, lengths: Tensor) -> Tensor:
        """Returns the state at the last item of each history, [B, D]; an empty one is a single item that nobody knows.

        Args:
            histories: [B, L] items, oldest first, padded with 0 at the right.
            lengths: [B], at most L.
        """
        places = torch.arange(histories.shape[1], device=histories.device)
        lengths = lengths.clamp(min=1)
        hidden: Tensor = self.dropout(self.norm(self.items(histories) + self.positions(places)))
        for layer in self.layers:
            hidden = layer(hidden, places < lengths[:, None])
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]

    def scores(self, states: Tensor) -> Tensor:
        """Returns how well each item goes with each state, [B, I + 1]; column 0 stands for none.

        Args:
            states: [B, D].
        """
        return states @ self.items.weight.T

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross-entropy of the targets among all items, in nats, [].

        Args:
            states: [B, D].
            targets: [B] in 1 … I.
        """
        return functional.cross_entropy(states @ self.items.weight[1:].T, targets - 1)
