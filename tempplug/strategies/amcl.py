"""AMCL: one learned temperature for every pair, held in check by a regulariser inside the logit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.embeddings import unit_rows
from tempplug.options import Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, PairTemperatureMap
from tempplug.types import Batch

SMALL_FLOOR = 1e-3


@dataclass(eq=False, repr=False)
class AMCL(Strategy):
    """Divides s_ij by τ_ij = ι/(1 + exp⟨φ(z_i), φ(z_j)⟩) + η, and subtracts β·Ω(τ_ij), Ω(τ) = (D/2)·ln τ + 1/τ.

    φ is one linear layer, learned with the encoder and shared by all heads: give `tempplug.ContrastiveLoss` one list of
    embeddings a view, one a head. With the regulariser inside the logit, the paper's soft forms are existing objectives:
    ``dcl`` is its NT-Xent form (the positive is no candidate), ``infonce`` that of CAN and LGP. Its top-κ form is ``amcl-top``.

    A negative with s < β has its stationary temperature at a maximum of the loss: ι and η, and not Ω alone, bound the
    temperatures, so a floor below 1e-3 warns.

    Args:
        dimension: D of the embeddings, at least 1 and at most 65,536; others raise `ShapeError` at a call.
        span: ι, from 1e-9 to 1e9; temperatures lie in (η, η + ι).
        floor: η, from 1e-9 to 1e9.
        beta: β, weight of the regulariser, from 0 to 1e6; 1 is the maximum-likelihood value.

    Source: "Adaptive Multi-head Contrastive Learning", eqs. 5-7 and section 3. The paper gives only ranges of search for ι, η
    and β. It does not say whether φ takes embeddings or unit embeddings: here it takes unit rows, as its derivation assumes.
    The constant of its eq. 5 is misprinted and drops out.

    >>> AMCL(dimension=8).spec()
    'amcl:dimension=8,span=2,floor=0.05,beta=1'
    """

    name: ClassVar[str] = "amcl"
    formula: ClassVar[str] = "l_ij = s_ij/τ_ij - β·((D/2)·ln τ_ij + 1/τ_ij), τ_ij = ι/(1 + exp⟨φ(z_i), φ(z_j)⟩) + η, φ learned"
    source: ClassVar[str] = "Wang et al. 2024, Adaptive Multi-head Contrastive Learning, eqs. 5-7"
    remedy: ClassVar[str] = "choose a smaller beta, another floor or span, or a projection head that ends in a normalisation"

    dimension: Annotated[int, Number(at_least=1, at_most=65536, integer=True, help="D of the embeddings")]
    span: Annotated[float, Temperature(search=(0.1, 5), help="ι, temperatures lie between η and η + ι")] = 2.0
    floor: Annotated[float, Temperature(search=(0.01, 1), help="η, below every temperature")] = 0.05
    beta: Annotated[float, Number(at_least=0, at_most=1e6, search=(0.1, 10), help="β, weight of the regulariser")] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.floor < SMALL_FLOOR:
            warnings.warn(
                f"{self.where('floor', self.floor)} is below {SMALL_FLOOR:g}: temperatures of dissimilar negatives can run "
                "towards it, and the loss of dcl and amcl-top towards minus infinity with them.",
                RuntimeWarning,
                stacklevel=2,
            )
        self.phi = nn.Linear(self.dimension, self.dimension)

    def temperature_of(self, first: Tensor, second: Tensor) -> Tensor:
        """Returns τ of paired raw rows [P, D], [P] in at least float32; gradient flows to φ and to the rows.

        This and the two methods below are for losses that are no `tempplug.ContrastiveLoss` (SimSiam, Barlow Twins).
        """
        left, right = (self._project(unit_rows(rows)[0]) for rows in (first, second))
        return PairTemperatureMap.temperature_at((left * right).sum(-1), self.span, self.floor)

    def temperature_between(self, first: Tensor, second: Tensor, share: float = 1.0) -> Tensor:
        """Returns τ of every pair of raw rows [N, D] and [M, D], [N, M] in at least float32, with gradient.

        ``share`` is a factor of φ's gradient alone: the step of φ where a loss is a sum and not a mean.
        """
        left, right = (self._project(unit_rows(rows)[0], share) for rows in (first, second))
        return PairTemperatureMap.temperature_at(left @ right.T, self.span, self.floor)

    def relative_regularizer(self, temperature: Tensor) -> Tensor:
        """Returns Ω in units of D/2, but for a constant, for temperatures u in units of 2/D: ln u + 1/u, lowest at u = 1."""
        return PairTemperatureMap.regularizer_at(temperature, 2)

    def bounds(self) -> dict[str, float]:
        """Returns η and η + ι."""
        return {"floor": self.floor, "floor + span": self.floor + self.span}

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the map with φ of all anchors and candidates."""
        if batch.anchors is None or batch.candidates is None:
            raise self.missing("the embeddings of anchors and candidates", "view_a")
        anchors = self._project(batch.anchors)
        same = batch.candidates is batch.anchors
        candidates = anchors if same else self._project(batch.candidates)
        return PairTemperatureMap(anchors, candidates, self.span, self.floor, self.beta)

    def _project(self, rows: Tensor, share: float = 1.0) -> Tensor:
        weight, bias = self.layer_for(rows, self.phi, "phi")
        if share != 1:
            weight, bias = (parameter.detach() + share * (parameter - parameter.detach()) for parameter in (weight, bias))
        return F.linear(rows, weight, bias)
