"""iSogCLR's temperatures: one for every example of the data set, learned from moving averages of its negatives."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.errors import ConfigError
from tempplug.inputs import outside
from tempplug.options import Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch, RowStatistics

GRADIENT_LIMIT = 3.0
EMPTY = -torch.inf


class Individual(Strategy):
    """Divides row i by the temperature of example i, which follows how hard the negatives of this example are.

    After each training step, with g_i the mean of exp(s/τ_i) over the negatives of example i (of all its anchors of the batch):
    s_i ← (1-γ)·s_i + γ·g_i (g_i itself when the example is met first), gradient ln s_i + ρ - mean(exp(s/τ_i)·s/τ_i)/s_i cut to
    ±3, u_i ← (1-m)·u_i + m·gradient, τ_i ← τ_i - lr·u_i within its bounds. All of it is kept as logarithms, so that no
    temperature overflows, in buffers of the length of the data set.

    The temperatures are all of it: an objective weighs the rows. iSogCLR's own loss has, for each row, the gradient of
    ``dcl`` with its negatives weighted by τ_i·g_i/s_i and its positive by τ_i.

    Args:
        size: examples of the data set, from 1 to 1e10; the call passes ``index=`` [B], which example each row is.
        temperature_init: τ before the first step, within the bounds.
        temperature_min: from 1e-9 to 1e9.
        temperature_max: at least ``temperature_min``.
        rho: ρ, at least 0: how far the negatives' distribution may lie from uniform.
        gamma: γ, in (0, 1].
        momentum: m, weight of the newest gradient, in (0, 1].
        learning_rate: lr of the temperatures, greater than 0.

    Raises:
        ConfigError: an option is out of range; at a call, ``index`` is missing or outside the data set.

    Source: Qiu et al. 2023, algorithm 1; the cut of the gradient and the bounds are those of the released code.

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

    size: int
    temperature_init: float
    temperature_min: float
    temperature_max: float
    rho: float
    gamma: float
    momentum: float
    learning_rate: float
    temperatures: Tensor
    log_means: Tensor
    velocities: Tensor

    def __init__(
        self,
        size: Annotated[int, Number(at_least=1, at_most=1e10, integer=True, help="examples of the data set")],
        temperature_init: Annotated[float, Temperature(search=None, help="τ before the first step")] = 0.1,
        temperature_min: Annotated[float, Temperature(search=(0.01, 0.1), help="lower bound of τ")] = 0.05,
        temperature_max: Annotated[float, Temperature(search=(0.1, 2), help="upper bound of τ")] = 1.0,
        rho: Annotated[float, Number(at_least=0, search=(0.05, 1), help="ρ, higher gives higher temperatures")] = 0.3,
        gamma: Annotated[float, Number(above=0, at_most=1, search=(0.1, 1), help="γ, weight of the newest batch")] = 0.8,
        momentum: Annotated[float, Number(above=0, at_most=1, help="weight of the newest gradient")] = 0.9,
        learning_rate: Annotated[float, Number(above=0, search=(1e-3, 0.1), help="of the temperatures")] = 0.01,
    ) -> None:
        super().__init__(
            size=size,
            temperature_init=temperature_init,
            temperature_min=temperature_min,
            temperature_max=temperature_max,
            rho=rho,
            gamma=gamma,
            momentum=momentum,
            learning_rate=learning_rate,
        )
        if not self.temperature_min <= self.temperature_init <= self.temperature_max:
            raise ConfigError(
                f"{self.where('temperature_init', self.temperature_init)} must lie between temperature_min="
                f"{self.temperature_min:g} and temperature_max={self.temperature_max:g}."
            )
        self.register_buffer("temperatures", torch.full((self.size,), self.temperature_init))
        self.register_buffer("log_means", torch.full((self.size,), EMPTY))
        self.register_buffer("velocities", torch.zeros(self.size))

    def bounds(self) -> dict[str, float]:
        """Returns both ends of the range that the temperatures are kept in."""
        return {"temperature_min": self.temperature_min, "temperature_max": self.temperature_max}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor's example."""
        index = self._index(batch)
        return ScaleMap(self.temperatures[index].reciprocal().to(batch.positive_similarity.dtype))

    @torch.no_grad()
    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        """Moves the averages and temperatures of this batch's examples, on every process those of all processes."""
        index, mean_similarity = self._index(batch), statistics.negative_similarity
        if mean_similarity is None:
            raise RuntimeError("the engine did not return the mean similarity of the negatives.")
        # An example without a negative has nothing to learn from, nor has one of which a term left all of them out.
        seen = (statistics.negative_count > 0) & (statistics.negative_lse > -torch.inf)
        index, mean_similarity, counts = index[seen], mean_similarity[seen], statistics.negative_count[seen]
        log_mean = statistics.negative_lse[seen] - counts.to(statistics.negative_lse.dtype).log()
        rows = distributed.share_rows(len(index), index.device, gather=True)
        index, log_mean, mean_similarity = (
            distributed.gather(each.detach().contiguous(), rows) for each in (index, log_mean, mean_similarity)
        )
        examples, position = torch.unique(index, return_inverse=True)
        dtype = self.temperatures.dtype
        # Means over the anchors of one example; those of exp(s/τ) through the largest, so that nothing overflows.
        log_mean, mean_similarity = log_mean.to(dtype), mean_similarity.to(dtype)
        start = log_mean.new_full((len(examples),), EMPTY)
        highest = start.scatter_reduce(0, position, log_mean, "amax")
        share = torch.exp(log_mean - highest[position])
        zeros = log_mean.new_zeros(len(examples))
        total = zeros.index_add(0, position, share)
        weighted = zeros.index_add(0, position, share * mean_similarity) / total
        log_g = highest + torch.log(total / zeros.index_add(0, position, torch.ones_like(share)))
        old = self.log_means[examples]
        moved = torch.logaddexp(old + self._log(1 - self.gamma), log_g + self._log(self.gamma))
        new = torch.where(old == EMPTY, log_g, moved)
        temperature = self.temperatures[examples]
        gradient = new + self.rho - torch.exp(log_g - new) * weighted / temperature
        velocity = (1 - self.momentum) * self.velocities[examples] + self.momentum * gradient.clamp(
            -GRADIENT_LIMIT, GRADIENT_LIMIT
        )
        self.log_means[examples] = new
        self.velocities[examples] = velocity
        self.temperatures[examples] = (temperature - self.learning_rate * velocity).clamp(
            self.temperature_min, self.temperature_max
        )

    @staticmethod
    def _log(share: float) -> float:
        return float(torch.tensor(share, dtype=torch.float64, device="cpu").log())

    def _index(self, batch: Batch) -> Tensor:
        if batch.index is None:
            raise self.missing("the position of each row in the data set", "index")
        index = batch.index
        if index.device != self.temperatures.device:
            raise self.elsewhere("temperatures", self.temperatures, index.device)
        # On CUDA the lookup itself refuses what lies outside; asking here would wait for the device.
        found = None if index.is_cuda else outside("index", index, self.size)
        if found is not None:
            raise ConfigError(
                f"index holds {found}; strategy 'individual' has size={self.size}, so positions run from 0 to {self.size - 1}."
            )
        return index
