"""MM-TS: a schedule for every example, around a temperature that grows with the size of its cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.inputs import check_within
from tempplug.options import Number, Numbers, Temperature
from tempplug.strategies.head_tail import of_class
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.strategies.schedule import LONGEST, Period, Periodic
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class MMTS(Periodic):
    """Divides row i by (α/2)·cos(2πt/T) + τ_i, τ_i between temperature_min and temperature_max by the size of i's cluster.

    The call passes ``labels=`` [B], the cluster of each row. The smallest cluster has temperature_min, as have all of one size,
    and the largest temperature_max.

    Args:
        class_counts: examples of each cluster, at least 2 clusters.
        temperature_min: from 1e-9 to 1e9, greater than half of ``amplitude``.
        temperature_max: at least ``temperature_min``.
        amplitude: α, from the highest to the lowest temperature of one example, at least 0.
        period: T in epochs, greater than 0, or None as of ``schedule``.

    Raises:
        ConfigError: an option is out of range; at a call, labels are missing or outside the table, or there was no
            `set_progress`.

    Source: Sheludzko et al. 2026 (arXiv 2603.08202), who find the clusters in the texts; their margins are not here.

    >>> MMTS(class_counts=[10, 40]).spec()
    'mm-ts:class_counts=10/40,temperature_min=0.05,temperature_max=0.2,amplitude=0.08,period=none'
    """

    name: ClassVar[str] = "mm-ts"
    formula: ClassVar[str] = "l_ij = s_ij / τ_i(t), τ_i(t) = (α/2)·cos(2πt/T) + τmin + (τmax - τmin)·(c_i - cmin)/(cmax - cmin)"
    source: ClassVar[str] = (
        "Sheludzko et al. 2026, MM-TS: Multi-Modal Temperature and Margin Schedules for Contrastive Learning with Long-Tail "
        "Data"
    )
    takes: ClassVar[frozenset[str]] = frozenset({"labels"})
    cosines_only = False

    class_counts: Annotated[
        Sequence[int], Numbers(Number(at_least=0, integer=True), minimum_length=2, help="examples of each cluster")
    ]
    temperature_min: Annotated[float, Temperature(search=(0.05, 0.2), help="τ of the smallest cluster")] = 0.05
    temperature_max: Annotated[float, Temperature(search=(0.2, 2), help="τ of the largest cluster")] = 0.2
    amplitude: Annotated[float, Number(at_least=0, at_most=1e9, help="α, how far τ moves in a period")] = 0.08
    period: Period = None
    temperatures: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.amplitude / 2 < self.temperature_min <= self.temperature_max:
            raise ConfigError(
                f"{self.where('temperature_min', self.temperature_min)} must be greater than half of amplitude="
                f"{self.amplitude:g}, and at most temperature_max={self.temperature_max:g}."
            )
        counts = torch.tensor(self.class_counts, dtype=torch.float64, device="cpu")
        share = (counts - counts.min()) / (counts.max() - counts.min()).clamp(min=1)
        temperatures = self.temperature_min + (self.temperature_max - self.temperature_min) * share
        self.register_buffer("temperatures", temperatures.to(torch.get_default_device()), persistent=False)

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises without an epoch, and where labels do not fit the clusters."""
        super().check_call(given)
        if "labels" in given:
            check_within(self, "labels", given["labels"], self.temperatures, "class_counts")

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor's cluster at the current epoch."""
        return ScaleMap((of_class(self, batch, self.temperatures) + self.now().to(batch.device, batch.dtype)).reciprocal())

    def _value(self, epoch: float) -> float:
        return self.amplitude / 2 * math.cos(2 * math.pi * epoch / (self.period or LONGEST))
