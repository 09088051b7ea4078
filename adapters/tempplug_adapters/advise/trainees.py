"""What ``tempplug advise`` trains: linear heads on fixed embeddings, or all of a static model."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

STEP = 0.014
"""Relative change of a head's row in an early step of Adam: as fast as a small BERT learns at a learning rate of 2e-4."""
STATIC_STEP = 0.0125
"""Step of Adam for a static model, in standard deviations of its weights: half the first rate of a linear decay."""


class Trainee(nn.Module):
    """A small model with the inputs of all pairs. Call it with rows [B] for their views, each [B, D]."""

    @abstractmethod
    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the embeddings of anchors, positives and, if there are any, hard negatives."""

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """Returns the optimizer of the parameters."""

    def copy(self) -> Trainee:
        """Returns a copy with parameters of its own and the same inputs."""
        return copy.deepcopy(self, {id(each): each for each in self.inputs()})

    @abstractmethod
    def inputs(self) -> list[object]:
        """Returns what copies share."""


class Heads(Trainee):
    """Linear heads, first the identity, so that the embeddings are the start.

    Args:
        views: [N, D] embeddings of anchors, positives and hard negatives.
        shared: one head for all views; otherwise one each, as the views have different encoders.
    """

    def __init__(self, views: Sequence[Tensor], shared: bool) -> None:
        super().__init__()
        self.views = [view / view.norm(dim=1).mean().clamp_min(1e-12) for view in views]
        width = min(view.shape[1] for view in views)
        heads = [nn.Linear(view.shape[1], width, bias=False) for view in views[: 1 if shared else len(views)]]
        for head in heads:
            nn.init.eye_(head.weight)
        self.heads = nn.ModuleList(heads)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the views of the rows [B], each [B, D]."""
        return [self.heads[min(place, len(self.heads) - 1)](view[rows]) for place, view in enumerate(self.views)]

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns Adam with a step that is proportional to the size of a row of the head."""
        return torch.optim.Adam(self.parameters(), lr=STEP / math.sqrt(self.views[0].shape[1]))

    def inputs(self) -> list[object]:
        """Returns the embeddings."""
        return [self.views]


class StaticModel(Trainee):
    """A static model: the mean of the vectors of a text's tokens.

    Args:
        tokens: for each view, the token numbers of each text.
        weight: [V, D] vectors; those of the texts' tokens are kept.
    """

    def __init__(self, tokens: Sequence[Sequence[Sequence[int]]], weight: Tensor) -> None:
        super().__init__()
        flat = [torch.tensor(list(chain.from_iterable(view)), dtype=torch.long) for view in tokens]
        used, places = torch.cat(flat).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        lengths = [torch.tensor([len(text) for text in view]) for view in tokens]
        parts = places.split([len(each) for each in flat])
        self.tokens = [(part, length, length.cumsum(0) - length) for part, length in zip(parts, lengths, strict=True)]
        kept = weight[used].float()
        self.scale = float(kept.std())
        self.bag = nn.EmbeddingBag(len(kept), kept.shape[1], _weight=kept, sparse=True)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the views of the rows [B], each [B, D]."""
        views = []
        for tokens, lengths, starts in self.tokens:
            length = lengths[rows]
            first = length.cumsum(0) - length
            position = torch.arange(int(length.sum())) + (starts[rows] - first).repeat_interleave(length)
            views.append(self.bag(tokens[position], first))
        return views

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns Adam for sparse gradients."""
        return torch.optim.SparseAdam(self.parameters(), lr=STATIC_STEP * self.scale)

    def inputs(self) -> list[object]:
        """Returns the tokens."""
        return [self.tokens]
