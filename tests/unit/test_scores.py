"""`ContrastiveLoss.from_scores`: similarities of the caller in place of cosines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, ShapeError

N, M = 7, 10
GENERATOR = torch.Generator().manual_seed(3)
SCORES = 12 + 4 * torch.randn(N, M, generator=GENERATOR, dtype=torch.float64)
SCORES.diagonal().add_(3)
LABELS, INDEX = torch.tensor([0, 1, 0, 1, 0, 1, 1]), torch.arange(N)
UNCERTAINTY = torch.linspace(-1, 1, N, dtype=torch.float64)
KEYS = {"view_a": INDEX, "view_b": torch.tensor([0, 1, 0, 3, 4, 5, 6]), "hard_negatives": torch.tensor([7, 1, 8])}
GUIDES = {
    name: torch.randn(rows, 3, generator=GENERATOR, dtype=torch.float64)
    for name, rows in (("view_a", N), ("view_b", N), ("hard_negatives", M - N))
}
LOG_Q = -torch.linspace(0, 3, M, dtype=torch.float64)
POSITIVE = torch.rand(N, M, generator=GENERATOR) < 0.3
POSITIVE[:, 2] = True
NEGATIVE = ~POSITIVE & (torch.rand(N, M, generator=GENERATOR) < 0.8)
ON_DIAGONAL = torch.eye(N, M, dtype=torch.bool)

STRATEGIES: dict[str, tuple[dict[str, Tensor], Callable[[Tensor], Tensor]]] = {
    "fixed:temperature=2": ({}, lambda s: s / 2),
    "learnable:initial_temperature=1": ({}, lambda s: s),
    "schedule:temperature_min=1,temperature_max=2,period=4": ({}, lambda s: s / 2),
    "head-tail:class_counts=9/2,temperature_head=2,temperature_tail=5": (
        {"labels": LABELS},
        lambda s: s / torch.tensor([2.0, 5.0], dtype=s.dtype)[LABELS, None],
    ),
    "individual:size=9,temperature_init=0.5": ({"index": INDEX}, lambda s: s / 0.5),
    "uncertainty:base_temperature=0.5": ({"uncertainty": UNCERTAINTY}, lambda s: s * UNCERTAINTY.sigmoid()[:, None] / 0.5),
}


def unit(name: str) -> Tensor:
    return torch.nn.functional.normalize(GUIDES[name])


def above(s: Tensor, positive: Tensor, threshold: float) -> Tensor:
    mean = (s * positive).sum(1) / positive.sum(1)
    return torch.zeros_like(s).masked_fill(s > (mean + threshold * mean.abs())[:, None], -torch.inf)


def by_guide(s: Tensor, positive: Tensor) -> Tensor:
    found = unit("view_a") @ torch.cat([unit("view_b"), unit("hard_negatives")]).T
    return torch.zeros_like(s).masked_fill(found > found.diagonal()[:, None] + 0.1, -torch.inf)


def by_key(s: Tensor, positive: Tensor) -> Tensor:
    same = KEYS["view_a"][:, None] == torch.cat([KEYS["view_b"], KEYS["hard_negatives"]])
    return torch.zeros_like(s).masked_fill(same, -torch.inf)


TERMS: dict[str, tuple[dict[str, Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "": ({}, lambda s, positive: torch.zeros_like(s)),
    "false-negatives:margin=0.3,rule=relative": ({}, lambda s, positive: above(s, positive, 0.3)),
    "hardness:strength=0.2": ({}, lambda s, positive: 0.2 * s),
    "same-key": ({"keys": KEYS}, by_key),
    "guide:margin=0.1": ({"guide": GUIDES}, by_guide),
    "log-q": (
        {"candidate_log_q": {"view_b": LOG_Q[:N], "hard_negatives": LOG_Q[N:]}},
        lambda s, positive: -LOG_Q.expand_as(s),
    ),
}


def weighted(positive: Tensor, negative: Tensor, means: Tensor) -> Tensor:
    everyone = means / 0.5
    weight = 2 - (everyone - everyone.logsumexp(0) + math.log(len(means))).exp()
    return negative.logsumexp(1) - weight.detach() * positive


def infonce(positive: Tensor, negative: Tensor, means: Tensor) -> Tensor:
    return torch.cat([positive[:, None], negative], 1).logsumexp(1) - positive


OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "infonce": infonce,
    "dcl": lambda positive, negative, means: negative.logsumexp(1) - positive,
    "dclw": weighted,
}


@pytest.mark.parametrize(("strategy", "negatives", "objective"), every_pair(list(STRATEGIES), list(TERMS), list(OBJECTIVES)))
def test_loss_and_gradient_are_the_dense_formulas(strategy: str, negatives: str, objective: str) -> None:
    (known, logit), (of_rows, term) = STRATEGIES[strategy], TERMS[negatives]
    scores, expected = SCORES.clone().requires_grad_(), SCORES.clone().requires_grad_()
    loss_fn = ContrastiveLoss(strategy, objective, "cross-view", negatives=negatives or None)
    loss_fn.set_progress(0)
    loss = loss_fn.from_scores(scores, **known, **of_rows)
    logits = logit(expected)
    left_out = torch.where(ON_DIAGONAL, -torch.inf, logits + term(SCORES, ON_DIAGONAL))
    formula = OBJECTIVES[objective](logits.diagonal(), left_out, SCORES.diagonal()).mean()
    torch.testing.assert_close(loss, formula, rtol=1e-12, atol=1e-12)
    loss.backward()  # type: ignore[no-untyped-call]
    formula.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(scores.grad, expected.grad, rtol=1e-10, atol=1e-12)
    record = loss_fn.record
    assert record.engine == "dense"
    torch.testing.assert_close(record.positive_similarity, SCORES.diagonal().mean())
    assert torch.stack([record.alignment, record.uniformity]).isnan().all(), "scores have no distances"
    looked_at = term(SCORES, ON_DIAGONAL)[~ON_DIAGONAL]
    share = (looked_at == -torch.inf).double().mean() if loss_fn.terms else torch.tensor(torch.nan, dtype=torch.float64)
    torch.testing.assert_close(record.negatives_left_out, share, equal_nan=True)
    torch.testing.assert_close(record.negative_similarity, SCORES[~ON_DIAGONAL].mean())


@pytest.mark.parametrize("negatives", ["", "false-negatives:margin=0.3,rule=relative"])
def test_symmetric_scores_average_rows_and_columns(negatives: str) -> None:
    """Hard negatives are columns that no column competes with."""
    scores, expected = SCORES.clone().requires_grad_(), SCORES.clone().requires_grad_()
    loss = ContrastiveLoss("fixed:temperature=2", layout="cross-view", symmetric=True, negatives=negatives or None).from_scores(
        scores
    )
    halves = []
    for s, own in ((expected, ON_DIAGONAL), (expected[:, :N].T, ON_DIAGONAL[:, :N])):
        logits = s / 2 + torch.where(own, 0.0, TERMS[negatives][1](s.detach(), own))
        halves.append((logits.logsumexp(1) - s.diagonal() / 2).mean())
    torch.testing.assert_close(loss, sum(halves) / 2, rtol=1e-12, atol=1e-12)
    for one, other in zip(torch.autograd.grad(loss, scores), torch.autograd.grad(sum(halves) / 2, expected), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_masks_say_what_each_score_is() -> None:
    """Several positives a row, ignored pairs, and candidates of each row's own, fewer than there are rows."""
    masks = {"positive_mask": POSITIVE, "negative_mask": NEGATIVE}
    loss_fn = ContrastiveLoss("fixed:temperature=2", layout="masks", reduction="none", negatives="hardness:strength=0.1")
    positive = torch.where(POSITIVE, SCORES / 2, -torch.inf)
    negative = torch.where(NEGATIVE, SCORES * 0.6, -torch.inf)
    mean = torch.where(POSITIVE, SCORES / 2, 0.0).sum(1) / POSITIVE.sum(1)
    torch.testing.assert_close(loss_fn.from_scores(SCORES, **masks), torch.cat([positive, negative], 1).logsumexp(1) - mean)
    first = torch.zeros(N, 3, dtype=torch.bool)
    first[:, 0] = True
    found = ContrastiveLoss("fixed:temperature=1", layout="masks").from_scores(
        SCORES[:, :3], positive_mask=first, negative_mask=~first
    )
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(SCORES[:, :3], torch.zeros(N, dtype=torch.int64)))


def test_no_positive_is_a_loss_of_zero_with_a_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    with pytest.warns(RuntimeWarning, match="no anchor has a positive"):
        loss = ContrastiveLoss(layout="masks").from_scores(
            scores, positive_mask=torch.zeros_like(POSITIVE), negative_mask=NEGATIVE
        )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss == 0
    assert torch.equal(scores.grad, torch.zeros_like(scores))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_scores_and_autocast_are_computed_in_float32(dtype: torch.dtype) -> None:
    loss_fn, half = ContrastiveLoss("learnable:initial_temperature=0.01", layout="cross-view"), SCORES.to(dtype)
    expected = loss_fn.from_scores(half.float())
    assert torch.equal(loss_fn.from_scores(half), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss_fn.from_scores(half), expected)
    assert expected.dtype == torch.float32


def test_cosines_as_scores_are_the_loss_of_the_embeddings() -> None:
    """In training, with state that each call moves."""
    a, b = (torch.randn(6, 4, generator=GENERATOR, dtype=torch.float64) for _ in range(2))
    losses = [ContrastiveLoss("individual:size=6", "reweighted", "cross-view", symmetric=True) for _ in range(2)]
    cosines = torch.nn.functional.normalize(a) @ torch.nn.functional.normalize(b).T
    for _ in range(3):
        found = losses[0].from_scores(cosines, index=torch.arange(6))
        torch.testing.assert_close(found, losses[1](a, b, index=torch.arange(6)), rtol=1e-6, atol=0)
    torch.testing.assert_close(losses[0].state_dict(), losses[1].state_dict())


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ("temperature-free", {}, {}, ConfigError, "strategy 'temperature-free' is defined for cosines in [-1, 1] alone"),
    ("dystress", {}, {}, ConfigError, "strategy 'dystress' is defined"),
    ("macl", {}, {}, ConfigError, "strategy 'macl' is defined"),
    ("amcl:dimension=4", {}, {}, ConfigError, "strategy 'amcl' is defined"),
    ("fixed", {"negatives": "debiased"}, {}, ConfigError, "negative term 'debiased' is defined"),
    ("fixed", {"negatives": "guide"}, {}, ShapeError, "guide= is needed of view_a"),
    ("fixed", {"negatives": "same-key"}, {"keys": INDEX}, ShapeError, "keys= is needed of hard_negatives"),
    ("fixed", {"negatives": "hardness:of=in-batch"}, {}, ConfigError, "needs to know whose hard negatives they are"),
    ("fixed", {"layout": "two-view"}, {}, ConfigError, "layout 'two-view' needs similarities that scores"),
    ("fixed", {"layout": "cross-view:directions=ab+aa"}, {}, ConfigError, "directions=ab+aa"),
    ("fixed", {"layout": "cross-view:hard=own"}, {}, ConfigError, "hard=own"),
    ("fixed", {"layout": "cross-view:in_batch=false"}, {}, ConfigError, "in_batch=false"),
    ("fixed", {"gather": True}, {}, ConfigError, "gather=True has no meaning for from_scores"),
    ("fixed", {"engine": "tiled"}, {}, ConfigError, "engine='tiled' computes similarities itself"),
    ("fixed", {}, {"hard_negatives": SCORES}, ConfigError, "hard_negatives= is no argument of from_scores"),
    ("fixed", {}, {"positive_mask": POSITIVE}, ConfigError, "positive_mask= is read neither by layout 'cross-view'"),
    ("head-tail:class_counts=9/2", {}, {}, ConfigError, "pass labels= to the loss"),
]


@pytest.mark.parametrize(("strategy", "parts", "given", "error", "message"), REFUSED)
def test_what_has_no_meaning_for_scores_is_refused_by_name(
    strategy: str, parts: dict[str, Any], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    loss_fn = ContrastiveLoss(strategy, **{"layout": "cross-view", **parts})
    with pytest.raises(error) as caught:
        loss_fn.from_scores(SCORES, **given)
    assert message in str(caught.value)
    with pytest.raises(ConfigError, match="scores= is read neither by layout"):
        ContrastiveLoss()(SCORES, SCORES, scores=SCORES)


def test_a_graph_leaves_scores_outside() -> None:
    loss_fn = ContrastiveLoss("fixed:temperature=2", layout="cross-view")
    compiled = torch.compile(lambda scores: loss_fn.from_scores(scores * 2), backend="eager")
    assert torch.equal(compiled(SCORES), loss_fn.from_scores(SCORES * 2))
    torch.testing.assert_close(
        torch.func.grad(loss_fn.from_scores)(SCORES),
        torch.autograd.functional.jacobian(loss_fn.from_scores, SCORES),  # type: ignore[no-untyped-call]
    )
