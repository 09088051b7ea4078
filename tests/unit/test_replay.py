"""Checkpoints compute a call a second time: state moves once, and gradients are those without a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tempplug import Batch, ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import RowStatistics

CASES: list[tuple[str, str, Any, bool, str | None]] = [
    ("individual:size=9,learning_rate=0.3", "dcl", "two-view", False, None),
    ("individual:size=9,learning_rate=0.3", "infonce", "cross-view", True, "hardness"),
    ("target-probability:rate=3", "infonce", "cross-view", True, "hardness"),
    ("macl:alpha=2,threshold=0.9", "reweighted", "two-view", False, "log-q:size=9"),
    ("fixed", "dcl", "cross-view:directions=ab+aa+ba+bb", False, "false-negatives:weight=0.5+log-q:size=9"),
    ("temperature-free", "infonce", "labels", False, None),
    ("amcl:dimension=4", "dcl", "two-view", False, None),
    ("learnable", "sogclr:size=9,gamma=0.3,rho=1", "cross-view", True, None),
    ("individual:size=9,learning_rate=0.3", "sogclr:size=9,gamma=0.3,per_view=false", "two-view", False, None),
    ("fixed", "sogclr:size=9,gamma=0.3", "cross-view:directions=ab+aa+ba+bb", False, None),
]


def train(case: tuple[str, str, Any, bool, str | None], engine: Any, reentrant: bool | None, calls: int) -> list[Tensor]:
    """Losses, gradients and state of three steps of several calls each."""
    strategy, objective, layout, symmetric, negatives = case
    torch.manual_seed(0)
    encoder = nn.Linear(4, 4).double()
    loss_fn = ContrastiveLoss(strategy, objective, layout, engine=engine, symmetric=symmetric, negatives=negatives).double()

    def model(a: Tensor, b: Tensor, index: Tensor) -> Tensor:
        return loss_fn(encoder(a), encoder(b), **loss_fn.accepted(index=index, labels=index // 2))

    generator, found = torch.Generator().manual_seed(1), []
    for _ in range(3):
        total = torch.zeros((), dtype=torch.float64)
        for _ in range(calls):
            a, b = (torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
            inputs = (a, b, torch.randperm(9, generator=generator)[:6])
            total = total + (model(*inputs) if reentrant is None else checkpoint(model, *inputs, use_reentrant=reentrant))
        encoder.zero_grad()
        total.backward()
        assert encoder.weight.grad is not None
        found += [total.detach(), encoder.weight.grad.clone(), *(buffer.clone() for buffer in loss_fn.buffers())]
    return found


@pytest.mark.filterwarnings("ignore:strategy 'macl'.*below its floor:RuntimeWarning")
@pytest.mark.parametrize(
    ("case", "engine", "reentrant", "calls"), every_pair(CASES, ["dense", "tiled"], [False, True], [1, 3]), ids=str
)
def test_a_checkpoint_changes_nothing(
    case: tuple[str, str, Any, bool, str | None], engine: str, reentrant: bool, calls: int
) -> None:
    expected = train(case, engine, None, calls)
    for ours, theirs in zip(train(case, engine, reentrant, calls), expected, strict=True):
        # Reentrant backward passes add up the calls in another order.
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_same_pairs_the_other_way_round_are_another_call() -> None:
    """Both have the same index and the same positive similarities."""

    def step(reentrant: bool | None) -> Tensor:
        torch.manual_seed(0)
        loss_fn = ContrastiveLoss("individual:size=6,learning_rate=0.5,gamma=0.5", layout="cross-view").double()
        a, b = (torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def one(first: Tensor, second: Tensor) -> Tensor:
            return loss_fn(first, second, index=torch.arange(6))

        losses = [
            one(*each) if reentrant is None else checkpoint(one, *each, use_reentrant=reentrant) for each in ((a, b), (b, a))
        ]
        return torch.cat(torch.autograd.grad(sum(losses), (a, b))) if reentrant is not True else _backward(losses, a, b)

    expected = step(None)
    for reentrant in (False, True):
        torch.testing.assert_close(step(reentrant), expected, rtol=1e-12, atol=1e-14)


def _backward(losses: list[Any], a: Tensor, b: Tensor) -> Tensor:
    sum(losses).backward()
    assert a.grad is not None
    assert b.grad is not None
    return torch.cat([a.grad, b.grad])


class Counting(Strategy):
    """A third party's: it counts the batches that it observed, and the count is its temperature; it may learn a scale too."""

    name = "counting"
    seen: Tensor

    def __init__(self, learns: bool) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(()))
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learns)

    def prepare(self, batch: Batch) -> LogitMap:
        return ScaleMap(self.scale / self.seen)

    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        self.seen += 1


def call(loss_fn: ContrastiveLoss) -> Tensor:
    a, b = (torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_() for seed in (0, 1))
    checkpoint(loss_fn, a, b, use_reentrant=False).backward()
    assert a.grad is not None
    return a.grad


def test_any_strategy_that_observes_sees_a_checkpointed_batch_once() -> None:
    loss_fn = ContrastiveLoss(Counting(learns=False))
    expected = call(ContrastiveLoss("fixed:temperature=1"))
    assert torch.equal(call(loss_fn), expected)
    assert loss_fn.strategy.seen.item() == 2


def test_what_learns_and_observes_is_refused_under_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match="strategy 'counting' both learns and observes batches, so a checkpoint cannot"):
        call(ContrastiveLoss(Counting(learns=True)))


def test_a_loss_inside_somebody_elses_backward_pass_is_a_call_like_any_other() -> None:
    loss_fn = ContrastiveLoss(Counting(learns=False))
    x = torch.ones((), requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: loss_fn(torch.eye(3), torch.eye(3)).detach() * gradient)
    y.backward()
    assert loss_fn.strategy.seen.item() == 2
