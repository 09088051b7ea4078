"""`ContrastiveLoss.from_scores`: similarities of the caller in place of cosines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from matrix import EACH
from oracle_cases import build, make_call
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, NonFiniteError, ShapeError

N, M = 7, 10
GENERATOR = torch.Generator().manual_seed(3)
SCORES = 12 + 4 * torch.randn(N, M, generator=GENERATOR, dtype=torch.float64)
SCORES.diagonal().add_(3)
INDEX = torch.arange(N)
POSITIVE = torch.rand(N, M, generator=GENERATOR) < 0.3
POSITIVE[:, 2] = True
NEGATIVE = ~POSITIVE & (torch.rand(N, M, generator=GENERATOR) < 0.8)
ON_DIAGONAL = torch.eye(N, M, dtype=torch.bool)


def above(s: Tensor, positive: Tensor, threshold: float) -> Tensor:
    mean = (s * positive).sum(1) / positive.sum(1)
    return torch.zeros_like(s).masked_fill(s > (mean + threshold * mean.abs())[:, None], -torch.inf)


pytestmark = pytest.mark.filterwarnings("ignore:layout '.*' leaves .* without a negative:RuntimeWarning")
# Strategies that are defined for other scores than cosines, too.
STRATEGIES = [spec for spec in EACH if not spec.startswith(("macl", "dystress", "temperature-free", "amcl", "tempnet"))]
TERMS = ["", "false-negatives:margin=-0.3,rule=relative,weight=0.5", "guide:margin=0.3", "same-key", "hardness", "log-q"]


@pytest.mark.parametrize(
    ("strategy", "negatives", "objective"),
    every_pair([*STRATEGIES, "individual:size=40"], TERMS, ["infonce", "dcl", "dclw", "reweighted"]),
)
def test_cosines_as_scores_are_the_loss_of_the_embeddings(strategy: str, negatives: str, objective: str) -> None:
    """With its gradients, its record without distances, and state that each call moves; hard negatives are further columns."""
    call = make_call("cross-view+hard", strategy, 8, 4, torch.float64, negatives)
    losses = [build(strategy, objective, call, "mean", "dense") for _ in range(2)]
    leaves, given = call.leaves(), {name: value for name, value in call.inputs.items() if name != "hard_negatives"}
    for _ in range(2):
        a, *candidates = (torch.nn.functional.normalize(each) for each in (*call.views, call.inputs["hard_negatives"]))
        scores = a @ torch.cat(candidates).T
        found, expected = losses[0].from_scores(scores, **given), losses[1](*call.views, **call.inputs)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        ours, theirs = (torch.autograd.grad(each, leaves) for each in (found, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(losses[0].state_dict(), losses[1].state_dict())
    record, other = (loss_fn.record for loss_fn in losses)
    assert record.engine == "dense"
    assert torch.stack([record.alignment, record.uniformity]).isnan().all(), "scores have no distances"
    for name in ("positive_similarity", "negatives_left_out", "temperature_mean"):
        torch.testing.assert_close(getattr(record, name), getattr(other, name), equal_nan=True)
    torch.testing.assert_close(record.negative_similarity, scores[~torch.eye(*scores.shape, dtype=torch.bool)].mean())


@pytest.mark.parametrize("negatives", ["", "false-negatives:margin=0.3,rule=relative"])
def test_symmetric_scores_average_rows_and_columns(negatives: str) -> None:
    """Hard negatives are columns that no column competes with."""
    scores, expected = SCORES.clone().requires_grad_(), SCORES.clone().requires_grad_()
    loss = ContrastiveLoss("fixed:temperature=2", layout="cross-view", symmetric=True, negatives=negatives or None).from_scores(
        scores
    )
    halves = []
    for s, own in ((expected, ON_DIAGONAL), (expected[:, :N].T, ON_DIAGONAL[:, :N])):
        logits = s / 2 + torch.where(own, 0.0, above(s.detach(), own, 0.3) if negatives else 0.0)
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


SCALES = [*STRATEGIES[:3], "fixed:temperature=1e-9", "fixed:temperature=1e9", "uncertainty", "individual:size=40"]


@pytest.mark.parametrize(
    ("strategy", "objective", "layout"),
    every_pair(
        SCALES,
        ["infonce", "dcl", "flatnce", "dclw", "reweighted", "sogclr:size=40"],
        ["cross-view", "cross-view:directions=ab+ba", "cross-view:directions=ab+ba,softmax=separate"],
    ),
)
@pytest.mark.parametrize("size", [1e20, 1e28, 1e37, -1e37, torch.finfo(torch.float32).max, torch.finfo(torch.float32).min])
def test_large_scores_have_a_finite_loss_and_gradient_or_are_refused(
    strategy: str, objective: str, layout: Any, size: float
) -> None:
    loss_fn = ContrastiveLoss(strategy, objective, layout)
    loss_fn.set_progress(epoch=1)
    scores = (SCORES[:, :N] / SCORES.abs().max()).float() * size
    scores = torch.where(POSITIVE[:, :N], scores, torch.eye(N)).requires_grad_()
    given = loss_fn.accepted(index=INDEX, uncertainty=(torch.zeros(N),) * 2, labels=INDEX, groups=INDEX % 3)
    if abs(size) > 1e29:
        with pytest.raises(NonFiniteError, match=r"scores holds -?\de\+3[78]|scores holds -?[\d.]+e\+3\d, and logits of more"):
            loss_fn.from_scores(scores, **given)
        return
    loss = loss_fn.from_scores(scores, **given)
    assert loss.isfinite()
    gradients = torch.autograd.grad(loss, [scores, *loss_fn.strategy.parameters()], allow_unused=True)
    assert all(each is None or each.isfinite().all() for each in gradients)


def test_an_objective_reads_its_arguments() -> None:
    """As in a call: `sogclr` its index, in evaluation without effect."""
    rows = torch.nn.functional.normalize(torch.randn(2, N, 3, generator=GENERATOR, dtype=torch.float64), dim=2)
    losses = [ContrastiveLoss(objective="sogclr:size=9", layout="cross-view").double() for _ in range(2)]
    for _ in range(2):
        found = losses[0].from_scores(rows[0] @ rows[1].T, index=INDEX)
        torch.testing.assert_close(found, losses[1](*rows, index=INDEX), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(losses[0].state_dict(), losses[1].state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_scores_and_autocast_are_computed_in_float32(dtype: torch.dtype) -> None:
    loss_fn, half = ContrastiveLoss("learnable:initial_temperature=0.01", layout="cross-view"), SCORES.to(dtype)
    expected = loss_fn.from_scores(half.float())
    assert torch.equal(loss_fn.from_scores(half), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss_fn.from_scores(half), expected)
    assert expected.dtype == torch.float32


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
