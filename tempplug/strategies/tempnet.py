"""TempNet: a small network that chooses the temperature of each row from its embedding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.averages import PerView
from tempplug.options import Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch

SHARPNESS = 0.01
"""κ before the first step."""


@dataclass(eq=False, repr=False)
class TempNet(Strategy):
    """Divides row i by τ_i, the output of a network for its embedding; no gradient flows to the embedding this way.

    τ = τmin + (τmax - τmin)·σ(w·[(softmax(p/κ) - 1/M)·σ(p)] + c), with p the products of σ(Wx + b) and M unit prototypes. All
    is learned, without weight decay, from the gradient of the objective. With ``sogclr:rho=8,gamma=0.8`` that is the one of
    the network's own loss in the paper; other objectives train it as they train a learned scalar.

    Args:
        dimension: D of the embeddings; others raise `ShapeError` at a call.
        temperature_min: τmin, from 1e-9 to 1e9.
        temperature_max: τmax, at least ``temperature_min``.
        prototypes: M, at least 1.
        per_view: whether the anchors of view_b have a network of their own, as texts do in the paper.

    Source: Qiu et al. 2024, section 4, for images and texts. Left out here: in training the released code drops half of
    σ(Wx + b), and it may start the prototypes at embeddings of the data.
    """

    name: ClassVar[str] = "tempnet"
    formula: ClassVar[str] = (
        "l_ij = s_ij / τ_i, τ_i = τmin + (τmax - τmin)·σ(w·[(softmax(p/κ) - 1/M)·σ(p)] + c), p learned of row i"
    )
    source: ClassVar[str] = "Qiu et al. 2024, To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO"
    remedy: ClassVar[str] = "widen temperature_min or temperature_max, or change rho of objective sogclr"

    dimension: Annotated[int, Number(at_least=1, at_most=65536, integer=True, help="D of the embeddings")]
    temperature_min: Annotated[float, Temperature(search=(0.001, 0.03), help="lower bound of τ")] = 0.01
    temperature_max: Annotated[float, Temperature(search=(0.03, 1), help="upper bound of τ")] = 0.05
    prototypes: Annotated[int, Number(at_least=1, at_most=65536, integer=True, help="M")] = 256
    per_view: PerView = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range(self.temperature_min, self.temperature_max)
        self.networks = nn.ModuleList(Network(self.dimension, self.prototypes) for _ in range(1 + self.per_view))

    def bounds(self) -> dict[str, float]:
        """Returns τmin and τmax."""
        return {"temperature_min": self.temperature_min, "temperature_max": self.temperature_max}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor; gradient flows to the networks."""
        if batch.anchors is None:
            raise self.missing("the embeddings of anchors", "view_a")
        rows = batch.anchors.detach()
        first = len(rows) if batch.of_view_a is None else batch.of_view_a
        parts = (rows[:first], rows[first:]) if self.per_view else (rows,)
        networks = cast(Iterable[Network], self.networks)
        heights = torch.cat([network(self, view) for network, view in zip(networks, parts, strict=True)])
        return ScaleMap((self.temperature_min + (self.temperature_max - self.temperature_min) * heights).reciprocal())


class Network(nn.Module):
    """The parameters of one network."""

    def __init__(self, dimension: int, prototypes: int) -> None:
        super().__init__()
        self.projection = nn.Linear(dimension, dimension)
        self.prototypes = nn.Parameter(torch.randn(prototypes, dimension))
        self.log_sharpness = nn.Parameter(torch.tensor([math.log(SHARPNESS)]))
        self.readout = nn.Parameter(torch.cat([torch.zeros(1), torch.ones(prototypes)]))

    def forward(self, strategy: Strategy, rows: Tensor) -> Tensor:
        """Returns the position of the temperature of each unit row between its bounds, [N] in [0, 1]."""
        activations = torch.sigmoid(F.linear(rows, *strategy.layer_for(rows, self.projection, "networks")))
        products = activations @ F.normalize(self.prototypes.to(rows.dtype)).T
        weights = torch.softmax(products / self.log_sharpness.to(rows.dtype).exp(), 1)
        features = (weights - 1 / len(self.prototypes)) * torch.sigmoid(products)
        readout = self.readout.to(rows.dtype)
        return torch.sigmoid(features @ readout[1:] + readout[0])
