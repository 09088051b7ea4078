"""The baseline: one temperature for every pair and every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tempplug.options import Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, constant_scale
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class Fixed(Strategy):
    """Divides every similarity by the same temperature.

    Args:
        temperature: τ, from 1e-9 to 1e9.

    Source: SimCLR (Chen et al. 2020), section 2.1.

    >>> Fixed(temperature=0.1).spec()
    'fixed:temperature=0.1'
    """

    name: ClassVar[str] = "fixed"
    formula: ClassVar[str] = "l = s / τ"
    source: ClassVar[str] = "Chen et al. 2020, A Simple Framework for Contrastive Learning of Visual Representations"
    cosines_only = False

    temperature: Annotated[float, Temperature(help="τ, the divisor")] = 0.1

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns s/τ for every pair."""
        return constant_scale(1 / self.temperature, batch.dtype, batch.device)
