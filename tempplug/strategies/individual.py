"""iSogCLR's temperatures: one for every example of the data set, learned from moving averages of its negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.averages import EMPTY, PerView, Relative, Size, entries, log_means, moved, of_all_processes, places
from tempplug.inputs import check_within
from tempplug.options import Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch, RowStatistics

GRADIENT_LIMIT = 3.0


@dataclass(eq=False, repr=False)
class Individual(Strategy):
    """Divides row i by the temperature of example i, which follows how hard the negatives of this example are.

    After each training step, with g_i the mean of exp(s/τ_i) over the negatives of example i (of all its anchors of the batch):
    s_i ← (1-γ)·s_i + γ·g_i (g_i in the first batch with the example), gradient ln s_i + ρ - mean(exp(s/τ_i)·s/τ_i)/s_i clipped
    to ±3, u_i ← (1-m)·u_i + m·gradient, τ_i ← τ_i - lr·u_i within its bounds. All of it is kept as logarithms, so that no
    temperature overflows, in buffers of the length of the data set.

    The strategy supplies only temperatures; the objective weighs the rows. iSogCLR as released for one encoder is this with
    ``sogclr:relative=false,per_view=false`` of the same γ; for images and texts it is this with ``per_view=true,relative=true``
    beside ``sogclr``.

    Args:
        size: examples of the data set, from 1 to 1e10; the call passes ``index=`` [B], which example each row is.
        temperature_init: τ before the first step, within the bounds.
        temperature_min: from 1e-9 to 1e9.
        temperature_max: at least ``temperature_min``.
        rho: ρ, at least 0: how far the negatives' distribution may lie from uniform.
        gamma: γ, in (0, 1].
        momentum: m, weight of the newest gradient, in (0, 1].
        learning_rate: lr of the temperatures, greater than 0.
        per_view: whether the anchors of view_b, such as texts, have temperatures of their own, at ``size`` and behind.
        relative: whether s - s⁺ replaces s in all averages, as in the paper.

    Raises:
        ConfigError: an option is out of range; at a call, ``index`` is missing or outside the data set.

    Source: Qiu et al. 2023, algorithm 1; the clipping of the gradient and the bounds are those of the released code.

    >>> Individual(size=3).temperatures
    tensor([0.1000, 0.1000, 0.1000])
    """

    name: ClassVar[str] = "individual"
    formula: ClassVar[str] = "l_ij = s_ij / τ_i, τ_i learned from moving averages over the negatives of example i"
    source: ClassVar[str] = "Qiu et al. 2023, Not All Semantics are Created Equal (iSogCLR), algorithm 1"
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"index"})
    remedy: ClassVar[str] = "widen temperature_min or temperature_max, or change rho"
    needs_negative_similarity: ClassVar[bool] = True

    size: Size
    temperature_init: Annotated[float, Temperature(search=None, help="τ before the first step")] = 0.1
    temperature_min: Annotated[float, Temperature(search=(0.01, 0.1), help="lower bound of τ")] = 0.05
    temperature_max: Annotated[float, Temperature(search=(0.1, 2), help="upper bound of τ")] = 1.0
    rho: Annotated[float, Number(at_least=0, search=(0.05, 1), help="ρ, higher gives higher temperatures")] = 0.3
    gamma: Annotated[float, Number(above=0, at_most=1, search=(0.1, 1), help="γ, weight of the newest batch")] = 0.8
    momentum: Annotated[float, Number(above=0, at_most=1, help="weight of the newest gradient")] = 0.9
    learning_rate: Annotated[float, Number(above=0, search=(1e-3, 0.1), help="of the temperatures")] = 0.01
    per_view: PerView = False
    relative: Relative = False
    temperatures: Tensor = field(init=False)
    log_means: Tensor = field(init=False)
    velocities: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_start(self.temperature_init, self.temperature_min, self.temperature_max)
        length = self.size * (1 + self.per_view)
        self.register_buffer("temperatures", torch.full((length,), self.temperature_init))
        self.register_buffer("log_means", torch.full((length,), EMPTY))
        self.register_buffer("velocities", torch.zeros(length))

    def bounds(self) -> dict[str, float]:
        """Returns both ends of the range that the temperatures are kept in."""
        return {"temperature_min": self.temperature_min, "temperature_max": self.temperature_max}

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises where the index leaves the data set."""
        if "index" in given:
            check_within(self, "index", given["index"], self.temperatures, f"size={self.size}", self.size)

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor's example."""
        return ScaleMap(self.temperatures[self._entries(batch)].reciprocal().to(batch.dtype))

    @torch.no_grad()
    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        """Moves the averages and temperatures of this batch's examples, on every process those of all processes."""
        rows, similarity = self._entries(batch), statistics.negative_similarity
        if similarity is None:
            raise RuntimeError("the engine did not return the mean similarity of the negatives.")
        log_mean = statistics.negative_lse - statistics.negative_count.clamp(min=1).to(similarity.dtype).log()
        # An example without a negative has nothing to learn from.
        seen = log_mean.isfinite()
        if self.relative:
            seen &= statistics.positive_count > 0
            log_mean, similarity = log_mean - statistics.positive_logit, similarity - statistics.positive_similarity
        log_mean, similarity = log_mean.masked_fill(~seen, EMPTY), similarity.masked_fill(~seen, 0.0)
        rows, log_mean, similarity = of_all_processes(rows, log_mean, similarity)
        place, dtype = places(rows), self.temperatures.dtype
        log_g, share = log_means(log_mean.to(dtype), place)
        weighted = torch.zeros_like(log_g).index_add(0, place, share * similarity.to(dtype))[place]
        new = moved(self.log_means[rows], log_g, self.gamma)
        temperature = self.temperatures[rows]
        gradient = new + self.rho - torch.exp(log_g - new) * weighted / temperature
        velocity = (1 - self.momentum) * self.velocities[rows] + self.momentum * gradient.clamp(-GRADIENT_LIMIT, GRADIENT_LIMIT)
        moved_temperature = (temperature - self.learning_rate * velocity).clamp(self.temperature_min, self.temperature_max)
        for state, values in (
            (self.log_means, new),
            (self.velocities, velocity),
            (self.temperatures, moved_temperature),
        ):
            state[rows] = values.where(log_g > EMPTY, state[rows])

    def _entries(self, batch: Batch) -> Tensor:
        return entries(self, batch, self.temperatures)
