"""Margins on positives: the cross-entropy with another logit at the positives, against its formula in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from oracle_cases import MARGINS, compare, cut_into, make_call
from pytorch_metric_learning import losses
from torch import Tensor
from torch.nn.functional import normalize

import tempplug
from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.strategies.maps import LogitMap

SIZE, WIDTH = 9, 5
BOTH = [("additive", 0.2), ("angular", 0.5)]


def rows(count: int, seed: int) -> Tensor:
    made = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_()


def with_margin(similarity: Tensor, kind: str, margin: float) -> Tensor:
    """AM-softmax's s - m; ArcFace's cos(θ + m), and s - m·sin m from θ = π - m on."""
    if kind == "additive":
        return similarity - margin
    angle = torch.acos(similarity)
    return torch.where(angle + margin <= math.pi, torch.cos(angle + margin), similarity - margin * math.sin(margin))


def loss_of(similarity: Tensor, wanted: Tensor, logit: Any, kind: str, margin: float) -> Tensor:
    """-Σ_j t_ij (l⁺_ij - ln(Σ⁺ exp l⁺ + Σ⁻ exp l)), l⁺ with the margin; the mean over rows with a positive."""
    positive = logit(with_margin(similarity, kind, margin))
    logits = torch.where(wanted > 0, positive, logit(similarity))
    losses = torch.logsumexp(logits, 1) - (wanted * positive).sum(1)
    return losses[wanted.sum(1) > 0].mean()


def agree(ours: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    both = torch.autograd.grad(ours, leaves), torch.autograd.grad(expected, leaves)
    for left, right in zip(*both, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def call(kind_of_positives: str, a: Tensor, b: Tensor) -> tuple[str, dict[str, Tensor], Tensor]:
    """A layout, the arguments of its call, and how much of each row's probability each candidate should have."""
    one, several = torch.eye(SIZE, dtype=torch.float64), (torch.arange(SIZE)[:, None] - torch.arange(SIZE)) % 4 == 0
    several[2] = False  # an anchor without a positive
    share = several.double() / several.sum(1, keepdim=True).clamp(min=1)
    if kind_of_positives == "position":
        return "cross-view", {}, one
    if kind_of_positives == "masks":
        return "masks", {"positive_mask": several, "negative_mask": ~several}, share
    wanted = torch.softmax(a.detach() @ b.detach().T, 1) * several
    wanted = wanted / wanted.sum(1, keepdim=True).clamp(min=1e-30)
    return "cross-view", {"targets": wanted}, wanted


@pytest.mark.parametrize("cut", ["one tile", "many tiles, again", "dense"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.1", "learnable", "dystress", "temperature-free"])
@pytest.mark.parametrize("positives", ["position", "masks", "targets"])
@pytest.mark.parametrize(("kind", "margin"), BOTH)
def test_loss_and_gradients_are_those_of_the_formula(kind: str, margin: float, positives: str, strategy: str, cut: str) -> None:
    a, b = rows(SIZE, 1), rows(SIZE, 2)
    layout, given, wanted = call(positives, a, b)
    engine: Any = "dense" if cut == "dense" else "tiled"
    objective = tempplug.create_objective("infonce", margin=margin, margin_kind=kind)
    loss_fn = ContrastiveLoss(strategy, objective, layout, engine=engine).double()  # type: ignore[arg-type]

    def logit(similarity: Tensor) -> Tensor:
        bound: LogitMap = loss_fn.strategy.prepare(tempplug.Batch(torch.zeros(SIZE, dtype=torch.float64)))
        return bound.logit(similarity)

    similarity = normalize(a) @ normalize(b).T
    with cut_into(cut):
        agree(loss_fn(a, b, **given), loss_of(similarity, wanted, logit, kind, margin), [a, b, *loss_fn.parameters()])


@pytest.mark.parametrize("objective", MARGINS)
@pytest.mark.parametrize("layout", ["labels", "labels-pairs+hard"])
def test_a_temperature_for_each_pair_is_that_of_the_pair_without_the_margin(layout: str, objective: str) -> None:
    call = make_call(layout, "amcl:dimension=D", 14, 6, torch.float64)
    assert compare("amcl:dimension=D", objective, call, 1e-10, "tiled")


@pytest.mark.parametrize(("kind", "margin"), BOTH)
def test_classes_are_those_of_pytorch_metric_learning(kind: str, margin: float) -> None:
    theirs: Any = losses.CosFaceLoss if kind == "additive" else losses.ArcFaceLoss
    given = margin if kind == "additive" else math.degrees(margin)
    of_classes = theirs(num_classes=4, embedding_size=WIDTH, margin=given, scale=20).double()
    embeddings, labels = rows(SIZE, 3), torch.arange(SIZE) * 3 % 4
    with torch.no_grad():
        embeddings[0] = -of_classes.W[:, labels[0]] + 0.05 * embeddings[0]  # nearly opposite: θ + m > π
    positive = torch.eye(4, dtype=torch.bool)[labels]
    loss_fn = ContrastiveLoss(1 / 20, f"infonce:margin={margin},margin_kind={kind}", "masks")  # type: ignore[arg-type]
    ours = loss_fn(embeddings, of_classes.W.T, positive_mask=positive, negative_mask=~positive)
    agree(ours, of_classes(embeddings, labels), [embeddings, of_classes.W])


@pytest.mark.parametrize("layout", ["two-view", "cross-view:directions=ab+aa+ba+bb"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_and_opposite_views_have_finite_gradients(layout: Any, dtype: torch.dtype) -> None:
    for sign in (1, -1):
        a = rows(SIZE, 4).detach().to(dtype).requires_grad_()
        for engine in ("dense", "tiled"):
            loss_fn = ContrastiveLoss(0.05, "infonce:margin=0.3,margin_kind=angular", layout, engine=engine)  # type: ignore[arg-type]
            loss = loss_fn(a, sign * a.detach())
            (gradient,) = torch.autograd.grad(loss, a)
            assert loss.isfinite()
            assert gradient.isfinite().all()
            assert gradient.abs().max() < 100


def test_scores_take_a_margin_in_their_units_and_no_angle() -> None:
    scores = (5 * rows(SIZE, 5) @ rows(SIZE, 6).T).detach().requires_grad_()
    ours = ContrastiveLoss(1.0, "infonce:margin=3", "cross-view").from_scores(scores)  # type: ignore[arg-type]
    agree(ours, loss_of(scores, torch.eye(SIZE, dtype=torch.float64), lambda s: s, "additive", 3), [scores])
    with pytest.raises(ConfigError, match=r"'infonce:margin=0\.3,margin_kind=angular' is defined for cosines"):
        ContrastiveLoss(1.0, "infonce:margin=0.3,margin_kind=angular", "cross-view").from_scores(scores)  # type: ignore[arg-type]


def test_the_record_has_the_logits_without_the_margin_and_a_spec_without_one_is_as_before() -> None:
    a, b = rows(SIZE, 1), rows(SIZE, 2)
    plain, changed = (ContrastiveLoss(0.1, name, "cross-view") for name in ("infonce", "infonce:margin=0.2"))  # type: ignore[arg-type]
    values = plain(a, b).detach(), changed(a, b).detach()
    assert values[1] > values[0]
    assert changed.record.loss == values[1]
    assert changed.record.numbers() == {**plain.record.numbers(), "loss": float(values[1])}
    assert plain.objective.spec() == tempplug.create_objective("infonce:margin=0").spec() == "infonce"
    assert changed.objective.spec() == "infonce:margin=0.2,margin_kind=additive"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("infonce:margin=-0.1", "margin=-0.1 of objective 'infonce' must be at least 0"),
        ("infonce:margin=3.2,margin_kind=angular", r"margin=3\.2 of objective 'infonce' must be below π"),
        ("infonce:margin=0.1,margin_kind=cosine", "margin_kind=cosine of objective 'infonce' must be"),
    ],
)
def test_margins_out_of_range_are_refused_by_name(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tempplug.create_objective(spec)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(("kind", "margin"), BOTH)
def test_every_candidate_with_a_target_has_the_margin(kind: str, margin: float, engine: Any) -> None:
    view_a, view_b = rows(SIZE, 0), rows(SIZE, 1)
    generator = torch.Generator().manual_seed(2)
    targets = torch.rand(SIZE, SIZE, generator=generator, dtype=torch.float64)
    targets *= torch.rand(SIZE, SIZE, generator=generator) < 0.5
    targets[2] = 0
    targets = targets / targets.sum(1, keepdim=True).clamp(min=1e-9)
    loss_fn = ContrastiveLoss(0.1, f"infonce:margin={margin},margin_kind={kind}", "cross-view", engine=engine)
    expected = loss_of(normalize(view_a, dim=1) @ normalize(view_b, dim=1).T, targets, lambda s: s / 0.1, kind, margin)
    agree(loss_fn(view_a, view_b, targets=targets), expected, [view_a, view_b])
