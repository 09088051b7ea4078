"""Dual temperature (SimCo): the direction of the gradient at one temperature, its length at another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective, margin, with_gradient_of
from tempplug.objectives.reweighted import ratio_to_scale
from tempplug.options import Temperature
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.transforms import valueless
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class DualTemperature(Objective):
    """sg[W(τ_b)/W(τ_a)]·InfoNCE(τ_a): τ_a is the strategy's, W the gradient scale 1 - P(positive).

    ``second_temperature`` is τ_b, at least the strategy's τ_a; by default ten times the strategy's scalar, without which a call
    raises `ConfigError`.

    Source: Zhang et al. 2022, eq. 8 (there τ_a = 0.1, τ_b = 1).
    """

    name: ClassVar[str] = "dual-temperature"
    formula: ClassVar[str] = "sg[W(τ_b) / W(τ_a)] · InfoNCE(τ_a), W = 1 - P⁺"
    source: ClassVar[str] = "Zhang et al. 2022, Dual Temperature Helps Contrastive Learning Without Many Negative Samples"
    reads_negative_count: ClassVar[bool] = False

    second_temperature: Annotated[float | None, Temperature(optional=True, help="τ_b; none: ten times the strategy's")] = None

    def reference_map(self, logit_map: LogitMap) -> LogitMap:
        """Returns s/τ_b."""
        scale = logit_map.scale.detach() if isinstance(logit_map, ScaleMap) and logit_map.uniform else None
        if self.second_temperature is None:
            if scale is None:
                raise ConfigError(
                    "objective 'dual-temperature' needs second_temperature= beside a strategy without one scalar temperature."
                )
            return ScaleMap(scale / 10)
        # Comparing waits for the device, so only CPU batches are checked.
        if scale is not None and scale.is_cpu and not valueless() and scale * self.second_temperature < 1 - 1e-6:
            raise ConfigError(
                f"{self.where('second_temperature', self.second_temperature)} must be at least the strategy's temperature "
                f"{1 / scale.item():.3g}."
            )
        return ScaleMap(torch.tensor(1 / self.second_temperature, dtype=torch.float64, device="cpu"))

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns W(τ_b)·softplus(d)/sigmoid(d), [N], with the gradient of d times W(τ_b)."""
        second_scale, difference = self._second_scale(auxiliary), margin(statistics)
        return with_gradient_of(second_scale * ratio_to_scale(difference), second_scale * difference)

    def _second_scale(self, auxiliary: Auxiliary | None) -> Tensor:
        if auxiliary is None or auxiliary.second is None:
            raise ConfigError("objective 'dual-temperature' needs auxiliary.second, the statistics at second_temperature.")
        return torch.sigmoid(margin(auxiliary.second)).detach()
