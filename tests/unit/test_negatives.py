"""Terms on negatives by themselves: rows without any left, the estimate and its bound, counts, heads, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, NonFiniteError, ShapeError, TempplugError, TensorError

B, CROSS = 6, "cross-view"
GENERATOR = torch.Generator().manual_seed(0)
VIEW_A, VIEW_B, GUIDE = (torch.randn(B, 4, generator=GENERATOR, dtype=torch.float64) for _ in range(3))
HARD = torch.randn(B, 2, 4, generator=GENERATOR, dtype=torch.float64)
INDEX = torch.tensor([0, 1, 1, 2, 2, 2])


def logits(temperature: float = 0.1) -> Tensor:
    unit = [view / view.norm(dim=1, keepdim=True) for view in (VIEW_A, VIEW_B)]
    return unit[0] @ unit[1].T / temperature


# A row whose key everyone has, of three whose keys others have as well.
KEYS = {"view_a": torch.tensor([7, 1, 2, 3, 4, 5]), "view_b": torch.full((B,), 7)}


@pytest.mark.parametrize(
    ("engine", "objective", "dtype"),
    every_pair(["dense", "tiled"], ["infonce", "dcl", "flatnce", "dclw"], [torch.float64, torch.bfloat16, torch.float16]),
)
def test_an_anchor_whose_negatives_are_all_left_out_is_one_without_any(engine: Any, objective: str, dtype: torch.dtype) -> None:
    """It warns once, and the record counts it: loss 0 under infonce, and out of the mean elsewhere."""
    loss_fn = ContrastiveLoss("fixed", objective, CROSS, negatives="same-key", engine=engine)
    a, b = (view.to(dtype).requires_grad_() for view in (VIEW_A, VIEW_B))
    with pytest.warns(RuntimeWarning, match="layout 'cross-view' leaves 1 of 6 anchors without a negative: under objective"):
        loss = loss_fn(a, b, keys=KEYS)
    loss_fn(a, b, keys=KEYS)  # warns no more
    rest = ContrastiveLoss("fixed", objective, CROSS, engine=engine, reduction="none")(a, b)[1:]
    if objective != "dclw":  # whose weights are relative to a mean over all anchors
        expected = rest.sum() / (6 if objective == "infonce" else 5)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(loss, a)
    assert gradient.isfinite().all()
    assert not gradient[0].any()
    numbers = loss_fn.record.numbers()
    assert numbers["anchors_without_negative"] == 1
    assert numbers["negatives_left_out"] == pytest.approx(5 / 30)
    assert numbers["negative_weight"] == 1


def test_a_prior_of_zero_changes_nothing() -> None:
    plain, debiased = (ContrastiveLoss(layout=CROSS, negatives=each)(VIEW_A, VIEW_B) for each in (None, "debiased:prior=0"))
    assert torch.equal(plain, debiased)


def test_log_q_counts_in_training_alone_and_every_call_once() -> None:
    """By the written formula l - ln q with the shares of all rows so far; an item that was never met counts as one."""
    loss_fn = ContrastiveLoss("fixed", "dcl", CROSS, negatives="log-q:size=4", reduction="none")

    def expected(counts: list[float], total: float) -> Tensor:
        corrected = logits() - (torch.tensor(counts, dtype=torch.float64)[INDEX] / total).log()
        return corrected.masked_fill(torch.eye(B, dtype=torch.bool), -torch.inf).logsumexp(1) - logits().diagonal()

    counts = loss_fn.terms[0].counts
    torch.testing.assert_close(loss_fn.eval()(VIEW_A, VIEW_B, index=INDEX), expected([1, 1, 1, 1], 1), rtol=1e-12, atol=1e-12)
    assert counts.tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(
        loss_fn.train()(VIEW_A, VIEW_B, index=INDEX.int()), expected([1, 2, 3, 1], 6), rtol=1e-12, atol=1e-12
    )
    loss_fn([VIEW_A, VIEW_A], [VIEW_B, VIEW_B], index=torch.full((B,), 3))
    assert counts.tolist() == [1, 2, 3, 6], "both heads see one batch"
    resumed = ContrastiveLoss("fixed", "dcl", CROSS, negatives="log-q:size=4", reduction="none")
    resumed.load_state_dict(loss_fn.state_dict())
    both = [each.eval()(VIEW_A, VIEW_B, index=INDEX) for each in (loss_fn, resumed)]
    torch.testing.assert_close(both, [expected([1, 2, 3, 6], 12)] * 2, rtol=1e-12, atol=1e-12)
    items = {"view_a": INDEX, "view_b": torch.full((B,), 1), "hard_negatives": torch.zeros(B, 2, dtype=torch.int64)}
    loss_fn.train()(VIEW_A, VIEW_B, hard_negatives=HARD, index=items)
    assert counts.tolist() == [1, 8, 3, 6], "those of view_b"


def test_several_heads_are_summed_with_their_terms() -> None:
    loss_fn = ContrastiveLoss(layout=f"{CROSS}:directions=ab+aa+bb", negatives="false-negatives:margin=0.6+same-key")
    keys = torch.tensor([0, 1, 0, 2, 3, 4])
    parts = [loss_fn(a, b, keys=keys) for a, b in ((VIEW_A, VIEW_B), (VIEW_B, GUIDE))]
    torch.testing.assert_close(loss_fn([VIEW_A, VIEW_B], [VIEW_B, GUIDE], keys=keys), sum(parts), rtol=1e-12, atol=1e-12)


def test_hard_negatives_have_the_group_of_their_row_and_the_keys_that_the_call_gives() -> None:
    groups, layout = torch.arange(B) % 2, f"{CROSS}:directions=ab+aa+ba+bb"
    implied = ContrastiveLoss(layout=layout, negatives="within-group")
    given = {"view_a": groups, "view_b": groups, "hard_negatives": groups[:, None].expand(B, 2)}
    expected = implied(VIEW_A, VIEW_B, hard_negatives=HARD, groups=given)
    assert torch.equal(implied(VIEW_A, VIEW_B, hard_negatives=HARD, groups=groups), expected)
    parts = [implied(VIEW_A[g], VIEW_B[g], hard_negatives=HARD[g], groups=groups[g]) for g in (groups == 0, groups == 1)]
    torch.testing.assert_close(expected, sum(parts) / 2, rtol=1e-12, atol=1e-12)
    with pytest.raises(ShapeError, match=r"groups= is needed of hard_negatives, too: pass groups=\{'view_a': \.\.\., "):
        implied(VIEW_A, VIEW_B, hard_negatives=HARD.flatten(0, 1), groups=groups)


VIEWS: dict[str, Any] = {"view_a": VIEW_A, "view_b": VIEW_B}
LOG_Q = torch.tensor([0.5, 0.01, 0.3, 0.1, 0.08, 0.01]).log()
ABOVE = "candidate_log_q holds {}, and the logarithm of a probability is at most 0"
ONE_GUIDE = "guide= is one tensor for view_a and view_b, so each positive has the guide's similarity 1, and"
WRONG: list[tuple[str, dict[str, Any], type[TempplugError], str]] = [
    ("same-key", {}, ShapeError, "keys= is needed of view_a, too: pass keys={'view_a': ...}."),
    ("within-group", {}, ShapeError, "groups= is needed of view_a, too"),
    ("guide", {}, ShapeError, "guide= is needed of view_a, too"),
    ("log-q", {}, ShapeError, "candidate_log_q= is needed of view_b, too"),
    ("log-q:size=9", {}, ShapeError, "index= is needed of view_b, too: pass index={'view_b': ...}."),
    ("same-key", {"keys": INDEX, "hard_negatives": HARD}, ShapeError, "keys= is needed of hard_negatives, too"),
    ("same-key", {"keys": {"view_a": INDEX}}, ShapeError, "keys= is needed of view_b, too"),
    ("same-key", {"keys": {"queue": INDEX}}, ShapeError, "keys['queue'] has no rows to describe: the call has view_a, view_b"),
    ("same-key", {"keys": INDEX[:5]}, ShapeError, "keys of shape [5] must have 6 rows, as view_a has."),
    ("same-key", {"keys": INDEX.float()}, ShapeError, "keys= holds torch.float32 of shape [6]; wanted an integer a row."),
    ("same-key", {"keys": torch.stack([INDEX] * 2, 1)}, ShapeError, "keys= holds torch.int64 of shape [6, 2]; wanted"),
    ("same-key", {"keys": list("abcdef")}, TensorError, "keys is a list; wanted a tensor [B, ...]: it holds words; number"),
    (
        "same-key",
        {"keys": INDEX.tolist()},
        TensorError,
        "keys is a list; wanted a tensor [B, ...]: write torch.as_tensor(keys)",
    ),
    ("same-key", {"keys": {"view_a": INDEX, "view_b": [1, None]}}, TensorError, "keys['view_b'] is a list; wanted a tensor [B"),
    ("same-key", {"keys": INDEX.to("meta")}, TensorError, "keys is on meta where view_a is on cpu: write keys.to(view_a."),
    (
        "same-key",
        {"keys": INDEX.to_sparse()},
        TensorError,
        "keys is a tensor of layout sparse_coo; wanted a dense one [B, ...]: ",
    ),
    ("within-group", {"groups": INDEX > 0}, ShapeError, "groups= holds torch.bool of shape [6]; wanted an integer a row."),
    (
        "within-group",
        {"groups": {"view_a": INDEX, "view_b": INDEX.double()}},
        TensorError,
        "groups holds torch.float64, torch.",
    ),
    ("guide", {"guide": INDEX}, ShapeError, "guide= holds torch.int64 of shape [6]; wanted floating-point embeddings [B, E]."),
    ("guide", {"guide": {"view_a": GUIDE, "view_b": GUIDE[:, :3]}}, ShapeError, "guide holds rows of shapes"),
    (
        "guide",
        {"guide": {"view_a": GUIDE, "view_b": GUIDE * math.nan}},
        NonFiniteError,
        "guide holds NaN or infinite values in 6 of 6 rows",
    ),
    ("log-q", {"candidate_log_q": INDEX}, ShapeError, "candidate_log_q= holds torch.int64 of shape [6]; wanted a floating"),
    ("log-q", {"candidate_log_q": INDEX.float().log()}, NonFiniteError, "candidate_log_q holds NaN or infinite values in 1"),
    (
        "log-q",
        {"candidate_log_q": LOG_Q.exp()},
        ConfigError,
        f"{ABOVE.format('0.5')}: all values lie in [0, 1], so if they are",
    ),
    (
        "log-q",
        {"candidate_log_q": LOG_Q.exp() * 800},
        ConfigError,
        f"{ABOVE.format('400')}: of counts, pass (counts / total).l",
    ),
    (
        "log-q",
        {"candidate_log_q": LOG_Q + 7},
        ConfigError,
        f"{ABOVE.format('6.30685')}: of counts, pass (counts / total).log(); of",
    ),
    ("log-q", {"candidate_log_q": LOG_Q.exp() * 100}, ConfigError, ABOVE.format("50")),
    ("log-q", {"candidate_log_q": {"view_a": LOG_Q.exp(), "view_b": LOG_Q}}, ConfigError, ABOVE.format("0.5")),
    ("log-q", {"candidate_log_q": -LOG_Q}, ConfigError, f"{ABOVE.format('4.60517')}: of counts"),
    (
        "guide",
        {"guide": GUIDE},
        ConfigError,
        f"{ONE_GUIDE} margin=0 of negative term 'guide' leaves nothing out: pass guide={{'",
    ),
    ("guide:margin=0.1,rule=relative", {"guide": {"view_a": GUIDE, "view_b": GUIDE}}, ConfigError, f"{ONE_GUIDE} margin=0.1"),
    ("log-q:size=2", {"index": INDEX}, ConfigError, "index holds 2; size=2 of negative term 'log-q' allows 0 to 1."),
    ("log-q:size=9", {"index": -INDEX}, ConfigError, "index holds -2; size=9 of negative term 'log-q' allows 0 to 8."),
    ("hardness:of=hard", {"hard_negatives": HARD.flatten(0, 1)}, ConfigError, "of=hard of negative term 'hardness' needs to k"),
    ("hardness", {"keys": INDEX}, ConfigError, "keys= is no argument of this loss, and negatives= names no term that reads"),
    ("same-key", {"key": INDEX}, ConfigError, "key= is no argument of this loss"),
]


@pytest.mark.parametrize(
    ("negatives", "given", "error", "message", "training"), [(*case, bool(place % 2)) for place, case in enumerate(WRONG)]
)
def test_a_wrong_argument_is_refused_by_name(
    negatives: str, given: dict[str, Any], error: type[Exception], message: str, training: bool
) -> None:
    loss_fn = ContrastiveLoss(layout=CROSS, negatives=negatives).train(training)
    with pytest.raises(error) as caught:
        loss_fn(**VIEWS, **given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert all(not buffer.any() for buffer in loss_fn.buffers()), "what is refused is not counted"


def test_logarithms_of_probabilities_may_be_zero_up_to_rounding() -> None:
    loss_fn = ContrastiveLoss("fixed", "dcl", CROSS, negatives="log-q", reduction="none")
    certain = torch.tensor([0, 1e-7, -1, -2, -3, 2e-4])
    expected = (logits() - certain).masked_fill(torch.eye(B, dtype=torch.bool), -torch.inf).logsumexp(1) - logits().diagonal()
    torch.testing.assert_close(loss_fn(VIEW_A, VIEW_B, candidate_log_q=certain), expected, rtol=1e-7, atol=1e-7)


def test_on_a_device_that_has_to_be_waited_for_the_first_call_alone_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempplug.negatives.log_q.unread", lambda device: True)
    first, later = (ContrastiveLoss(layout=CROSS, negatives="log-q") for _ in range(2))
    with pytest.raises(ConfigError, match="so if they are q itself"):
        first(VIEW_A, VIEW_B, candidate_log_q=LOG_Q.exp())
    with pytest.raises(ConfigError, match="so if they are q itself"):
        first(VIEW_A, VIEW_B, candidate_log_q=LOG_Q.exp())
    later(VIEW_A, VIEW_B, candidate_log_q=LOG_Q)
    later(VIEW_A, VIEW_B, candidate_log_q=LOG_Q.exp())


@pytest.mark.filterwarnings("ignore:layout 'labels' leaves .* without a negative:RuntimeWarning")
def test_one_guide_of_both_views_leaves_out_items_that_are_nearly_equal() -> None:
    """With a margin below 0; and where labels give the positives, which are not equal, with any."""
    similarity = torch.nn.functional.normalize(GUIDE) @ torch.nn.functional.normalize(GUIDE).T
    left_out = (similarity > 0.7) & ~torch.eye(B, dtype=torch.bool)
    assert left_out.any()
    found = ContrastiveLoss(layout=CROSS, negatives="guide:margin=-0.3", reduction="none")(VIEW_A, VIEW_B, guide=GUIDE)
    expected = logits().masked_fill(left_out, -torch.inf).logsumexp(1) - logits().diagonal()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    labelled = ContrastiveLoss(layout="labels", negatives="guide")
    labelled(VIEW_A, VIEW_B, labels=INDEX, guide=GUIDE)
    assert labelled.record.negatives_left_out > 0


TOP, PLAIN = ("amcl:dimension=4", "amcl-top:top_k=2,beta=0.1"), ("fixed", "infonce")


@pytest.mark.parametrize(
    ("strategy", "objective", "layout", "negatives", "message"),
    [
        (*TOP, CROSS, "debiased", "objective 'amcl-top' ranks all negatives of a row"),
        (*TOP, CROSS, "hardness", "objective 'amcl-top' ranks all negatives of a row"),
        (*TOP, f"{CROSS}:directions=ab+aa", None, "the most similar negatives of a row"),
        (TOP[0], "dcl", CROSS, "debiased", "negative term 'debiased' needs the smallest logit of a row"),
        (*PLAIN, "two-view", "hardness:blocks=aa", "blocks=aa of negative term 'hardness' must be among those of layout"),
        (*PLAIN, CROSS, "hardness:blocks=aa", "blocks=aa of negative term 'hardness' must be among those of layout"),
        (*PLAIN, CROSS, "hardness:blocks=ac", "blocks=ac of negative term 'hardness' must be some of ab, aa, ba, bb"),
        (*PLAIN, CROSS, "hardness+hardness:of=hard", "negative term 'hardness' is given twice"),
        (*PLAIN, f"{CROSS}:directions=aa+ab", None, "directions=aa+ab of layout 'cross-view' must begin with ab"),
        (*PLAIN, f"{CROSS}:directions=ab+aa,softmax=separate", None, "directions=ab+aa of layout 'cross-view' needs s"),
        (*PLAIN, f"{CROSS}:directions=ab+aa,in_batch=false", None, "directions=ab+aa of layout 'cross-view' must be ab"),
        (*PLAIN, f"{CROSS}:in_batch=false", None, "in_batch=false of layout 'cross-view' needs hard_negatives="),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    strategy: str, objective: str, layout: str, negatives: str | None, message: str
) -> None:
    with pytest.raises(TempplugError) as caught:
        ContrastiveLoss(strategy, objective, layout, negatives=negatives).double()(VIEW_A, VIEW_B)
    assert str(caught.value).startswith(message)
