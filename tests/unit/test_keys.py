"""Positives by keys: rows with equal ones are each other's positives, as by labels, in the layout ``cross-view``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, ShapeError, TempplugError
from tempplug.targets import of_keys

SIZE, HARD, PAST, WIDTH = 9, 2, 5, 6
LAYOUT = "cross-view:positives=keys"
BOTH = f"{LAYOUT},directions=ab+ba,softmax=separate"
KEYS = torch.tensor([3, 1, 3, 7, 1, 3, -2, 8, 8])


def rows(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


A, B, HARD_ROWS, QUEUE = rows(SIZE, seed=1), rows(SIZE, seed=2), rows(SIZE, HARD, seed=3), rows(PAST, seed=4).detach()


def agree(loss: Tensor, expected: Tensor, *leaves: Tensor, bound: float = 1e-10) -> None:
    torch.testing.assert_close(loss, expected, rtol=bound, atol=bound)
    gradients = [torch.autograd.grad(value, leaves, retain_graph=True) for value in (loss, expected)]
    torch.testing.assert_close(*gradients, rtol=bound, atol=bound)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_the_loss_is_that_of_supervised_contrastive_learning(symmetric: bool, engine: Any) -> None:
    """Khosla et al. 2020, eq. 2, with the rows of the other view as candidates."""
    same, logits = KEYS[:, None] == KEYS, normalize(A) @ normalize(B).T / 0.2
    directions = (logits, logits.T) if symmetric else (logits,)
    losses = [-(log_softmax(of_block, 1) * same).sum(1).div(same.sum(1)).mean() for of_block in directions]
    loss_fn = ContrastiveLoss(0.2, layout=BOTH if symmetric else LAYOUT, engine=engine)
    agree(loss_fn(A, B, keys=KEYS), sum(losses) / len(losses), A, B)
    of_targets = ContrastiveLoss(0.2, layout="cross-view", symmetric=symmetric)(A, B, targets=of_keys(KEYS).double())
    agree(loss_fn(A, B, keys=KEYS), of_targets, A, B)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("objective", ["infonce", "dcl", "flatnce", "sigmoid:initial_bias=-1", "sogclr:size=9"])
@pytest.mark.parametrize("strategy", ["macl", "dystress", "learnable"])
def test_the_loss_is_that_of_masks(strategy: str, objective: str, engine: Any) -> None:
    """With candidates of a queue that have keys, and hard negatives of which some have the key of an anchor."""
    queue, keys = torch.tensor([7, 100, 1, 5, -2]), {"view_a": KEYS, "view_b": KEYS.roll(1)}
    hard = torch.arange(SIZE * HARD).view(SIZE, HARD)
    given: dict[str, Any] = {"index": torch.arange(SIZE)} if objective.startswith("sogclr") else {}
    parts: dict[str, Any] = {"negatives": "hardness:strength=2", "engine": engine}
    loss_fn = ContrastiveLoss(strategy, objective, LAYOUT, **parts).double()
    of_rows = {**keys, "queue": queue, "hard_negatives": hard}
    loss = loss_fn(A, B, queue=QUEUE, hard_negatives=HARD_ROWS, keys=of_rows, **given)
    positive = KEYS[:, None] == torch.cat([KEYS.roll(1), queue, hard.flatten()])
    candidates = torch.cat([B, QUEUE, HARD_ROWS.flatten(0, 1)])
    masks = {"positive_mask": positive, "negative_mask": ~positive}
    expected = ContrastiveLoss(strategy, objective, "masks", **parts).double()(A, candidates, **masks, **given)
    agree(loss, expected, A, B, HARD_ROWS)
    assert loss_fn.record.engine == engine


def test_candidates_without_keys_are_negatives_and_scores_take_keys() -> None:
    unknown = torch.arange(100, 100 + PAST), torch.arange(200, 200 + SIZE * HARD).view(SIZE, HARD)
    loss_fn = ContrastiveLoss(0.2, layout=LAYOUT)
    views = {"view_a": KEYS, "view_b": KEYS}
    told = loss_fn(
        A, B, queue=QUEUE, hard_negatives=HARD_ROWS, keys={**views, "queue": unknown[0], "hard_negatives": unknown[1]}
    )
    for keys in (KEYS, views, {**views, "hard_negatives": unknown[1]}):
        agree(loss_fn(A, B, queue=QUEUE, hard_negatives=HARD_ROWS, keys=keys), told, A, B, HARD_ROWS)
    scores = normalize(A) @ normalize(torch.cat([B, HARD_ROWS.flatten(0, 1)])).T
    agree(loss_fn.from_scores(scores, keys=KEYS), loss_fn(A, B, hard_negatives=HARD_ROWS, keys=KEYS), A, B, HARD_ROWS)


def test_rows_without_a_candidate_of_their_key_leave_the_mean() -> None:
    keys = {"view_a": KEYS, "view_b": torch.where(KEYS == 3, 50, KEYS)}
    losses = ContrastiveLoss(0.2, layout=LAYOUT, reduction="none")(A, B, keys=keys)
    assert losses[KEYS == 3].eq(0).all()
    torch.testing.assert_close(ContrastiveLoss(0.2, layout=LAYOUT)(A, B, keys=keys), losses[KEYS != 3].mean())


@pytest.mark.parametrize(
    ("layout", "given", "message"),
    [
        (LAYOUT, {}, "positives=keys of layout 'cross-view' needs keys= of both views, an integer a row"),
        (LAYOUT, {"keys": {"view_a": KEYS}}, "positives=keys of layout 'cross-view' needs keys= of both views"),
        (LAYOUT, {"keys": KEYS.float()}, r"keys= holds torch.float32 of shape \[9\]; wanted an integer a row"),
        (LAYOUT, {"keys": KEYS, "targets": torch.eye(SIZE)}, "targets= needs layout 'cross-view' with .* and positives=row"),
        ("cross-view", {"keys": KEYS}, "keys= is no argument of this loss"),
    ],
)
def test_other_arguments_are_refused(layout: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(layout=layout)(A, B, **given)


@pytest.mark.parametrize("options", ["directions=ab+aa", "directions=ab+ba", "hard=own", "in_batch=false"])
def test_layouts_whose_negatives_keys_do_not_tell_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match="positives=keys of layout 'cross-view' needs directions=ab, or ab"):
        ContrastiveLoss(layout=f"{LAYOUT},{options}")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"keys of shape \[3\] must have 9 rows"):
        ContrastiveLoss(layout=LAYOUT)(A, B, keys=KEYS[:3])  # type: ignore[arg-type]
