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


@pytest.mark.parametrize(("number", "message"), [(1.5, "number 1.5; wanted"), (-0.5, "number -0.5"), (torch.nan, "NaN")])
def test_probabilities_of_pairs_lie_between_0_and_1(number: float, message: str) -> None:
    wanted = torch.full((SIZE, SIZE), 0.25)
    wanted[2, 3] = number
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(0.1, "sigmoid", "cross-view")(rows(SIZE, 2), rows(SIZE, 3), targets=wanted)


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
