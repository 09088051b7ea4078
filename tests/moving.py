"""A strategy of the tests whose state moves a lot at each call, so that the state of another call gives another gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug import Batch, Strategy
from tempplug.averages import of_all_processes
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import RowStatistics


class Moving(Strategy):
    """ln τ moves by ``rate`` times what the mean probability of the positives exceeds a half."""

    name = "moving"
    log_temperature: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("log_temperature", torch.tensor(0.05).log())

    def prepare(self, batch: Batch) -> LogitMap:
        return ScaleMap(torch.exp(-self.log_temperature).to(batch.positive_similarity.dtype))

    @torch.no_grad()
    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        (found,) = of_all_processes(torch.sigmoid(statistics.positive_lse - statistics.negative_lse))
        self.log_temperature.add_(self.rate * (found.mean() - 0.5)).clamp_(-7, 0)
