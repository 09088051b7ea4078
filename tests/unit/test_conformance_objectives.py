"""`check_objective`: built-ins and a sound third party pass, and each broken part of the contract is named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tempplug import Objective, RowStatistics, create_objective
from tempplug.objectives.base import softplus
from tempplug.objectives.infonce import InfoNCE
from tempplug.testing import ConformanceError, check_objective
from tempplug.types import Auxiliary, ClosedForm


@pytest.mark.parametrize(
    "spec", ["infonce", "dcl", "flatnce", "reweighted", "dual-temperature", "dual-temperature:second_temperature=2"]
)
def test_built_in_objectives_conform(spec: str) -> None:
    check_objective(create_objective(spec))


def test_weighted_positives_conform_but_for_the_shift() -> None:
    check_objective(create_objective("dclw"), shift_invariant=False)
    with pytest.raises(ConformanceError, match=r"objective 'dclw': a constant added to all logits of a row changes its loss"):
        check_objective(create_objective("dclw"))


class Margin(Objective):
    """Sound: the squared hinge of the margin."""

    name = "margin"

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return (statistics.negative_lse - statistics.positive_logit + 1).clamp(min=0).square()


class Averaged(Margin):
    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return super().row_loss(statistics).mean()


class Overflowing(Margin):
    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return torch.log1p(torch.exp(statistics.negative_lse - statistics.positive_logit))


class Divided(Margin):
    """Finite in value, 0/0 in gradient."""

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        d = statistics.negative_lse - statistics.positive_logit
        return torch.where(d > 80, d, torch.log1p(torch.exp(d)))


class Absolute(Margin):
    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return super().row_loss(statistics) + statistics.positive_logit


class Constant(Margin):
    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return super().row_loss(statistics).detach()


class OneSided(Margin):
    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return statistics.negative_lse - statistics.positive_logit.detach()


class Anonymous(Margin):
    name = ""


def test_third_party_objective_conforms() -> None:
    check_objective(Margin())


class OnePositive(InfoNCE):
    """Right with one positive, wrong with several."""

    def closed_form(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> ClosedForm:
        difference = statistics.negative_lse - statistics.positive_lse
        extra = statistics.positive_lse - statistics.positive_logit
        return softplus(difference) + extra, torch.sigmoid(difference), None


def test_closed_forms_must_hold_for_several_positives() -> None:
    with pytest.raises(ConformanceError, match="closed_form returns a derivative that is not row_loss's"):
        check_objective(OnePositive())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Averaged, r"row_loss has shape \[\] for 401 anchors"),
        (Overflowing, r"row_loss is not finite for every d from -200 to 200 in torch.float32"),
        (Divided, r"the gradient of row_loss is missing or not finite in torch.float32"),
        (Absolute, "a constant added to all logits of a row changes its loss"),
        (Constant, "row_loss carries no gradient"),
        (OneSided, "the gradient of row_loss is missing or not finite"),
        (Anonymous, "the class has no name"),
    ],
)
def test_broken_objectives_are_named(kind: type[Objective], message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_objective(kind())


@pytest.mark.parametrize("thing", [Margin, "infonce", nn.Identity()], ids=["class", "spec", "module"])
def test_what_is_checked_must_be_an_instance(thing: object) -> None:
    with pytest.raises(ConformanceError, match=r"is not an instance of tempplug\.Objective"):
        check_objective(thing)  # type: ignore[arg-type]
