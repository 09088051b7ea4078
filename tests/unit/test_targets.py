"""Targets: the cross-entropy with any distribution over the candidates, against its formula in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, logsigmoid, normalize

import tempplug
from tempplug import Batch, ContrastiveLoss, targets as make
from tempplug.errors import ConfigError, TempplugError

SIZE, HARD, WIDTH = 9, 4, 6


def rows(count: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (
        torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype).requires_grad_()
    )


def some_targets(columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """One row with one positive, one without, all others with several of different shares, none of them in its own place."""
    generator = torch.Generator().manual_seed(1)
    numbers = torch.rand(SIZE, columns, generator=generator, dtype=torch.float64)
    numbers *= torch.rand(SIZE, columns, generator=generator) < 0.4
    numbers[0] = torch.eye(columns, dtype=torch.float64)[3]
    numbers[4] = 0
    return (numbers / numbers.sum(1, keepdim=True).clamp(min=1e-30)).to(dtype)


def cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """The mean over rows with a positive of -Σ_j t_ij ln p_ij."""
    losses = -(wanted * log_softmax(logits, 1)).sum(1)
    return losses[wanted.sum(1) > 0].mean()


def logits_of(loss_fn: ContrastiveLoss, similarity: Tensor, wanted: Tensor) -> Tensor:
    strategy, kept = loss_fn.strategy, wanted.sum(1) > 0
    mean = (wanted * similarity).sum(1)[kept].detach()
    return strategy.prepare(Batch(mean)).logit(similarity)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(
    "strategy", ["fixed:temperature=0.1", "fixed:temperature=0.01", "learnable", "macl", "dystress", "temperature-free"]
)
@pytest.mark.parametrize("hard", [False, True])
def test_loss_and_gradients_are_those_of_the_formula(strategy: str, engine: Any, hard: bool, dtype: torch.dtype) -> None:
    a, b, c = rows(SIZE, 2, dtype), rows(SIZE, 3, dtype), rows(HARD, 4, dtype)
    wanted = some_targets(SIZE + HARD * hard, dtype)
    loss_fn = ContrastiveLoss(strategy, layout="cross-view", engine=engine).to(dtype)
    loss = loss_fn(a, b, **({"hard_negatives": c} if hard else {}), targets=wanted)
    assert loss_fn.record.engine == engine
    exact = [leaf.detach().double().requires_grad_() for leaf in (a, b, c)]
    similarity = normalize(exact[0]) @ normalize(torch.cat([exact[1], exact[2]] if hard else exact[1:2])).T
    expected = cross_entropy(logits_of(loss_fn.double(), similarity, wanted.double()), wanted.double())
    bound = 1e-10 if dtype == torch.float64 else 2e-4 if "0.01" in strategy or strategy == "temperature-free" else 1e-5
    torch.testing.assert_close(loss.double(), expected, rtol=bound, atol=bound)
    leaves = [a, b, *([c] if hard else [])]
    for ours, right in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, exact[: len(leaves)]), strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=bound, atol=bound)


@pytest.mark.parametrize(("single", "tile"), list(itertools.product([1, 1 << 17], [(4, 5), (256, 1024)])))
def test_tiles_of_any_size_kept_or_computed_again_give_the_same(
    single: int, tile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tempplug.engine import forward, tiles

    a, b, wanted = rows(SIZE, 2), rows(SIZE, 3), some_targets(SIZE)
    expected = torch.autograd.grad(
        ContrastiveLoss("dystress", layout="cross-view", engine="dense")(a, b, targets=wanted), (a, b)
    )
    monkeypatch.setattr(tiles, "SINGLE", single)
    monkeypatch.setattr(tiles, "CPU_TILE", tile)
    for kept in (0, 1 << 24):
        monkeypatch.setattr(forward, "KEPT", kept)
        tiles.make_tiling.cache_clear()
        loss = ContrastiveLoss("dystress", layout="cross-view", engine="tiled")(a, b, targets=wanted)
        for ours, right in zip(torch.autograd.grad(loss, (a, b)), expected, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)
    tiles.make_tiling.cache_clear()


def test_a_queue_lies_between_the_views_and_the_hard_negatives() -> None:
    a, b, past, hard = rows(SIZE, 2), rows(SIZE, 3), rows(5, 9).detach(), rows(HARD, 4)
    wanted = some_targets(SIZE + 5 + HARD)
    loss = ContrastiveLoss(0.1, layout="cross-view")(a, b, queue=past, hard_negatives=hard, targets=wanted)
    logits = normalize(a) @ normalize(torch.cat([b, past, hard])).T / 0.1
    torch.testing.assert_close(loss, cross_entropy(logits, wanted), rtol=1e-10, atol=1e-10)


def test_one_hot_targets_are_the_plain_loss_and_uniform_ones_that_of_masks() -> None:
    a, b = rows(SIZE, 2), rows(SIZE, 3)
    loss_fn = ContrastiveLoss("macl", layout="cross-view")
    torch.testing.assert_close(loss_fn(a, b, targets=torch.eye(SIZE)), loss_fn(a, b), rtol=1e-12, atol=1e-12)
    positive = some_targets(SIZE) > 0
    uniform = positive / positive.sum(1, keepdim=True).clamp(min=1)
    of_masks = ContrastiveLoss("macl", layout="masks")(a, b, positive_mask=positive, negative_mask=~positive)
    torch.testing.assert_close(loss_fn(a, b, targets=uniform.double()), of_masks, rtol=1e-12, atol=1e-12)


def test_the_loss_of_a_teacher_is_the_divergence_up_to_its_entropy() -> None:
    a, b, scores = rows(SIZE, 2), rows(SIZE, 3), rows(SIZE, 5).detach() @ rows(SIZE, 6).detach().T
    wanted = make.soft_targets(scores, 2.0)
    logits = normalize(a) @ normalize(b).T / 0.1
    divergence = kl_div(log_softmax(logits, 1), log_softmax(scores / 2, 1), reduction="batchmean", log_target=True)
    entropy = -(wanted * wanted.log()).sum(1).mean()
    loss = ContrastiveLoss(0.1, layout="cross-view")(a, b, targets=wanted)
    torch.testing.assert_close(loss - entropy, divergence, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", ["auto", "dense"])
def test_scores_of_each_rows_own_candidates_take_a_teacher(engine: Any) -> None:
    scores = torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    wanted = make.soft_targets(torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
    loss = ContrastiveLoss("fixed:temperature=0.5", layout="cross-view", engine=engine).from_scores(scores, targets=wanted)
    expected = cross_entropy(scores / 0.5, wanted)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    ours, right = torch.autograd.grad(loss, scores)[0], torch.autograd.grad(expected, scores)[0]
    torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)


def test_scores_of_own_hard_negatives_and_of_the_candidates_of_all_processes_have_the_loss_of_embeddings() -> None:
    """As late interaction has them, with documents gathered by the caller, where `gather` and hard=own are refused."""
    a, b, c = rows(SIZE + 1, 2), rows(SIZE + 1, 3), rows(2 * (SIZE + 1), 4).view(SIZE + 1, 2, WIDTH)
    unit, half = [normalize(view, dim=-1) for view in (a, b, c)], (SIZE + 1) // 2
    scores = torch.cat([unit[0] @ unit[1].T, (unit[0][:, None] * unit[2]).sum(2)], 1)
    one_hot = torch.eye(SIZE + 1, SIZE + 3, dtype=torch.float64)
    loss_fn = ContrastiveLoss("learnable", layout="cross-view")
    expected = ContrastiveLoss("learnable", layout="cross-view:hard=own")(a, b, hard_negatives=c)
    halves = [loss_fn.from_scores(scores[part], targets=one_hot[part]) for part in (slice(half), slice(half, None))]
    for loss in (loss_fn.from_scores(scores), sum(halves) / 2):
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        gradients = [torch.autograd.grad(value, (a, b, c), retain_graph=True) for value in (loss, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    with pytest.raises(ConfigError, match=r"gather=True has no meaning .* take gather=False and say by targets="):
        ContrastiveLoss("learnable", layout="cross-view", gather=True).from_scores(scores)
    with pytest.raises(ConfigError, match=r"Columns of hard negatives may be each row's own, also with hard=shared"):
        ContrastiveLoss("learnable", layout="cross-view:hard=own").from_scores(scores)


def test_terms_act_on_candidates_without_a_target_alone() -> None:
    a, b, wanted, keys = rows(SIZE, 2), rows(SIZE, 3), some_targets(SIZE), torch.arange(SIZE) % 3
    for engine in ("dense", "tiled"):
        loss_fn = ContrastiveLoss(0.1, layout="cross-view", negatives="same-key", engine=engine)  # type: ignore[arg-type]
        same = (keys[:, None] == keys) & (wanted == 0)
        logits = (normalize(a) @ normalize(b).T / 0.1).masked_fill(same, -torch.inf)
        losses = torch.logsumexp(logits, 1) - (wanted * logits.masked_fill(wanted == 0, 0.0)).sum(1)
        torch.testing.assert_close(
            loss_fn(a, b, targets=wanted, keys=keys), losses[wanted.sum(1) > 0].mean(), rtol=1e-10, atol=1e-10
        )


def test_keys_give_the_loss_of_supervised_contrastive_learning() -> None:
    a, b, keys = rows(SIZE, 2), rows(SIZE, 3), torch.arange(SIZE) // 2
    logits = normalize(a) @ normalize(b).T / 0.2
    same = keys[:, None] == keys
    supcon = -(log_softmax(logits, 1) * same).sum(1).div(same.sum(1)).mean()
    torch.testing.assert_close(ContrastiveLoss(0.2, layout="cross-view")(a, b, targets=make.of_keys(keys)), supcon)


def test_soft_assignments_are_those_of_the_paper_up_to_the_sum_of_a_row() -> None:
    a, b, distances = rows(SIZE, 2), rows(SIZE, 3), torch.cdist(rows(SIZE, 7).detach(), rows(SIZE, 8).detach())
    weights = 2 * 0.5 * logsigmoid(-3 * distances).exp()
    weights[range(SIZE), range(SIZE)] = 1
    paper = -(weights * log_softmax(normalize(a) @ normalize(b).T / 0.2, 1)).sum(1)
    loss_fn = ContrastiveLoss(0.2, layout="cross-view", reduction="none")
    ours = loss_fn(a, b, targets=make.soft_assignments(distances, sharpness=3)) * weights.sum(1)
    torch.testing.assert_close(ours, paper, rtol=1e-6, atol=1e-6)


def test_a_call_without_any_positive_is_0_with_gradients_of_0() -> None:
    a, b = rows(SIZE, 2), rows(SIZE, 3)
    with pytest.warns(RuntimeWarning, match="no anchor has a positive"):
        loss = ContrastiveLoss(layout="cross-view")(a, b, targets=torch.zeros(SIZE, SIZE))
    loss.backward()
    assert loss.item() == 0
    assert a.grad is not None
    assert not a.grad.any()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (torch.eye(SIZE) * 2, r"targets holds row 0 with the sum 2; wanted"),
        (torch.eye(SIZE) * torch.nan, r"targets holds NaN or infinite values in 9 of 9 rows"),
        (torch.eye(SIZE) * 2 - torch.ones(SIZE, SIZE) / SIZE, r"targets holds the number -0.111111; wanted"),
        (torch.eye(SIZE, SIZE + 1), r"targets of shape \[9, 10\] must be \[9, 9\]: a column"),
        (torch.eye(SIZE + 1, SIZE), r"targets of shape \[10, 9\] must be \[9, M\]: a row"),
        (torch.eye(SIZE).long(), r"targets of dtype torch.int64 must be floating point"),
    ],
)
def test_other_numbers_are_refused(wanted: Tensor, message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(layout="cross-view")(rows(SIZE, 2), rows(SIZE, 3), targets=wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "dcl", "layout": "cross-view"}, "objective 'dcl' has no meaning for targets="),
        ({"layout": "cross-view:directions=ab+ba"}, "targets= needs layout 'cross-view' with directions=ab, or ab"),
        ({"layout": "cross-view:directions=ab+aa"}, "targets= needs layout 'cross-view' with directions=ab, or ab"),
        ({"layout": "cross-view:hard=own"}, "targets= needs layout 'cross-view' with directions=ab, or ab"),
        ({"layout": "two-view"}, "targets"),
        ({"layout": "masks"}, "targets"),
    ],
)
def test_parts_without_a_meaning_for_them_refuse_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContrastiveLoss(**options)(rows(SIZE, 2), rows(SIZE, 3), targets=torch.eye(SIZE))


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"temperature=0 of soft targets must be greater than 0"):
        make.soft_targets(torch.eye(2), 0)
    with pytest.raises(ConfigError, match=r"share=2 of smoothed targets must lie between 0 and 1"):
        make.smoothed(torch.eye(2), 2)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(
    ("of_rows", "of_targets"), list(itertools.permutations([torch.float32, torch.float64, torch.float16], 2))
)
def test_the_type_of_the_embeddings_decides(engine: Any, of_rows: torch.dtype, of_targets: torch.dtype) -> None:
    a, b = rows(SIZE, 2, of_rows), rows(SIZE, 3, of_rows)
    loss = ContrastiveLoss(0.1, layout="cross-view", engine=engine)(a, b, targets=some_targets(SIZE, of_targets))
    loss.backward()
    expected = ContrastiveLoss(0.1, layout="cross-view")(a.double(), b.double(), targets=some_targets(SIZE))
    assert loss.dtype == (torch.float64 if of_rows == torch.float64 else torch.float32)
    assert loss.item() == pytest.approx(expected.item(), rel=2e-3)


def test_a_changed_target_is_found_before_the_backward_pass() -> None:
    for symmetric in (False, True):
        wanted = torch.eye(SIZE)
        given: Any = (torch.eye(SIZE), wanted) if symmetric else wanted
        loss = ContrastiveLoss(layout="cross-view", symmetric=symmetric)(rows(SIZE, 2), rows(SIZE, 3), targets=given)
        wanted[0] = 0.5
        with pytest.raises(RuntimeError, match="targets was changed in place"):
            loss.backward()


def test_the_record_counts_positives_and_means_by_their_targets() -> None:
    a, b, wanted = rows(SIZE, 2), rows(SIZE, 3), some_targets(SIZE)
    loss_fn = ContrastiveLoss(0.1, layout="cross-view")
    loss_fn(a, b, targets=wanted)
    similarity = normalize(a) @ normalize(b).T
    mean = (wanted * similarity).sum(1)[wanted.sum(1) > 0].mean()
    assert loss_fn.record.positive_similarity.item() == pytest.approx(mean.item())
    assert tempplug.ContrastiveLoss(layout="cross-view").accepted(targets=wanted)
