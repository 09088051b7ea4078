"""MACL's reweighting: InfoNCE divided by its own gradient scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tempplug.objectives.base import Objective, margin, softplus, with_gradient_of
from tempplug.types import Auxiliary, RowStatistics


def ratio_to_scale(difference: Tensor) -> Tensor:
    """Returns softplus(d)/sigmoid(d), [N]: InfoNCE over its gradient scale W; below -30, where both underflow, the series."""
    ordinary = difference.clamp(min=-30)
    ratio = softplus(ordinary) / torch.sigmoid(ordinary)
    return torch.where(difference < -30, 1 + difference.exp() / 2, ratio)


@dataclass(eq=False, repr=False)
class Reweighted(Objective):
    """V·InfoNCE with V = sg[1/W], W = 1 - P(positive).

    Since InfoNCE's gradient is W times that of d, the product's gradient is that of d exactly: DCL's. Computing it that
    way avoids the paper's 1/(1 - P), which is 0·∞ once P rounds to 1. The value never falls below 1.

    Source: Huang et al. 2023 (MACL), eq. 11.
    """

    name: ClassVar[str] = "reweighted"
    formula: ClassVar[str] = "sg[1/W] · InfoNCE, W = 1 - P⁺"
    source: ClassVar[str] = "Huang et al. 2023, Model-Aware Contrastive Learning: Towards Escaping the Dilemmas, eq. 11"
    reads_negative_count: ClassVar[bool] = False

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns softplus(d)/sigmoid(d), [N], with the gradient of d."""
        difference = margin(statistics)
        return with_gradient_of(ratio_to_scale(difference), difference)
