"""Targets as the probability of each pair under sigmoid, targets in both directions, and their record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_targets import HARD, SIZE, logits_of, rows, some_targets
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, logsigmoid, normalize

from tempplug import Batch, ContrastiveLoss, targets as make
from tempplug.errors import TempplugError


def probabilities(columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Of each pair by itself: rows of any sum, one without a positive, one without a negative, and pairs that are certain."""
    numbers = (some_targets(columns) * 2.5).clamp(max=1)
    numbers[2] = 0.5
    return numbers.to(dtype)


def binary_cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """The mean over rows with a positive of Σ_j -t_ij ln σ(l_ij) - (1 - t_ij) ln(1 - σ(l_ij))."""
    losses = -(wanted * logsigmoid(logits) + (1 - wanted) * logsigmoid(-logits)).sum(1)
    return losses[wanted.sum(1) > 0].mean()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("tile", [None, (4, 5)])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(
    ("strategy", "relative"),
    [("learnable", False), ("learnable", True), ("macl", False), ("dystress", False), ("temperature-free", False)],
)
def test_under_sigmoid_they_are_the_probability_of_each_pair(
    strategy: str, relative: bool, engine: Any, tile: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tempplug.engine import forward, tiles

    if tile is not None:
        monkeypatch.setattr(tiles, "SINGLE", 1)
        monkeypatch.setattr(tiles, "CPU_TILE", tile)
        monkeypatch.setattr(forward, "KEPT", 0)
    tiles.make_tiling.cache_clear()
    a, b, c, wanted = rows(SIZE, 2, dtype), rows(SIZE, 3, dtype), rows(HARD, 4, dtype), probabilities(SIZE + HARD)
    objective = f"sigmoid:relative_bias={str(relative).lower()},initial_bias={0.2 if relative else -2}"
    loss_fn = ContrastiveLoss(strategy, objective, layout="cross-view", engine=engine).to(dtype)
    loss = loss_fn(a, b, hard_negatives=c, targets=wanted.to(dtype))
    learned = list(loss_fn.parameters())
    found = torch.autograd.grad(loss, [a, b, c, *learned])
    tiles.make_tiling.cache_clear()
    exact = [leaf.detach().double().requires_grad_() for leaf in (a, b, c)]
    similarity = normalize(exact[0]) @ normalize(torch.cat(exact[1:])).T
    mean = (wanted * similarity).sum(1) / wanted.sum(1)
    exact_fn = loss_fn.double()
    logit_map = exact_fn.strategy.prepare(Batch(mean[wanted.sum(1) > 0].detach()))
    offset = exact_fn.objective.pair_function.offset(logit_map)  # type: ignore[union-attr]
    expected = binary_cross_entropy(logit_map.logit(similarity) + offset, wanted)
    bound = 1e-10 if dtype == torch.float64 else 2e-3 if strategy == "temperature-free" else 1e-5
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=bound)
    gradients = torch.autograd.grad(expected, [*exact, *exact_fn.parameters()])
    for ours, right in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=bound, atol=bound)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_under_sigmoid_targets_of_0_and_1_are_a_mask(engine: Any) -> None:
    a, b, positive, keys = rows(SIZE, 2), rows(SIZE, 3), some_targets(SIZE) > 0, torch.arange(SIZE) % 3
    parts: dict[str, Any] = {"objective": "sigmoid", "negatives": "same-key", "engine": engine}
    of_masks = ContrastiveLoss("macl", layout="masks", **parts)(
        a, b, positive_mask=positive, negative_mask=~positive, keys=keys
    )
    ours = ContrastiveLoss("macl", layout="cross-view", **parts)(a, b, targets=positive.double(), keys=keys)
    torch.testing.assert_close(ours, of_masks, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, (a, b)) for loss in (ours, of_masks)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    plain = ContrastiveLoss("macl", "sigmoid", "cross-view", engine=engine)
    torch.testing.assert_close(plain(a, b, targets=torch.eye(SIZE)), plain(a, b), rtol=1e-12, atol=1e-12)


def both_ways(of_ab: Tensor, of_ba: Tensor, wanted: tuple[Tensor, Tensor], of_pairs: bool = False) -> Tensor:
    """The mean over rows of that over the directions in which they have a positive, of logits [B, M] and [B, B]."""
    losses, kept = [], []
    for logits, targets in zip((of_ab, of_ba), wanted, strict=True):
        if of_pairs:
            losses.append(-(targets * logsigmoid(logits) + (1 - targets) * logsigmoid(-logits)).sum(1))
        else:
            losses.append(-(targets * log_softmax(logits, 1)).sum(1))
        kept.append(targets.sum(1) > 0)
    total = sum(loss * some for loss, some in zip(losses, kept, strict=True))
    counts = kept[0].long() + kept[1].long()
    return (total / counts.clamp(min=1))[counts > 0].mean()


def normalised(targets: Tensor) -> Tensor:
    return targets / targets.sum(1, keepdim=True).clamp(min=1e-30)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.1", "learnable", "macl", "dystress"])
@pytest.mark.parametrize("case", ["transpose", "pair", "hard", "sigmoid"])
def test_both_directions_take_the_transpose_or_a_pair(strategy: str, case: str, engine: Any, dtype: torch.dtype) -> None:
    a, b, c = rows(SIZE, 2, dtype), rows(SIZE, 3, dtype), rows(HARD, 4, dtype)
    hard, of_pairs = case == "hard", case == "sigmoid"
    of_ab = (probabilities if of_pairs else some_targets)(SIZE + HARD * hard)
    of_ba = of_ab[:, :SIZE].T if case != "pair" else normalised(some_targets(SIZE).roll(2, 1) ** 2)
    targets: Any = (of_ab.to(dtype), of_ba.to(dtype)) if case == "pair" else of_ab.to(dtype)
    objective = "sigmoid:initial_bias=-1" if of_pairs else "infonce"
    loss_fn = ContrastiveLoss(strategy, objective, "cross-view", symmetric=True, engine=engine).to(dtype)
    loss = loss_fn(a, b, **({"hard_negatives": c} if hard else {}), targets=targets)
    leaves = [a, b, *([c] if hard else [])]
    found = torch.autograd.grad(loss, leaves)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    unit = [normalize(leaf) for leaf in exact]
    similarity, loss_fn = unit[0] @ torch.cat(unit[1:]).T, loss_fn.double()
    wanted = (of_ab, of_ba) if of_pairs else (normalised(of_ab), normalised(of_ba))
    bias = -1 if of_pairs else 0
    logits = [
        logits_of(loss_fn, of_block, normalised(of_targets)) + bias
        for of_block, of_targets in zip((similarity, similarity[:, :SIZE].T), wanted, strict=True)
    ]
    expected = both_ways(*logits, wanted, of_pairs)
    bound = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=bound)
    for ours, right in zip(found, torch.autograd.grad(expected, exact), strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=bound, atol=bound)


def test_both_directions_of_one_hot_targets_are_the_plain_loss_and_those_of_scores_that_of_embeddings() -> None:
    a, b, c, wanted = rows(SIZE, 2), rows(SIZE, 3), rows(HARD, 4), some_targets(SIZE + HARD)
    loss_fn = ContrastiveLoss("learnable", layout="cross-view", symmetric=True)
    torch.testing.assert_close(loss_fn(a, b, targets=torch.eye(SIZE)), loss_fn(a, b), rtol=1e-12, atol=1e-12)
    scores = normalize(a) @ normalize(torch.cat([b, c])).T
    of_embeddings = loss_fn(a, b, hard_negatives=c, targets=wanted)
    torch.testing.assert_close(loss_fn.from_scores(scores, targets=wanted), of_embeddings, rtol=1e-12, atol=1e-12)


def test_the_loss_of_softclip_is_the_divergence_of_both_directions() -> None:
    """Gao et al. 2023: the divergence of each direction from the softmax of similarities within a modality."""
    images, captions = rows(SIZE, 2), rows(SIZE, 3)
    of_ab, of_ba = (make.within_modality(view, temperature=0.3) for view in (images, captions))
    loss = ContrastiveLoss(0.1, layout="cross-view", symmetric=True)(images, captions, targets=(of_ab, of_ba))
    logits = normalize(images) @ normalize(captions).T / 0.1
    pairs = ((logits, of_ab), (logits.T, of_ba))
    divergence = sum(kl_div(log_softmax(of_block, 1), soft, reduction="batchmean") for of_block, soft in pairs) / 2
    entropy = sum(-(soft * soft.log()).sum(1).mean() for _, soft in pairs) / 2
    torch.testing.assert_close(loss - entropy, divergence, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("strategy", ["fixed", "macl"])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_direction_without_any_positive_leaves_the_other(empty: int, strategy: str) -> None:
    a, b = rows(SIZE, 2), rows(SIZE, 3)
    pair = [some_targets(SIZE), some_targets(SIZE)]
    pair[empty] = torch.zeros(SIZE, SIZE)
    loss = ContrastiveLoss(strategy, layout="cross-view", symmetric=True)(a, b, targets=tuple(pair))
    views = (b, a) if empty == 0 else (a, b)
    one_way = ContrastiveLoss(strategy, layout="cross-view")(*views, targets=some_targets(SIZE))
    torch.testing.assert_close(loss, one_way, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(value, (a, b)) for value in (loss, one_way)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("symmetric", "targets", "message"),
    [
        (False, (torch.eye(SIZE), torch.eye(SIZE)), r"targets holds 2 tensors, and the layout has directions ab: wanted"),
        (True, (torch.eye(SIZE),) * 3, r"targets holds 3 tensors, and the layout has directions ab\+ba: wanted"),
        (True, (torch.eye(SIZE), torch.eye(SIZE) * 2), r"targets\[1\] holds row 0 with the sum 2; wanted"),
        (True, (torch.eye(SIZE), None), r"targets\[1\] is a NoneType; wanted a tensor \[B, M\]"),
        (True, (torch.eye(SIZE), torch.eye(SIZE, SIZE + 1)), r"targets of shape \[9, 10\] must be \[9, 9\]"),
        (True, [[1.0]], r"targets is a list; wanted a tensor \[B, M\]"),
    ],
)
def test_other_pairs_are_refused(symmetric: bool, targets: Any, message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(layout="cross-view", symmetric=symmetric)(rows(SIZE, 2), rows(SIZE, 3), targets=targets)


@pytest.mark.parametrize(("number", "message"), [(1.5, "number 1.5; wanted"), (-0.5, "number -0.5"), (torch.nan, "NaN")])
def test_probabilities_of_pairs_lie_between_0_and_1(number: float, message: str) -> None:
    wanted = torch.full((SIZE, SIZE), 0.25)
    wanted[2, 3] = number
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(0.1, "sigmoid", "cross-view")(rows(SIZE, 2), rows(SIZE, 3), targets=wanted)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_record_tells_how_much_probability_lies_where_the_targets_want_it(symmetric: bool) -> None:
    a, b, keys = rows(SIZE, 2), rows(SIZE, 3), torch.arange(SIZE) % 3
    loss_fn = ContrastiveLoss(0.3, layout="cross-view", symmetric=symmetric, negatives="same-key")
    logits = normalize(a) @ normalize(b).T / 0.3
    for wanted in (some_targets(SIZE), torch.eye(SIZE).double(), make.soft_targets(rows(SIZE, 7) @ rows(SIZE, 8).T)):
        loss_fn(a, b, targets=wanted, keys=keys)
        shared, losses = [], []
        for of_block, targets in ((logits, wanted), (logits.T, normalised(wanted.T)))[: 1 + symmetric]:
            left_out = (keys[:, None] == keys) & (targets == 0)
            probabilities_of_rows = of_block.masked_fill(left_out, -torch.inf).softmax(1)
            shared.append(torch.minimum(probabilities_of_rows, targets).sum(1)[targets.sum(1) > 0])
            losses.append(-torch.special.xlogy(targets, probabilities_of_rows).sum(1)[targets.sum(1) > 0])
        numbers = loss_fn.record.numbers()
        assert numbers["positive_probability"] == pytest.approx(torch.cat(shared).mean().item(), rel=1e-10)
        assert numbers["gradient_scale"] == pytest.approx(1 - torch.cat(shared).mean().item(), rel=1e-10)
        assert numbers["infonce"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-10)
        assert ("negative_similarity" in numbers) == bool((wanted == 0).any())
        assert numbers["anchors_without_negative"] == (0 if (wanted == 0).any() else SIZE * (1 + symmetric))
