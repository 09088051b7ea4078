"""InfoNCE: the cross-entropy of the positives among all candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tempplug.objectives.base import Objective, softplus
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class InfoNCE(Objective):
    """-log P(positive), averaged over the positives of an anchor.

    With one positive this is softplus(d), d = negative_lse - positive_logit: SimCLR's NT-Xent, SimCSE's and CLIP's loss. With
    several it is SupCon's outer form, and with ``targets`` t the cross-entropy -Σ_j t_ij ln p_ij. An anchor without a negative
    has loss 0 where it has one positive.

    Source: van den Oord et al. 2018, eq. 4; Khosla et al. 2020, eq. 2.
    """

    name: ClassVar[str] = "infonce"
    formula: ClassVar[str] = "-l⁺ + ln(Σ⁺ exp l + Σ⁻ exp l)"
    source: ClassVar[str] = "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"
    reads_negative_count: ClassVar[bool] = False
    several_positives: ClassVar[bool] = True
    without_negatives: ClassVar[bool] = True
    soft_targets: ClassVar[bool] = True

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns logaddexp(positive_lse, negative_lse) - positive_logit, [N]."""
        # Written around the positives' own difference, so that a loss of 1e-9 keeps its digits beside logits of 200.
        loss = softplus(statistics.negative_lse - statistics.positive_lse)
        if statistics.positive_lse is statistics.positive_logit:
            return loss
        return loss + (statistics.positive_lse - statistics.positive_logit)
