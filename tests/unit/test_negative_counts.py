"""How many negatives an anchor has: those left in, whoever leaves out the others, and the same loss for the same negatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss, Objective
from tempplug.types import Auxiliary, RowStatistics

N, SIZE = 9, 32
KEYS = torch.arange(N) % 4
# Each leaves out the same pairs: the first by a term, as masks do.
READERS = {
    "debiased": ("fixed", "infonce", "debiased:prior=0.1"),
    "sogclr": ("fixed", f"sogclr:size={SIZE},gamma=0.6", ""),
    "individual": (f"individual:size={SIZE},learning_rate=0.3", "infonce", ""),
    "second temperature": ("fixed", "dual-temperature:second_temperature=0.3", "debiased:prior=0.2"),
    "sigmoid": ("fixed", "sigmoid:initial_bias=-1", ""),
}


def rows(seed: int, count: int = N) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def guide_of_keys() -> dict[str, Tensor]:
    """A guide that finds rows of one key alike, and others not."""
    one_hot = torch.nn.functional.one_hot(KEYS).double()
    return {"view_a": one_hot, "view_b": one_hot}


def outcome(reader: str, layout: str, negatives: str, engine: Any, steps: int, **given: Any) -> list[Tensor]:
    """Losses and gradients of some steps, and the state."""
    strategy, objective, own_terms = READERS[reader]
    terms = "+".join(each for each in (negatives, own_terms) if each)
    loss_fn = ContrastiveLoss(strategy, objective, layout, negatives=terms or None, engine=engine).double()
    results = []
    for step in range(steps):
        views = [rows(2 * step).requires_grad_(), rows(2 * step + 1).requires_grad_()]
        arguments = dict(given)
        loss = loss_fn(*views, **arguments, **loss_fn.accepted(index=torch.arange(N)))
        results += [loss.detach(), *torch.autograd.grad(loss, views)]
    return results + [each.detach() for each in loss_fn.buffers()]


@pytest.mark.parametrize(
    ("reader", "term", "engine"),
    every_pair(list(READERS), ["same-key", "within-group", "guide:margin=-0.5", "weight=0"], ["dense", "tiled"]),
)
def test_negatives_that_a_term_leaves_out_are_those_that_masks_leave_out(reader: str, term: str, engine: str) -> None:
    left_out = KEYS[:, None] == KEYS
    given: dict[str, Any] = {"keys": KEYS}
    if term == "within-group":
        left_out, given = ~left_out, {"groups": KEYS}
    elif term.startswith("guide"):
        given = {"guide": guide_of_keys()}
    elif term == "weight=0":
        term, given = "guide:margin=-0.5,weight=0", {"guide": guide_of_keys()}
    masks = {"positive_mask": torch.eye(N).bool(), "negative_mask": ~left_out & ~torch.eye(N).bool()}
    expected = outcome(reader, "masks", "", engine, 2, **masks)
    for found, wanted in zip(outcome(reader, "cross-view", term, engine, 2, **given), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_the_estimate_without_false_negatives_is_that_of_the_formula(engine: str) -> None:
    tau, prior, a, b = 0.1, 0.1, normalize(rows(0)), normalize(rows(1))
    losses = []
    for row in range(N):
        kept = [torch.exp(a[row] @ b[other] / tau) for other in range(N) if KEYS[other] != KEYS[row]]
        positive = torch.exp(a[row] @ b[row] / tau)
        estimate = (sum(kept) - prior * len(kept) * positive) / (1 - prior)
        floor = torch.tensor(len(kept)).double() * torch.exp(torch.tensor(-1 / tau).double())
        losses.append(-torch.log(positive / (positive + torch.maximum(torch.as_tensor(estimate), floor))))
    loss_fn = ContrastiveLoss(tau, layout="cross-view", negatives="same-key+debiased:prior=0.1", engine=engine)  # type: ignore[arg-type]
    found = loss_fn(rows(0), rows(1), keys=KEYS)
    torch.testing.assert_close(found, torch.stack(losses).mean(), rtol=1e-12, atol=0)


class Count(Objective):
    """A third party's, written before there was a count of what terms leave in: the loss is the number of negatives."""

    name = "count"
    several_positives = True
    without_negatives = True

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return statistics.negative_count + 0 * statistics.positive_logit


def counted(layout: str, engine: str, negatives: str | None, *views: Tensor, **given: Any) -> list[int]:
    loss_fn = ContrastiveLoss("fixed", Count(), layout, negatives=negatives, reduction="none", engine=engine)  # type: ignore[arg-type]
    return [int(each) for each in loss_fn(*views, **given)]


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_a_weight_between_0_and_1_counts_as_one_and_a_weight_of_0_does_not(engine: str) -> None:
    views = rows(0), rows(1)
    other_keys = [int((key != KEYS).sum()) for key in KEYS]
    own_guide = {"guide": guide_of_keys()}
    assert counted("cross-view", engine, None, *views) == [N - 1] * N
    assert counted("cross-view", engine, "same-key", *views, keys=KEYS) == other_keys
    assert counted("cross-view", engine, "guide:margin=-0.5,weight=0.01", *views, **own_guide) == [N - 1] * N
    assert counted("cross-view", engine, "guide:margin=-0.5", *views, **own_guide) == other_keys
    assert counted("cross-view", engine, "hardness:strength=9", *views) == [N - 1] * N
    twice = [2 * int((key != KEYS).sum()) for key in KEYS] * 2
    assert counted("two-view", engine, "same-key", *views, keys=KEYS) == twice
    assert (
        counted("labels", engine, "within-group", *views, labels=torch.arange(N), groups=KEYS)
        == [2 * int((key == KEYS).sum()) - 2 for key in KEYS] * 2
    )
    joint = "cross-view:directions=ab+aa+ba+bb"
    assert counted(joint, engine, "same-key", *views, keys=KEYS) == [4 * each for each in other_keys]


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_hard_negatives_that_are_not_there_or_of_other_rows_are_not_counted(engine: str) -> None:
    views, hard = (rows(0), rows(1)), rows(2, 2 * N).view(N, 2, 6)
    there = torch.arange(N)[:, None] > torch.tensor([3, 6])
    of_row, total = there.sum(1), int(there.sum())
    given = {"hard_negatives": hard, "hard_negative_mask": there}
    assert counted("cross-view", engine, None, *views, **given) == [N - 1 + total] * N
    assert counted("two-view", engine, None, *views, **given) == [2 * N - 2 + total] * N + [2 * N - 2] * N
    assert counted("cross-view:hard=own", engine, None, *views, **given) == (N - 1 + of_row).tolist()
    expected = [2 * (N - 1) + 2 * total - int(each) for each in of_row]
    assert counted("cross-view:directions=ab+bb", engine, None, *views, **given) == expected


def test_many_tiles_count_what_one_tile_does() -> None:
    many = rows(0, 700), rows(1, 700)
    keys = torch.arange(700) % 23
    for layout, times in (("two-view", 2), ("cross-view", 1)):
        expected = [times * int((keys != key).sum()) for key in keys] * times
        assert counted(layout, "tiled", "same-key", *many, keys=keys) == expected


@pytest.mark.parametrize("objective", ["infonce", "dcl", "sigmoid"])
def test_an_anchor_whose_negatives_are_all_left_out_is_one_without_negatives(objective: str) -> None:
    loss_fn = ContrastiveLoss("fixed", objective, "cross-view", negatives="same-key")  # type: ignore[arg-type]
    keys = torch.tensor([3, 3, 3, 3])
    with pytest.warns(RuntimeWarning, match="leaves 4 of 4 anchors without a negative"):
        loss_fn(rows(0, 4), rows(1, 4), keys=keys)
    assert loss_fn.record.anchors_without_negative == 4
