"""DCL: InfoNCE with the positive taken out of the denominator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tempplug.objectives.base import Objective, margin
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class DCL(Objective):
    """d = negative_lse - positive_logit: the gradient of InfoNCE without its vanishing factor W.

    One joint log-sum-exp over all negatives; early versions of lightly summed two.

    Source: Yeh et al. 2022, eq. 6; GraphCL's loss has the same shape.
    """

    name: ClassVar[str] = "dcl"
    formula: ClassVar[str] = "-l⁺ + ln Σ⁻ exp l"
    source: ClassVar[str] = "Yeh et al. 2022, Decoupled Contrastive Learning"
    reads_negative_count: ClassVar[bool] = False
    several_positives: ClassVar[bool] = True

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns d, [N]; may be negative."""
        return margin(statistics)
