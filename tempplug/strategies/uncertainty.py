"""TaU: each anchor has a learned scalar, the certainty of its embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from tempplug.options import Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class Uncertainty(Strategy):
    """Multiplies row i by sigmoid(u_i)/t, u_i the uncertainty of anchor i from a head of the encoder.

    Args:
        base_temperature: t, from 1e-9 to 1e9.

    Raises:
        ConfigError: the option is out of range; at a call, ``uncertainty`` is missing.

    Source: Zhang et al. 2021, eq. 3. The official code excludes the positive from the denominator (here: objective
    ``dcl``) and uses view a's sigmoid for view b's positive; here every anchor uses its own.

    >>> Uncertainty().spec()
    'uncertainty:base_temperature=0.1'
    """

    name: ClassVar[str] = "uncertainty"
    formula: ClassVar[str] = "l_ij = s_ij · sigmoid(u_i) / t, u_i learned"
    source: ClassVar[str] = "Zhang et al. 2021, Temperature as Uncertainty in Contrastive Learning"
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"uncertainty"})

    base_temperature: Annotated[float, Temperature(help="t, the smallest τ")] = 0.1

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor; gradient flows to ``uncertainty``."""
        if batch.uncertainty is None:
            raise self.missing("the learned uncertainty of each anchor", "uncertainty")
        # A floor of 1e-6 keeps the scale positive where the sigmoid underflows; it moves no temperature below 1e5.
        scale = torch.sigmoid(batch.uncertainty.to(batch.dtype)).clamp(min=1e-6)
        return ScaleMap(scale / self.base_temperature)
