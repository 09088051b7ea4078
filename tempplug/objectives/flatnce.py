"""FlatNCE: the value is always 1, the gradient is DCL's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tempplug.objectives.base import Objective, margin, with_gradient_of
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class FlatNCE(Objective):
    """exp(d - sg[d]), computed without the exponential: 1, with the gradient of d. Watch ``record.infonce`` instead.

    Source: Chen et al. 2021, eq. 9.
    """

    name: ClassVar[str] = "flatnce"
    formula: ClassVar[str] = "exp(d - sg[d]), d = -l⁺ + ln Σ⁻ exp l"
    source: ClassVar[str] = "Chen et al. 2021, Simpler, Faster, Stronger: Breaking the log-K Curse on Contrastive Learners"
    reads_negative_count: ClassVar[bool] = False
    several_positives: ClassVar[bool] = True

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns ones, [N], with the gradient of d."""
        difference = margin(statistics)
        return with_gradient_of(torch.ones_like(difference), difference)
