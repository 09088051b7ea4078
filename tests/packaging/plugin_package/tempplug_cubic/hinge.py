"""An objective: one number per row."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor
from torch.nn import functional as F

from tempplug import Objective, RowStatistics
from tempplug.options import Number
from tempplug.types import Auxiliary


class Hinge(Objective):
    """softplus(d + margin), d the log-odds against the positive."""

    name: ClassVar[str] = "hinge"
    formula: ClassVar[str] = "softplus(d + margin), d = ln Σ⁻ exp l - l⁺"
    source: ClassVar[str] = "none"

    margin: float

    def __init__(self, margin: Annotated[float, Number(at_least=0, help="nats")] = 1.0) -> None:
        super().__init__(margin=margin)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return F.softplus(statistics.negative_lse - statistics.positive_logit + self.margin, threshold=40)
