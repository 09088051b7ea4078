"""A sigmoid loss with a learned bias, as a third party writes it: an objective with a pair function, and its map."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from tempplug import LogitMap, Objective, RowStatistics
from tempplug.errors import ConfigError
from tempplug.pair_functions import Softplus
from tempplug.strategies.maps import ScaleMap
from tempplug.types import Auxiliary


class Shifted(LogitMap):
    """l = scale · s + bias, both learned."""

    def __init__(self, scale: Tensor, bias: Tensor) -> None:
        self.scale, self.bias = scale, bias

    def logit(self, similarity: Tensor) -> Tensor:
        return self.scale * similarity + self.bias

    def slope(self, similarity: Tensor) -> Tensor:
        return self.scale.detach().expand_as(similarity)

    def temperature(self, similarity: Tensor) -> Tensor:
        return self.scale.detach().reciprocal().expand_as(similarity)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(each for each in (self.scale, self.bias) if each.requires_grad)

    def detached(self) -> LogitMap:
        return Shifted(self.scale.detach(), self.bias.detach())


class Sigmoid(Objective):
    """Σ over negatives softplus(l) + Σ over positives softplus(-l), l with a learned bias."""

    name: ClassVar[str] = "sigmoid"
    several_positives = True
    without_negatives = True
    pair_function = Softplus()

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor(-1.5, dtype=torch.float64))

    def first_map(self, logit_map: LogitMap) -> LogitMap:
        if not isinstance(logit_map, ScaleMap):
            raise ConfigError("objective 'sigmoid' needs one scale: use it with strategy 'learnable'.")
        return Shifted(logit_map.scale, self.offset)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        # softplus(-l) = softplus(l) - l
        positive = statistics.positive_lse - statistics.positive_count * statistics.positive_logit
        return statistics.negative_lse + positive
