"""Masks that hold what positions hold: recognised, with the same roles; what is nearly so stays with its masks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.layouts import Labels
from tempplug.roles import PairRoles, roles_of_masks

OWN = torch.eye(5, dtype=torch.bool)
NONE = torch.zeros(5, 5, dtype=torch.bool)


def found(positive: Tensor, negative: Tensor) -> PairRoles:
    """Returns the roles, which mean what the masks meant."""
    roles = roles_of_masks(positive, negative)
    check_counts(roles, *roles.shape[:2])
    indices = roles.tile(slice(None), slice(None))
    assert torch.equal(roles.positive(*indices).expand_as(positive), positive)
    assert torch.equal(roles.negative(*indices).expand_as(negative), negative)
    return roles


def check_counts(roles: PairRoles, rows: int, columns: int) -> None:
    indices = roles.tile(slice(None), slice(None))
    assert torch.equal(roles.positive_count, roles.positive(*indices).expand(rows, columns).sum(1))
    assert torch.equal(roles.negative_count, roles.negative(*indices).expand(rows, columns).sum(1))


# Positives and negatives; the runs of positives, and of pairs without a role: (first row, behind the last, columns further).
DIAGONALS = {
    "among negatives": (OWN, ~OWN, 0, None),
    "further right": (torch.cat([NONE, OWN], 1), torch.cat([~NONE, ~OWN], 1), 5, None),
    # as GRACE's anchors are among the negatives of their own view
    "another one left out": (torch.cat([OWN, NONE], 1), torch.cat([~OWN, ~OWN], 1), 0, 5),
}


@pytest.mark.parametrize("case", DIAGONALS)
def test_a_diagonal_of_positives_is_a_pairing_and_with_a_pair_more_or_less_it_is_none(case: str) -> None:
    """Each pair in turn that is a negative, or left out, becomes the other, or a second positive."""
    positive, negative, shift, ignored = DIAGONALS[case]
    roles = found(positive, negative)
    assert roles.positives is not None
    assert roles.positives.runs == ((0, 5, shift),)
    assert (roles.ignored and roles.ignored.runs) == (None if ignored is None else ((0, 5, ignored),))
    for row, column in (~positive).nonzero().tolist():
        changed, second = negative.clone(), positive.clone()
        changed[row, column] ^= True
        second[row, column] = True
        assert found(positive, changed).positives is None
        assert found(second, negative & ~second).positives is None


def several() -> dict[str, tuple[Tensor, Tensor]]:
    """Returns masks that no pairing says."""
    lacking, moved = OWN.clone(), OWN[[1, 0, 2, 3, 4]]
    lacking[2, 2] = False
    return {
        "a row without positive": (lacking, ~lacking),
        "another order": (moved, ~moved),
        "a diagonal that goes round": (OWN, ~OWN & ~OWN.roll(1, 1)),  # whose last row leaves out the first column
        "no positives": (NONE, ~NONE),
        "no negatives but one row's": (OWN, torch.cat([~OWN[:1], NONE[1:]])),
    }


@pytest.mark.parametrize("case", several())
def test_other_masks_stay(case: str) -> None:
    assert found(*several()[case]).positives is None


def test_the_loss_and_record_are_those_of_the_layout() -> None:
    a, b = torch.randn(2, 5, 3, dtype=torch.float64)
    masks, layout = (ContrastiveLoss(layout=each, reduction="none") for each in ("masks", "cross-view"))
    torch.testing.assert_close(masks(a, b, positive_mask=OWN, negative_mask=~OWN), layout(a, b), rtol=1e-12, atol=0)
    first, second = (loss_fn.record.to_dict() for loss_fn in (masks, layout))
    assert first.pop("engine") == second.pop("engine") == "tiled"
    assert first == pytest.approx(second, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 2, 7, 7], [5, 5, 5, 5, 5, 5, 5, 5], [-3, 900, 0, 1, 2, 3, 4, 6]])
def test_counts_of_classes_are_those_of_the_pairs(labels: list[int], size: int, extra: int) -> None:
    classes = torch.tensor(labels)
    check_counts(Labels.roles_of(classes, classes, size, 0, extra), 8, 8 + extra)
