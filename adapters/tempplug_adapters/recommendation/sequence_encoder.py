"""A transformer over histories of items, like SASRec and BERT4Rec."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug.errors import ShapeError
from tempplug_adapters.own_modules import trial


class _CrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, in the memory of the scores, which is freed at its end.

    With autograd, the table of scores lives until the backward pass, and the heap is fragmented so that it grows by gigabytes.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        table = (states @ items.T).to(states.dtype)
        highest = table.amax(1, keepdim=True)
        own = table.gather(1, targets[:, None]) - highest
        sums = table.sub_(highest).exp_().sum(1, keepdim=True)
        if any(ctx.needs_input_grad):
            # ∂ of the mean over the rows: (softmax − one-hot) / B
            share = table.div_(sums * len(states))
            share.scatter_add_(1, targets[:, None], share.new_full((len(states), 1), -1 / len(states)))
            ctx.save_for_backward((share @ items).to(states.dtype), (share.T @ states).to(items.dtype))
        return (sums.log() - own).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        of_states, of_items = ctx.saved_tensors
        return gradient * of_states, gradient * of_items, None


def cross_entropy(states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean of −ln softmax(states · itemsᵀ) at the targets [B], in nats [], for states [B, D] and items [I, D]."""
    loss: Tensor = _CrossEntropy.apply(states, items, targets)  # type: ignore[no-untyped-call]
    return loss


_DEVIATION = 0.02
# as in the authors' code; too small to change a variance in float32
_EPS = 1e-12


class _Layer(nn.Module):
    """Attention and a perceptron, each with a residual connection and a normalisation after it."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.query, self.key_value, self.merge = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width, _EPS), nn.LayerNorm(width, _EPS)
        self.perceptron = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, known: Tensor, places: Tensor, ends: Tensor | None) -> Tensor:
        """Returns the tokens after the layer, [T, D], or [B, D] of the ends alone.

        Args:
            tokens: [T, D] of all histories, concatenated without padding.
            known: [B, L] which positions are tokens.
            places: [T] positions in the flattened [B, L].
            ends: [B] tokens to compute; None for all.
        """
        asking = tokens if ends is None else tokens[ends]
        key, value = self._padded(self.key_value(tokens), known, places).chunk(2, -1)
        query = self._padded(self.query(tokens), known, places) if ends is None else self._split(self.query(asking)[:, None])
        share = self.attention_dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, known[:, None, None], share)
        flat = seen.transpose(1, 2).reshape(-1, tokens.shape[1])
        merged = self.merge(flat[places] if ends is None else flat)
        hidden = self.attention_norm(self.dropout(merged) + asking)
        out: Tensor = self.perceptron_norm(self.dropout(self.perceptron(hidden)) + hidden)
        return out

    def _padded(self, tokens: Tensor, known: Tensor, places: Tensor) -> Tensor:
        padded = tokens.new_zeros(known.numel(), tokens.shape[1]).index_copy(0, places, tokens)
        return self._split(padded.view(*known.shape, -1))

    def _split(self, rows: Tensor) -> Tensor:
        """Returns [B, L, W] as [B, heads, L, W / heads]."""
        return rows.view(*rows.shape[:-1], self.heads, -1).transpose(1, 2)


class HistoryEncoder(nn.Module):
    """The base of encoders of histories: embeddings of items [I + 1, D], by which the next one is scored."""

    items: nn.Embedding

    def scores(self, states: Tensor) -> Tensor:
        """Returns the scores of all items for each state [B, D], [B, I + 1]; column 0 is padding."""
        return states @ self.items.weight.T

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross-entropy [] of the targets [B] in 1 … I among all items, in nats, for states [B, D]."""
        return cross_entropy(states, self.items.weight[1:], targets - 1)


class OwnEncoder(HistoryEncoder):
    """Encodes histories with a module of the user between embeddings of items.

    Args:
        module: from embeddings [B, L, D] of histories, padded with 0 at the right, to a state for each item, [B, L, D], of
            which the last of a history is used, or for each history, [B, D]; it also gets ``lengths`` [B], if it takes them. Of
            several outputs, as of `torch.nn.GRU`, the first is used.
        items: I.
        width: D.

    Raises:
        ConfigError: it cannot run on two histories of three items.
        ShapeError: it returns another shape, or the state of a history depends on another history.

    >>> OwnEncoder(nn.GRU(8, 8, batch_first=True), 9, 8)(torch.tensor([[3, 4, 0], [7, 0, 0]]), torch.tensor([2, 1])).shape
    torch.Size([2, 8])
    """

    def __init__(self, module: nn.Module, items: int, width: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width, padding_idx=0)
        nn.init.normal_(self.items.weight, std=_DEVIATION)
        with torch.no_grad():
            self.items.weight[0] = 0
        self.module, self._takes_lengths = module, "lengths" in inspect.signature(module.forward).parameters
        histories, lengths = torch.tensor([[1, 1, 1], [items, 0, 0]]), torch.tensor([3, 1])
        both, alone = trial(module, lambda: (self(histories, lengths), self(histories[1:], lengths[1:])), _CONTRACT)
        if not torch.allclose(both[1:], alone, atol=1e-4):
            fault = "mixes the histories of a batch, which come first here (batch_first=True)"
            raise ShapeError(f"encoder {type(module).__name__} {fault}: {_CONTRACT}.")

    def forward(self, histories: Tensor, lengths: Tensor) -> Tensor:
        """Returns the state of each history, [B, D]; an empty history is encoded as one unknown item.

        Args:
            histories: [B, L] items, oldest first, padded with 0 at the right.
            lengths: [B], at most L.
        """
        lengths, options = lengths.clamp(min=1), {}
        if self._takes_lengths:
            options["lengths"] = lengths
        found = self.module(self.items(histories), **options)
        states: Tensor = found[0] if isinstance(found, tuple) else found
        rows, width = len(histories), self.items.embedding_dim
        shape = tuple(states.shape) if isinstance(states, Tensor) else type(states).__name__
        if shape == (rows, *histories.shape[1:], width):
            return states[torch.arange(rows, device=states.device), lengths - 1]
        if shape != (rows, width):
            raise ShapeError(f"encoder {type(self.module).__name__} returned {shape}: {_CONTRACT}.")
        return states


_CONTRACT = (
    "it must take embeddings [B, L, hidden] of histories, padded at the right, and lengths [B] if it names them, and return "
    "states [B, L, hidden] or [B, hidden]"
)


class SequenceEncoder(HistoryEncoder):
    """Encodes histories for the prediction of the next item.

    Attention is bidirectional, because each prefix of a sequence is an example of its own.

    Args:
        items: I.
        max_length: longest history.
        width: D, of items, positions and histories; a multiple of ``heads``.
        inner: width inside a layer's perceptron.
        layers: number of layers.
        heads: of attention.
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
        """Returns the state at the last item of each history, [B, D]; an empty history is encoded as one unknown item.

        Args:
            histories: [B, L] items, oldest first, padded with 0 at the right.
            lengths: [B], at most L.
        """
        positions = torch.arange(histories.shape[1], device=histories.device)
        lengths = lengths.clamp(min=1)
        known = positions < lengths[:, None]
        places = known.flatten().nonzero()[:, 0]
        embedded = self.items(histories.flatten()[places]) + self.positions(places % histories.shape[1])
        tokens: Tensor = self.dropout(self.norm(embedded))
        # of the last layer, only the output for the last item is used
        ends = lengths.cumsum(0) - 1
        for number, layer in enumerate(self.layers, 1):
            tokens = layer(tokens, known, places, ends if number == len(self.layers) else None)
        return tokens
