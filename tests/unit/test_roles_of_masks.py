"""Masks that say what positions say: recognised, with the same losses; what is nearly so stays with its masks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.layouts import CrossView, Labels, Masks, PairLayout
from tempplug.roles import PairRoles, roles_of_masks

OWN = torch.eye(5, dtype=torch.bool)
NONE = torch.zeros(5, 5, dtype=torch.bool)


def found(positive: Tensor, negative: Tensor) -> tuple[PairRoles, bool]:
    """Returns the roles, and whether positions say them; they mean what the masks meant in either case."""
    roles = roles_of_masks(positive, negative)
    indices = roles.tile(slice(None), slice(None))
    assert torch.equal(roles.positive(*indices).expand_as(positive), positive)
    assert torch.equal(roles.negative(*indices).expand_as(negative), negative)
    assert torch.equal(roles.positive_count(), positive.sum(1))
    assert torch.equal(roles.negative_count(), negative.sum(1))
    return roles, roles.positives is not None


@pytest.mark.parametrize("shift", [0, 3])
def test_a_diagonal_of_positives_among_negatives_is_a_pairing(shift: int) -> None:
    positive = torch.cat([NONE, NONE], 1)
    positive.diagonal(shift).fill_(True)
    roles, by_position = found(positive, ~positive)
    assert by_position
    assert roles.positives is not None
    assert roles.positives.runs == ((0, 5, shift),)
    assert roles.ignored is None


def test_another_diagonal_may_be_left_out() -> None:
    """As GRACE's anchors are among the negatives of their own view."""
    positive, negative = torch.cat([OWN, NONE], 1), torch.cat([~OWN, ~OWN], 1)
    roles, by_position = found(positive, negative)
    assert by_position
    assert roles.ignored is not None
    assert roles.ignored.runs == ((0, 5, 5),)


def several() -> dict[str, tuple[Tensor, Tensor]]:
    """Returns masks that no pairing says."""
    second = OWN | OWN.roll(1, 1)
    lacking = OWN.clone()
    lacking[2, 2] = False
    moved = OWN[[1, 0, 2, 3, 4]]
    one_less, wandering = ~OWN, ~OWN
    one_less = one_less.clone()
    one_less[3, 1] = False
    wandering = wandering & ~OWN.roll(1, 1)  # whose last row leaves out the first column
    return {
        "several positives": (second, ~second),
        "a row without positive": (lacking, ~lacking),
        "another order": (moved, ~moved),
        "a pair without role": (OWN, one_less),
        "a diagonal that goes round": (OWN, wandering),
        "no positives": (NONE, ~NONE),
        "no negatives but one row's": (OWN, torch.cat([~OWN[:1], NONE[1:]])),
    }


@pytest.mark.parametrize("case", several())
def test_other_masks_stay(case: str) -> None:
    assert not found(*several()[case])[1]


def test_the_loss_is_that_of_the_layout() -> None:
    a, b = torch.randn(2, 5, 3, dtype=torch.float64)
    layouts: list[PairLayout] = [Masks(), CrossView()]
    losses = [ContrastiveLoss(layout=layout, reduction="none") for layout in layouts]
    by_mask = losses[0](a, b, positive_mask=OWN, negative_mask=~OWN)
    torch.testing.assert_close(by_mask, losses[1](a, b), rtol=1e-12, atol=0)
    first, second = (loss.record.to_dict() for loss in losses)
    assert first.pop("engine") == second.pop("engine") == "tiled"
    assert first == pytest.approx(second, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 2, 7, 7], [5, 5, 5, 5, 5, 5, 5, 5], [-3, 900, 0, 1, 2, 3, 4, 6]])
def test_counts_of_classes_are_those_of_the_pairs(labels: list[int], size: int, extra: int) -> None:
    classes = torch.tensor(labels)
    roles = Labels.roles(classes, classes, size, 0, extra)
    indices = roles.tile(slice(None), slice(None))
    positive = roles.positive(*indices).expand(8, 8 + extra).sum(1)
    negative = roles.negative(*indices).expand(8, 8 + extra).sum(1)
    assert torch.equal(roles.positive_count(), positive)
    assert torch.equal(roles.negative_count(), negative)
