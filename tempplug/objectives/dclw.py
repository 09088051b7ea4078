"""DCLW: DCL with positives weighted by how far apart they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective
from tempplug.options import Temperature
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class DCLW(Objective):
    """DCL with -w_i·l⁺, w_i = 2 - exp(s⁺/σ)/mean(exp(s⁺/σ)), the mean over the whole batch, all processes included.

    Weights carry no gradient (as in lightly) and are negative where one positive dominates the batch. σ is from 1e-9 to 1e9.

    Source: Yeh et al. 2022, eq. 7.
    """

    name: ClassVar[str] = "dclw"
    formula: ClassVar[str] = "-w·l⁺ + ln Σ⁻ exp l, w = 2 - exp(s⁺/σ) / mean exp(s⁺/σ)"
    source: ClassVar[str] = "Yeh et al. 2022, Decoupled Contrastive Learning, eq. 7"
    reads_negative_count: ClassVar[bool] = False

    sigma: Annotated[float, Temperature(search=None, help="σ, how sharply similarities are weighted")] = 0.5

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns negative_lse - w·positive_logit, [N]."""
        return statistics.negative_lse - self._weight(statistics, auxiliary) * statistics.positive_logit

    def _weight(self, statistics: RowStatistics, auxiliary: Auxiliary | None) -> Tensor:
        if auxiliary is None:
            raise ConfigError("objective 'dclw' needs auxiliary.positive_similarity, the positives of the whole batch.")
        everyone = auxiliary.positive_similarity / self.sigma
        log_mean = torch.logsumexp(everyone, 0) - math.log(everyone.numel())
        return 2 - torch.exp(statistics.positive_similarity.detach() / self.sigma - log_mean)
