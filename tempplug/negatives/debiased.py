"""The debiased estimator: the expected share of unlabelled positives is subtracted from the sum of the negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.negatives.base import NegativeTerm, Pairs
from tempplug.options import Number


@dataclass(eq=False, repr=False)
class Debiased(NegativeTerm):
    """Replaces the sum of a row's negatives by an estimate of that of its true negatives.

    Σ⁻ exp(l) becomes max((Σ⁻ exp(l) - π·n·exp(l⁺))/(1 - π), n·exp(l(-1))), n the number of negatives that no other term leaves
    out and l(-1) the logit of the smallest similarity. The estimate has a gradient; where the maximum is its second half it has
    none.

    Args:
        prior: π, in [0, 1): the share of negatives that are of the anchor's own class.

    The estimator works on sums of rows and not on pairs. For the same reason the weights of Robinson et al. 2021 (HCL) are no
    term: they are normalised over the row, and carry gradient.

    Source: Chuang et al. 2020, Debiased Contrastive Learning, eq. 7 and 8 (M = 1).
    """

    name: ClassVar[str] = "debiased"
    formula: ClassVar[str] = "Σ⁻ exp l becomes max((Σ⁻ exp l - π·n·exp l⁺)/(1 - π), n·exp l(-1))"
    source: ClassVar[str] = "Chuang et al. 2020, Debiased Contrastive Learning, eq. 7 and 8"

    prior: Annotated[float, Number(at_least=0, below=1, search=(0, 0.2), help="π, share of false negatives")] = 0.1

    def prepare(self, pairs: Pairs) -> None:
        """Returns no term: the estimate is made of the sums of rows."""

    def negative_lse(self, lse: Tensor, positive_logit: Tensor, count: Tensor, lowest: Tensor) -> Tensor:
        """Returns the logarithm of the estimate, [N]."""
        number = count.clamp(min=1).to(lse.dtype).log()
        floor = number + lowest
        # The share that is subtracted, as a logarithm of its part in the sum; where it is the whole sum, the floor holds.
        log_prior = math.log(self.prior) if self.prior else -math.inf
        # Logits first, which are nearly equal where digits matter.
        log_share = (positive_logit - lse.clamp(min=torch.finfo(lse.dtype).min)) + (log_prior + number)
        inside = log_share < -torch.finfo(lse.dtype).eps
        share = torch.where(inside, log_share, -1.0)
        estimate = torch.where(inside, lse, 0.0) + torch.log(-torch.expm1(share)) - math.log1p(-self.prior)
        estimate = torch.where(inside, torch.maximum(estimate, floor.detach()), floor.detach())
        return torch.where(lse == -torch.inf, lse, estimate)
