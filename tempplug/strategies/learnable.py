"""CLIP's temperature: one learned scalar, kept as the logarithm of its inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug.options import Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.transforms import transformed
from tempplug.types import Batch

MaxScale = Annotated[float | None, Temperature(optional=True, search=None, help="highest 1/τ; none: no bound")]
OwnRate = Annotated[
    float | None, Number(above=0, optional=True, search=(1e-4, 0.1), help="of ln 1/τ in the optimizer; none: that of the model")
]


@dataclass(eq=False, repr=False)
class Learnable(Strategy):
    """Multiplies every similarity by exp(t), with t a parameter.

    The parameter ``log_scale`` [1] (FSDP shards no scalars) must reach the optimizer, without weight decay. If an optimizer
    step moved it above ln(max_scale), the next `prepare` sets it back; under FSDP it stays there, but counts as ln(max_scale),
    and moves down only.

    Args:
        initial_temperature: τ at the start, from 1e-9 to 1e9, at least 1/max_scale; t₀ = ln(1/τ).
        max_scale: upper bound of exp(t) = 1/τ, from 1e-9 to 1e9; None: no bound, as in SigLIP.
        learning_rate: of t, greater than 0; None: that of the model. t is a logarithm, so that a step of Adam changes τ by at
            most about this share, whatever the model's rate.

    With the learning rate of 0.01, τ adapts in a few hundred steps of Adam and no faster. Measured: a small BERT on NLI pairs
    (321 steps, linear decay, from 0.05, one seed) ends at 0.044, 0.038 and 0.033 with 0.003, 0.01 and 0.03, at 74.8 to 74.9 on
    STS-B dev each time; a StaticEmbedding, whose own 0.2 drives τ from 0.07 to 0.027, gains 1.7 points of STS-B test with 0.01
    (0.045, five seeds); GRACE on CiteSeer (300 steps at a constant rate, from 0.5, one seed) ends at 0.14 with 0.003 and at
    0.03 with 0.01, its encoder's rate, with F1 of 68 and 64: the temperature of the lowest loss need not be the best for a
    task. CLIP has its model's rate, 5e-4, for 390,000 steps.

    Source: CLIP (Radford et al. 2021), section 2.5.

    >>> round(Learnable(initial_temperature=0.07).log_scale.item(), 5)
    2.65926
    """

    name: ClassVar[str] = "learnable"
    formula: ClassVar[str] = "l = s · exp(t), t learned, exp(t) ≤ max_scale"
    source: ClassVar[str] = "Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision"
    cosines_only = False
    remedy: ClassVar[str] = "raise max_scale, or train the temperature with a smaller learning rate"

    initial_temperature: Annotated[float, Temperature(help="τ before the first step")] = 0.07
    max_scale: MaxScale = 100.0
    learning_rate: OwnRate = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self, "initial_temperature", self.initial_temperature, self.max_scale)
        self.log_scale = nn.Parameter(torch.tensor([-math.log(self.initial_temperature)]))

    def bounds(self) -> dict[str, float]:
        """Returns the temperature that exp(t) = max_scale is, if there is a bound."""
        return {} if self.max_scale is None else {"1/max_scale": 1 / self.max_scale}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns exp(t)·s, with t brought back to its bound first."""
        return ScaleMap(bounded(self.log_scale, self.max_scale).to(batch.dtype).exp().squeeze())


def check_start(strategy: Strategy, option: str, temperatures: float | Sequence[float], max_scale: float | None) -> None:
    """Raises `ConfigError` where one of the temperatures before the first step is below 1/max_scale."""
    lowest = min(temperatures) if isinstance(temperatures, Sequence) else temperatures
    if max_scale is not None and 1 / lowest > max_scale * (1 + 1e-9):
        raise ConfigError(f"{strategy.where(option, temperatures)} must be at least 1/max_scale = {1 / max_scale:g}.")


def bounded(log_scale: Tensor, max_scale: float | None) -> Tensor:
    """Returns a parameter, logarithms of scales, brought back to where exp of it is at most ``max_scale``."""
    if max_scale is None:
        return log_scale
    bound = math.log(max_scale)
    if transformed():
        return log_scale.clamp(max=bound)
    if torch.compiler.is_compiling() or log_scale.untyped_storage().nbytes() == log_scale.nbytes:
        with torch.no_grad():
            log_scale.clamp_(max=bound)
        return log_scale
    # A part of something larger is a copy that FSDP gathered for this step: nothing written here would last. What lies
    # above the bound counts as the bound, and only a gradient that leads back may move it.
    above = log_scale.detach() > bound
    within = log_scale + (log_scale.detach().clamp(max=bound) - log_scale.detach())
    if within.requires_grad:
        within.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: gradient.masked_fill(above & (gradient < 0), 0)
        )
    return within
