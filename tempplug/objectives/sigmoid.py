"""The sigmoid loss of SigLIP: every pair is a classification of its own, without a softmax over the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective
from tempplug.options import Flag, Number
from tempplug.pair_functions import Softplus
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class Sigmoid(Objective):
    """Σ⁺ softplus(-(l + b)) + Σ⁻ softplus(l + b) for each anchor, b learned.

    The mean over the anchors of ``cross-view`` is SigLIP's loss, (1/N)·Σ_ij softplus(-y_ij·(t·s_ij + b)), in one direction and
    in the mean of both. The parameter ``bias`` [1] must reach the optimizer, without weight decay. SigLIP starts with
    ``learnable:initial_temperature=0.1,max_scale=none`` and a bias of -10. Every positive of an anchor is a summand; an anchor
    without a negative has the loss of its positives, and one without a positive leaves the mean. With ``softmax=joint`` the
    sums of all blocks are added up. With ``targets`` t, the probability of each pair by itself, a pair with t above 0 has the
    binary cross-entropy t·softplus(-(l + b)) + (1 - t)·softplus(l + b): rows need not sum to 1, and t of 0 and 1 is a mask.

    Args:
        initial_bias: b at the start, from -1e9 to 1e9; by default -10, or 1 with ``relative_bias``, which at SigLIP's initial
            scale of 10 is the same.
        relative_bias: whether b is a similarity, which the scale multiplies: the logit is then t·(s - b). It needs a strategy
            with one scale for all pairs.
        learning_rate: of b, greater than 0, as of ``learnable``, so that scale and bias move alike; None: that of the model.

    Source: Zhai et al. 2023, eq. 1 and Algorithm 1; of the relative bias, arXiv 2509.18552.

    >>> Sigmoid().bias.item(), Sigmoid(relative_bias=True).bias.item(), Sigmoid(initial_bias=-16.5).bias.item()
    (-10.0, 1.0, -16.5)
    """

    name: ClassVar[str] = "sigmoid"
    formula: ClassVar[str] = "Σ⁺ softplus(-(l + b)) + Σ⁻ softplus(l + b), b learned"
    source: ClassVar[str] = "Zhai et al. 2023, Sigmoid Loss for Language Image Pre-Training"
    reads_negative_count: ClassVar[bool] = False
    several_positives: ClassVar[bool] = True
    without_negatives: ClassVar[bool] = True
    soft_targets: ClassVar[bool] = True

    initial_bias: Annotated[
        float | None, Number(at_least=-1e9, at_most=1e9, optional=True, help="b at the start; none: -10, or 1 if relative")
    ] = None
    relative_bias: Annotated[bool, Flag(help="whether the scale multiplies b, too: t·(s - b)")] = False
    learning_rate: Annotated[
        float | None, Number(above=0, optional=True, help="of b in the optimizer; none: that of the model")
    ] = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        default = 1.0 if self.relative_bias else -10.0
        self.bias = nn.Parameter(torch.tensor([default if self.initial_bias is None else self.initial_bias]))

    @property
    def pair_function(self) -> Logistic:  # type: ignore[override]
        """Softplus of logits with the bias; made anew, because libraries replace parameters."""
        return Logistic(self.bias, self.relative_bias)

    def training_map(self, logit_map: LogitMap) -> LogitMap:
        """Returns the strategy's map, which a relative bias takes only with one scale for all pairs."""
        if self.relative_bias and not (isinstance(logit_map, ScaleMap) and logit_map.uniform):
            raise ConfigError(
                f"{self.where('relative_bias', True)} needs one scale for all pairs: use strategy fixed, learnable, macl or "
                "schedule, or relative_bias=false."
            )
        return logit_map

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns the sum over positives and negatives, [N]."""
        return statistics.positive_lse + statistics.negative_lse


class Logistic(Softplus):
    """Softplus of logits with a learned bias [1], which the scale of the logits multiplies if it is ``relative``."""

    def __init__(self, bias: Tensor, relative: bool) -> None:
        self.bias, self.relative = bias, relative

    def offset(self, logit_map: LogitMap) -> Tensor:
        """Returns b, or -scale·b if it is relative, []."""
        bias = self.bias.squeeze()
        return -bias * logit_map.scale if self.relative and isinstance(logit_map, ScaleMap) else bias
