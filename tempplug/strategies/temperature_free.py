"""Temperature-Free InfoNCE: the log-odds of the similarity in place of a division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tempplug.options import Number
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, LogOddsMap
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class TemperatureFree(Strategy):
    """Maps each similarity to ln((1+s)/(1-s)) = 2·atanh(s), clamped at 1 - eps.

    Args:
        eps: in [1.2e-7, 1), below which 1 - eps rounds to 1 in float32. The paper clamps nothing, which is infinite at s = ±1;
            smaller values let a few near-duplicate negatives dominate the gradient.

    Source: Temperature-Free InfoNCE, eqs. 11-12 (scaled log-odds; atanh without the factor 2 is another loss).

    >>> TemperatureFree().eps
    0.0001
    """

    name: ClassVar[str] = "temperature-free"
    formula: ClassVar[str] = "l = ln((1 + s)/(1 - s)) = 2·atanh(s), s clamped to [-(1 - eps), 1 - eps]"
    source: ClassVar[str] = "Temperature-Free Loss Function for Contrastive Learning, eqs. 11-12"

    eps: Annotated[float, Number(at_least=1.2e-7, below=1, search=(1e-6, 0.01), help="distance of the clamp from ±1")] = 1e-4

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns 2·atanh(s) for every pair."""
        return LogOddsMap(self.eps)
