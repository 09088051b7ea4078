"""MACL: the temperature follows how well the positives are aligned."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.options import Flag, Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.transforms import recomputing, transformed, valueless
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class MACL(Strategy):
    """Divides by τ = τ₀·(1 + α·(A - A₀)), A the mean similarity of the batch's positives, detached.

    τ is not positive where A ≤ A₀ - 1/α (with the paper's SimCSE setting: A ≤ 0.3), which would invert the loss. It is
    therefore floored at ``floor_ratio``·τ₀; the buffer ``floor_hits`` counts those batches and the first one warns. The
    reweighting of the paper is the objective ``reweighted``. A is a mean of cosines, and A₀ and α are chosen for its range [-1,
    1]: scores of another scale (`tempplug.ContrastiveLoss.from_scores`) are refused.

    Args:
        base_temperature: τ₀; the lowest and the highest temperature that follow must lie between 1e-9 and 1e9.
        alpha: α, from 0 to 1e6. The paper's text says [0, 1], its own SimCSE setting is 2.
        threshold: A₀, in [-1, 1].
        floor_ratio: in (0, 1].
        strict: raise `ConfigError` at a batch below the floor, in place of flooring.

    Source: Huang et al. 2023, eq. 7; settings in its section 6 and appendix B.

    >>> strategy = MACL(base_temperature=0.05, alpha=2, threshold=0.8)
    >>> strategy.temperature(torch.tensor(0.9, dtype=torch.float64))
    tensor(0.0600, dtype=torch.float64)
    """

    name: ClassVar[str] = "macl"
    formula: ClassVar[str] = "l = s / τ, τ = max(τ₀·(1 + α·(A - A₀)), floor_ratio·τ₀), A = mean similarity of the positives"
    source: ClassVar[str] = "Huang et al. 2023, Model-Aware Contrastive Learning: Towards Escaping the Dilemmas, eq. 7"
    remedy: ClassVar[str] = "choose a smaller alpha or threshold"

    base_temperature: Annotated[float, Temperature(help="τ₀, in force where A = A₀")] = 0.1
    alpha: Annotated[float, Number(at_least=0, at_most=1e6, search=(0, 2), help="α, how strongly τ follows A")] = 0.5
    threshold: Annotated[float, Number(at_least=-1, at_most=1, search=(0, 0.9), help="A₀")] = 0.0
    floor_ratio: Annotated[float, Number(above=0, at_most=1, help="τ never falls below this times τ₀")] = 0.1
    strict: Annotated[bool, Flag(help="raise in place of flooring")] = False
    floor_hits: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        highest = self.base_temperature * (1 + self.alpha * (1 - self.threshold))
        ends = {"lowest": self.floor_ratio * self.base_temperature, "highest": highest}
        for end, temperature in ends.items():
            Temperature().check(f"{end} temperature {temperature:g} of strategy 'macl'", temperature)
        self.register_buffer("floor_hits", torch.zeros((), dtype=torch.int64))

    def temperature(self, positive_similarity: Tensor) -> Tensor:
        """Returns τ before the floor, [] for A of shape []."""
        return self.base_temperature * (1 + self.alpha * (positive_similarity - self.threshold))

    def bounds(self) -> dict[str, float]:
        """Returns the floor."""
        return {"floor_ratio * base_temperature": self.floor_ratio * self.base_temperature}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns s/τ for the A of this batch."""
        mean = batch.mean_positive_similarity
        free = self.temperature(mean)
        (floor,) = self.bounds().values()
        hit = free < floor
        # A checkpoint computes the same batch a second time.
        if not transformed() and (torch.compiler.is_compiling() or not recomputing()):
            self.floor_hits.add_(hit)
        # Reading `hit` waits for the device, so on a GPU only `strict` pays for it; the record shows the count everywhere.
        if (self.strict or not (self.warned_of_bounds or not hit.is_cpu or valueless())) and hit:
            message = (
                f"strategy 'macl': with base_temperature={self.base_temperature:g}, alpha={self.alpha:g} and "
                f"threshold={self.threshold:g} the mean positive similarity {mean.item():.3g} gives the temperature "
                f"{free.item():.3g}, below its floor {floor:.3g}"
            )
            if self.strict:
                raise ConfigError(f"{message}; {self.remedy}, or strict=false.")
            self.warned_of_bounds = True
            warnings.warn(f"{message}; the floor is used, here and in later batches.", RuntimeWarning, stacklevel=2)
        return ScaleMap(free.clamp(min=floor).reciprocal())
