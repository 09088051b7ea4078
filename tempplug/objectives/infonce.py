"""InfoNCE: the cross-entropy of the positives among all candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.logit_map import LogitMap, Rows
from tempplug.objectives.base import Objective, softplus
from tempplug.options import Choice, Number
from tempplug.precision import at_least_float32
from tempplug.types import Auxiliary, RowStatistics


@dataclass(eq=False, repr=False)
class InfoNCE(Objective):
    """-log P(positive), averaged over the positives of an anchor.

    With one positive this is softplus(d), d = negative_lse - positive_logit: SimCLR's NT-Xent, SimCSE's and CLIP's loss. With
    several it is SupCon's outer form, and with ``targets`` t the cross-entropy -Σ_j t_ij ln p_ij. An anchor without a negative
    has loss 0 where it has one positive.

    A margin m makes the similarity s of every positive smaller before the strategy's map, ``additive`` to s - m, ``angular`` to
    cos(θ + m) with θ = arccos s. Negatives, the record but for ``loss``, and what strategies and terms see have none.

    Args:
        margin: m, at least 0, of ``additive`` in units of the similarities, of ``angular`` in radians, below π.
        margin_kind: ``additive`` or ``angular``; the latter needs cosines.

    Source: van den Oord et al. 2018, eq. 4; Khosla et al. 2020, eq. 2; of the margins AM-softmax (Wang et al. 2018, eq. 5;
    CosFace) and ArcFace (Deng et al. 2019, eq. 3), both there of classes.
    """

    name: ClassVar[str] = "infonce"
    formula: ClassVar[str] = "-l⁺ + ln(Σ⁺ exp l + Σ⁻ exp l)"
    source: ClassVar[str] = "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"
    reads_negative_count: ClassVar[bool] = False
    several_positives: ClassVar[bool] = True
    without_negatives: ClassVar[bool] = True
    soft_targets: ClassVar[bool] = True

    margin: Annotated[float, Number(at_least=0, at_most=1e9, search=(0, 0.5), help="m, how much closer positives must be")] = (
        0.0
    )
    margin_kind: Annotated[
        str,
        Choice(("additive", "angular"), search=False, help="m is of similarities, or of angles in radians"),
    ] = "additive"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cosines_only = self.margin > 0 and self.margin_kind == "angular"
        if self.cosines_only and self.margin >= math.pi:
            raise ConfigError(f"{self.where('margin', self.margin)} must be below π with margin_kind=angular.")

    def spec(self) -> str:
        """Returns the spec string, without options where all have their default, as before there were margins."""
        return super().spec() if self.margin or self.margin_kind == "angular" else self.name

    def positive_map(self, logit_map: LogitMap) -> LogitMap | None:
        """Returns the map of positives where there is a margin."""
        return MarginMap(logit_map, self.margin, self.margin_kind == "angular") if self.margin else None

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns logaddexp(positive_lse, negative_lse) - positive_logit, [N]."""
        # Written around the positives' own difference, so that a loss of 1e-9 keeps its digits beside logits of 200.
        loss = softplus(statistics.negative_lse - statistics.positive_lse)
        if statistics.positive_lse is statistics.positive_logit:
            return loss
        return loss + (statistics.positive_lse - statistics.positive_logit)


class MarginMap(LogitMap):
    """l(s - m), or if ``angular`` l(cos(θ + m)) with θ = arccos s, l being another map.

    Where θ + m > π the cosine would rise again. There the similarity is s - m·sin m, as in ArcFace's released code, which falls
    with θ. Angles below 2√ε, 7e-4 in float32, are rounding and count as 0, where the formula's slope has no bound.

    >>> from tempplug.strategies.maps import ScaleMap
    >>> MarginMap(ScaleMap(torch.tensor(10.0)), 0.2, False).logit(torch.tensor([0.5, -0.2]))
    tensor([ 3., -4.])
    """

    def __init__(self, logit_map: LogitMap, margin: float, angular: bool) -> None:
        self.inner, self.margin, self.angular = logit_map, margin, angular
        self.uniform, self.symmetric, self.products = logit_map.uniform, logit_map.symmetric, logit_map.products

    def _shift(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the similarity with the margin, and its slope without gradient."""
        s = at_least_float32(similarity)
        if not self.angular:
            return s - self.margin, torch.ones_like(s)
        cosine, sine, smallest = math.cos(self.margin), math.sin(self.margin), 4 * torch.finfo(s.dtype).eps
        square = (1 - s) * (1 + s)
        inside, turned, root = s >= -cosine, square > smallest, square.clamp(min=smallest).sqrt()
        slope = torch.where(inside, cosine + sine * (s / root).where(turned, 0.0), 1.0)
        shifted = torch.where(inside, s * cosine - sine * root.where(turned, 0.0), s - self.margin * sine)
        return shifted, slope.detach()

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns the other map's logit of the similarity with the margin."""
        return self.inner.logit(self._shift(similarity)[0])

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns the other map's slope there, times that of the similarity with the margin."""
        shifted, slope = self._shift(similarity)
        return self.inner.slope(shifted) * slope

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns the other map's temperature there."""
        return self.inner.temperature(self._shift(similarity)[0])

    def logit_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns base-2 logits and slopes, of a map with products those along them as well."""
        if not self.products:
            return super().logit_and_slopes_(similarity)
        shifted, slope = self._shift(similarity)
        logit, along, *others = self.inner.logit_and_slopes_(shifted)
        return logit, along * slope, *others

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map of these anchors and candidates."""
        return MarginMap(self.inner.restrict(rows, columns, paired), self.margin, self.angular)

    def with_candidates(self, candidates: Sequence[Tensor]) -> LogitMap:
        """Returns the map of the same anchors and other candidates."""
        return MarginMap(self.inner.with_candidates(candidates), self.margin, self.angular)

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns what the other map learns."""
        return self.inner.tensors()
