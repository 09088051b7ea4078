"""SogCLR: averages and gradients against the formula written out, what is saved and refused, and that its bias vanishes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError

SIZE, TAU = 9, 0.3
STEPS = [[0, 3, 5, 8], [3, 1, 8, 2], [5, 3, 0, 7], [1, 1, 3, 6]]


def pairs(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rows, 4, dtype=torch.float64, generator=generator)
    b = a + 0.8 * torch.randn(rows, 4, dtype=torch.float64, generator=generator)
    return a.requires_grad_(), b.requires_grad_()


class Reference:
    """The averages of each view in plain numbers; ``below`` leaves out negatives 0.2 more similar than positives."""

    def __init__(self, gamma: float, relative: bool, per_view: bool, below: bool) -> None:
        self.gamma, self.relative, self.per_view, self.below = gamma, relative, per_view, below
        self.u = [[0.0] * SIZE, [0.0] * SIZE]

    def step(self, layout: str, a: Tensor, b: Tensor, index: list[int]) -> Tensor:
        """The mean of τ·g/u over the anchors, as what it is the gradient of; the averages move."""
        n, a, b = len(index), normalize(a), normalize(b)
        everyone = torch.cat([a, b])
        losses, news = [], []
        for anchor in range(2 * n):
            view, place = divmod(anchor, n)
            own, other = (a, b) if view == 0 else (b, a)
            candidates = everyone if layout == "two-view" else other
            positive = own[place] @ other[place]
            shift = positive if self.relative else 0 * positive
            values = [own[place] @ row for each, row in enumerate(candidates) if each % n != place]
            kept = [s for s in values if not (self.below and s.item() > positive.item() + 0.2)]
            g = torch.stack([torch.exp((s - shift) / TAU) for s in kept]).mean()
            old = self.u[view * self.per_view][index[place]]
            u = (1 - self.gamma) * old + self.gamma * g.item() if old else g.item()
            losses.append(TAU * g / u + (shift - positive))
            news.append((view * self.per_view, index[place], u))
        for key in {each[:2] for each in news}:
            of_key = [u for view, example, u in news if (view, example) == key]
            self.u[key[0]][key[1]] = sum(of_key) / len(of_key)
        return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("layout", "relative", "per_view", "below", "engine"),
    every_pair(
        ["two-view", "cross-view"],
        [True, False],
        [True, False],
        [True, False],
        ["dense", "tiled"],
        allowed=lambda layout, relative, per_view, *_: per_view or layout == "two-view",
    ),
)
def test_averages_and_gradients_are_those_of_the_formula(
    layout: str, relative: bool, per_view: bool, below: bool, engine: Any
) -> None:
    spec = f"sogclr:size={SIZE},gamma=0.6,relative={relative},per_view={per_view}".lower()
    loss_fn = ContrastiveLoss(
        f"fixed:temperature={TAU}",
        spec,
        layout,
        symmetric=layout == "cross-view",
        engine=engine,
        negatives="false-negatives:margin=0.2" if below else None,
    ).double()
    reference = Reference(0.6, relative, per_view, below)
    for seed, index in enumerate(STEPS, 42):
        views = pairs(4, seed)
        expected = torch.autograd.grad(reference.step(layout, *views, index), views)
        found = torch.autograd.grad(loss_fn(*views, index=torch.tensor(index)), views)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    kept = loss_fn.objective.log_averages.exp().tolist()
    assert kept == pytest.approx([*reference.u[0], *reference.u[1]][: len(kept)], rel=1e-10)


def test_a_resumed_training_is_the_same_to_the_last_digit() -> None:
    used, resumed = (
        ContrastiveLoss("learnable", f"sogclr:size={SIZE},gamma=0.2,decay=0.5,eps=1e-8,rho=1").double() for _ in range(2)
    )
    used.set_length(4)
    for step, index in enumerate(STEPS):
        if step == 2:
            resumed.load_state_dict(used.state_dict())
        losses = []
        for loss_fn in (used, resumed) if step >= 2 else (used,):
            if step != 2:
                loss_fn.set_progress(epoch=0.4 * step)
            loss = loss_fn(*pairs(4, step), index=torch.tensor(index))
            losses.append(torch.cat([loss.reshape(1), *torch.autograd.grad(loss, loss_fn.strategy.log_scale)]))
        assert torch.equal(losses[0], losses[-1])
    assert torch.equal(used.objective.log_averages, resumed.objective.log_averages)


def test_gamma_falls_along_half_a_cosine() -> None:
    objective = ContrastiveLoss(objective="sogclr:size=3,gamma=0.2,decay=0.5").objective
    objective.set_length(8)
    found = []
    for epoch in (0, 1, 2, 4, 7):
        objective.set_progress(epoch)
        found.append(objective.current_gamma())
    assert found == pytest.approx([1, 0.2 + 0.4 * (1 + math.cos(math.pi / 4)), 0.6, 0.2, 0.2], rel=1e-12)


def test_an_evaluation_reads_and_moves_no_averages() -> None:
    loss_fn = ContrastiveLoss(f"fixed:temperature={TAU}", f"sogclr:size={SIZE}", "cross-view", reduction="none").double()
    loss_fn(*pairs(4, 0), index=torch.tensor(STEPS[0]))
    before = loss_fn.objective.log_averages.clone()
    views = pairs(4, 1)
    own = ContrastiveLoss(f"fixed:temperature={TAU}", "dcl", "cross-view", reduction="none")(*views)
    torch.testing.assert_close(loss_fn.eval()(*views), TAU * (own - math.log(3)), rtol=1e-12, atol=1e-12)
    assert torch.equal(loss_fn.objective.log_averages, before)


WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("sogclr:size=9", "two-view", {}, "objective 'sogclr' needs the position of each row in the data set: pass index= to the"),
    ("sogclr:size=9", "two-view", {"index": [0, 1, 9, 2]}, "index holds 9; size=9 of objective 'sogclr' allows 0"),
    ("sogclr:size=9", "two-view", {"index": [0, 1, -1, 2]}, "index holds -1; size=9 of objective 'sogclr'"),
    ("sogclr:size=9,decay=0.5", "two-view", {"index": [0, 1, 2, 3]}, "decay=0.5 of objective 'sogclr' needs the length of the"),
    ("infonce", "two-view", {"index": [0, 1, 2, 3]}, "index= is read neither .* objective 'sogclr' do"),
]


@pytest.mark.parametrize(("objective", "layout", "given", "message"), WRONG)
def test_what_does_not_fit_is_named(objective: str, layout: Any, given: dict[str, Any], message: str) -> None:
    inputs = {name: torch.tensor(value) for name, value in given.items()}
    with pytest.raises(ConfigError, match=message):
        ContrastiveLoss(objective=objective, layout=layout)(*pairs(4, 0), **inputs)


def test_lists_of_heads_and_transforms_are_refused() -> None:
    loss_fn, (a, b) = ContrastiveLoss(objective="sogclr:size=9"), pairs(4, 0)
    with pytest.raises(ConfigError, match="objective 'sogclr' has one state for each example: it takes one head, not 2"):
        loss_fn([a, a], [b, b], index=torch.arange(4))
    with pytest.raises(ConfigError, match="objective 'sogclr' learns from every batch, which no transform"):
        torch.func.grad(lambda rows: loss_fn(rows, b, index=torch.arange(4)))(a)
    for wrong in (-1.0, math.nan):
        with pytest.raises(ConfigError, match="of set_length must be at least 0"):
            loss_fn.set_length(wrong)


@pytest.mark.filterwarnings("ignore:layout 'masks' leaves 1 of 3 anchors without a negative:RuntimeWarning")
def test_rows_without_negatives_leave_their_averages_alone_and_cold_logits_stay_finite() -> None:
    loss_fn = ContrastiveLoss("fixed:temperature=1e-9", "sogclr:size=4,gamma=1e-6", "masks")
    positive, same = torch.eye(3, dtype=torch.bool), torch.ones(3, 2).requires_grad_()
    negative = ~positive & torch.tensor([True, True, False])[:, None]
    for sign in (1.0, -1.0, 1.0):
        other = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [sign, 1.0]])
        loss = loss_fn(same, other, index=torch.tensor([2, 0, 1]), positive_mask=positive, negative_mask=negative)
        (gradient,) = torch.autograd.grad(loss, same)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    state = loss_fn.objective.log_averages
    assert state.isfinite().nonzero().flatten().tolist() == [0, 2]
    assert state.isneginf().sum() == 6


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_a_row_that_lost_its_negatives_has_no_gradient(engine: Any) -> None:
    """Its average is of earlier batches, far from what its positives alone would give at a low temperature."""
    loss_fn = ContrastiveLoss("fixed:temperature=0.005", "sogclr:size=4", layout="labels", engine=engine)
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.0, 1.0]])
    loss_fn(rows, rows.flip(0), labels=torch.arange(3), index=torch.arange(3))
    views = [rows.clone().requires_grad_(), rows.flip(1).clone().requires_grad_()]
    with pytest.warns(RuntimeWarning, match="without a negative"):
        loss = loss_fn(*views, labels=torch.zeros(3).long(), index=torch.arange(3))
    assert loss == 0
    for gradient in torch.autograd.grad(loss, views):
        assert not gradient.any()
