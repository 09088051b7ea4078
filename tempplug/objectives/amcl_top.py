"""AMCL's top-κ objective: the positive against the mean of the most similar negatives, no log-sum-exp."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective
from tempplug.options import Number
from tempplug.strategies.maps import LogitMap, PairTemperatureMap
from tempplug.transforms import valueless
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class AMCLTop(Objective):
    """(1/κ)·Σ_k l(s_k) - l(s⁺) over the κ most similar negatives, l(s) = s/τ - β·Ω(τ) of the strategy ``amcl``, which it needs.

    The regulariser's weight is the objective's here, whatever the strategy's. Neither option has a sensible default: β = 1 with
    κ = 10 let all embeddings of a set of digits collapse onto one point, β = 0.001 did not.

    Args:
        top_k: κ, at least 1; anchors with fewer negatives take all they have, and the first such batch warns.
        beta: β, from 0 to 1e6.

    Source: Adaptive Multi-head Contrastive Learning, section 3 (TopMax). It prints the regulariser of the negatives as a sum
    over k without D/2, which at κ = 1 is not its own eq. for the maximum; here both halves are means, with the same Ω. The
    candidate's rank is that of its similarity, not of its logit, as there.
    """

    name: ClassVar[str] = "amcl-top"
    formula: ClassVar[str] = "(1/κ)·Σ_k l(s_k) - l(s⁺), the κ most similar negatives, l = s/τ - β·Ω(τ)"
    source: ClassVar[str] = "Wang et al. 2024, Adaptive Multi-head Contrastive Learning, section 3"

    top_k: Annotated[int, Number(at_least=1, integer=True, help="κ, negatives of each anchor that count")]
    beta: Annotated[float, Number(at_least=0, at_most=1e6, help="β, weight of the regulariser")]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.top = self.top_k
        self._warned = False

    def training_map(self, logit_map: LogitMap) -> LogitMap:
        """Returns the strategy's temperatures with this objective's β."""
        if not isinstance(logit_map, PairTemperatureMap):
            raise ConfigError(
                "objective 'amcl-top' needs a temperature for every pair: use it with strategy 'amcl', or choose "
                "dcl or infonce."
            )
        return logit_map.with_beta(self.beta)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns mean of the top logits minus positive_logit, [N]."""
        logits = statistics.top_logits
        if logits is None:
            raise RuntimeError("the engine did not return the most similar negatives.")
        counts = statistics.negative_count
        present = torch.arange(logits.shape[1], device=logits.device) < counts[:, None]
        # Reading whether one is missing waits for the device, so only CPU batches warn.
        if logits.is_cpu and not (self._warned or valueless()) and int(counts.min()) < self.top_k:
            self._warned = True
            warnings.warn(
                f"{self.where('top_k', self.top_k)} is more than the {int(counts.min())} negatives of an anchor: it takes all "
                "it has, here and in later batches.",
                RuntimeWarning,
                stacklevel=2,
            )
        taken = torch.where(present, logits, 0.0).sum(1) / present.sum(1).clamp(min=1)
        return taken - statistics.positive_logit
