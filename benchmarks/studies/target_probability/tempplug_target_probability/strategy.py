"""The temperature at which the positives have a given share of the softmax, whatever the length of the training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.averages import of_all_processes
from tempplug.options import Choice, Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch, RowStatistics


@dataclass(eq=False, repr=False)
class TargetProbability(Strategy):
    """Divides by one temperature that keeps the mean softmax probability of the positives at a given value.

    After each training step, with p the probability of each positive of the batch among its negatives: ln τ ← ln τ + rate·(m -
    probability), within the bounds. τ is low as long as the positives that are found have close rivals, and rises with what the
    encoder has learned, so that easy batches still have a gradient. The mean m has the probabilities themselves as weights,
    m = Σp²/Σp: positives that are not found at all, as most from random weights, do not keep τ low. τ is a buffer that all
    processes share, and carries no gradient.

    Args:
        probability: the wanted mean probability of the positives, between 0 and 1.
        temperature_init: τ before the first step, within the bounds.
        temperature_min: from 1e-9 to 1e9.
        temperature_max: at least ``temperature_min``.
        rate: how fast ln τ moves, greater than 0; 1 corrects an error within some ten steps.
        mean: ``weighted`` as above, or ``plain`` over all positives.

    Raises:
        ConfigError: an option is out of range.

    Source: this study; README.md has the measurements.

    >>> TargetProbability(probability=0.7).log_temperature.exp()
    tensor(0.0500)
    """

    name: ClassVar[str] = "target-probability"
    formula: ClassVar[str] = "l = s / τ, ln τ ← ln τ + rate·(m - probability), m = Σp²/Σp, p = probability of a positive"
    source: ClassVar[str] = "tempplug-target-probability"
    cosines_only = False
    reads_negative_count: ClassVar[bool] = False
    remedy: ClassVar[str] = "widen temperature_min or temperature_max, or choose another probability"

    probability: Annotated[float, Number(above=0, below=1, search=(0.3, 0.9), help="mean of the positives to keep")] = 0.5
    temperature_init: Annotated[float, Temperature(search=None, help="τ before the first step")] = 0.05
    temperature_min: Annotated[float, Temperature(search=None, help="lower bound of τ")] = 0.001
    temperature_max: Annotated[float, Temperature(search=None, help="upper bound of τ")] = 1.0
    rate: Annotated[float, Number(above=0, at_most=10, help="how fast ln τ follows")] = 1.0
    mean: Annotated[str, Choice(("weighted", "plain"), help="weighted: by the probabilities themselves")] = "weighted"
    log_temperature: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_start(self.temperature_init, self.temperature_min, self.temperature_max)
        self.register_buffer("log_temperature", torch.tensor(math.log(self.temperature_init)))

    def bounds(self) -> dict[str, float]:
        """Returns both ends of the range that the temperature is kept in."""
        return {"temperature_min": self.temperature_min, "temperature_max": self.temperature_max}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns s/τ."""
        return ScaleMap(torch.exp(-self.log_temperature).to(batch.positive_similarity.dtype))

    @torch.no_grad()
    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        """Moves the temperature by the anchors of all processes that have a positive and a negative."""
        seen = (statistics.positive_count > 0) & statistics.negative_lse.isfinite()
        probability = torch.sigmoid(statistics.positive_lse - statistics.negative_lse)
        (probabilities,) = of_all_processes(probability[seen])
        if len(probabilities):
            mean = (
                probabilities.mean()
                if self.mean == "plain"
                else probabilities.square().sum() / probabilities.sum().clamp_min(1e-30)
            )
            moved = self.log_temperature + self.rate * (mean - self.probability)
            low, high = (math.log(bound) for bound in self.bounds().values())
            self.log_temperature.copy_(moved.clamp(low, high))
