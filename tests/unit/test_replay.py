"""Checkpoints compute a call a second time: state moves once, and gradients are those without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from covering import every_pair
from moving import Moving
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tempplug import Batch, ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import RowStatistics

Made = str | Callable[[], Strategy]
"""A spec, or what makes a strategy."""
CASES: list[tuple[Made, str, Any, bool, str | None]] = [
    ("individual:size=9,learning_rate=0.3", "dcl", "two-view", False, None),
    ("individual:size=9,learning_rate=0.3", "infonce", "cross-view", True, "hardness"),
    (partial(Moving, 3), "infonce", "cross-view", True, "hardness"),
    ("macl:alpha=2,threshold=0.9", "reweighted", "two-view", False, "log-q:size=9"),
    ("fixed", "dcl", "cross-view:directions=ab+aa+ba+bb", False, "false-negatives:weight=0.5+log-q:size=9"),
    ("temperature-free", "infonce", "labels", False, None),
    ("amcl:dimension=4", "dcl", "two-view", False, None),
    ("learnable", "sogclr:size=9,gamma=0.3,rho=1", "cross-view", True, None),
    ("individual:size=9,learning_rate=0.3", "sogclr:size=9,gamma=0.3,per_view=false", "two-view", False, None),
    ("fixed", "sogclr:size=9,gamma=0.3", "cross-view:directions=ab+aa+ba+bb", False, None),
]


def train(case: tuple[Made, str, Any, bool, str | None], engine: Any, reentrant: bool | None, calls: int) -> list[Tensor]:
    """Losses, gradients and state of three steps of several calls each."""
    strategy, objective, layout, symmetric, negatives = case
    torch.manual_seed(0)
    encoder = nn.Linear(4, 4).double()
    loss_fn = made(strategy, objective, layout, engine=engine, symmetric=symmetric, negatives=negatives).double()

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
    case: tuple[Made, str, Any, bool, str | None], engine: str, reentrant: bool, calls: int
) -> None:
    expected = train(case, engine, None, calls)
    for ours, theirs in zip(train(case, engine, reentrant, calls), expected, strict=True):
        # Reentrant backward passes add up the calls in another order.
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


FAST = partial(Moving, 9)
MOVING: list[tuple[Made, str]] = [
    (FAST, "infonce"),
    ("individual:size=32,learning_rate=0.3", "infonce"),
    ("fixed", "sogclr:size=32,gamma=0.3"),
]


def pairs_of_views(kind: str) -> list[tuple[Tensor, Tensor]]:
    """Two calls of one step that have much in common."""
    rows = [torch.randn(32, 16, generator=torch.Generator().manual_seed(each), dtype=torch.float64) for each in range(4)]
    if kind == "other candidates":
        return [(rows[0], rows[1]), (rows[0], rows[2])]
    if kind == "the other way round":
        return [(rows[0], rows[1]), (rows[1], rows[0])]
    if kind == "other order":
        return [(rows[0], rows[1]), (rows[0].flip(0), rows[1].flip(0))]
    for each in rows:
        each[:, [0, -1]] = 0
    return [(rows[0], rows[1]), (rows[2], rows[3])]


def step(
    loss_fns: Sequence[ContrastiveLoss], calls: Sequence[tuple[Tensor, Tensor]], around: Callable[..., Any] | None
) -> list[Tensor]:
    """Gradients of one backward pass through several calls, of one loss in turn with others; ``around`` computes them again."""
    leaves = [tuple(each.clone().requires_grad_() for each in views) for views in calls]
    total = torch.zeros((), dtype=torch.float64)
    for number, views in enumerate(leaves):
        loss_fn = loss_fns[number % len(loss_fns)].double()
        call = partial(loss_fn, **loss_fn.accepted(index=torch.arange(len(views[0]))))
        total = total + (call(*views) if around is None else around(call, *views))
    total.backward()
    return [each.grad for views in leaves for each in views if each.grad is not None]


def nested(call: Callable[..., Tensor], *views: Tensor) -> Tensor:
    return checkpoint(partial(checkpoint, call, use_reentrant=False), *views, use_reentrant=False)  # type: ignore[no-any-return]


AROUND = {
    "checkpoint": partial(checkpoint, use_reentrant=False),
    "reentrant": partial(checkpoint, use_reentrant=True),
    "nested": nested,
}


def made(strategy: Made, objective: str, layout: Any = "cross-view", **options: Any) -> ContrastiveLoss:
    torch.manual_seed(0)
    return ContrastiveLoss(strategy if isinstance(strategy, str) else strategy(), objective, layout, **options)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", ["other candidates", "the other way round", "other order", "zeros in the outer columns"])
@pytest.mark.parametrize(("strategy", "objective"), MOVING)
def test_calls_of_one_step_are_told_apart_by_all_that_they_read(strategy: Made, objective: str, kind: str, around: str) -> None:
    calls = pairs_of_views(kind)
    expected = step([made(strategy, objective)], calls, None)
    for ours, theirs in zip(step([made(strategy, objective)], calls, AROUND[around]), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("negatives", "given"),
    [
        ("same-key+log-q:size=32", [{"keys": torch.arange(8) // 2}, {"keys": torch.arange(8) // 4}]),
        ("log-q:size=32", [{"index": torch.arange(8)}, {"index": torch.arange(8) + 9}]),
        (
            "log-q:size=32",
            [{"hard_negative_mask": torch.eye(8, 2).bool()}, {"hard_negative_mask": torch.eye(8, 2).roll(1, 0).bool()}],
        ),
        (
            "log-q:size=32",
            [{"hard_negatives": torch.ones(8, 2, 4).double()}, {"hard_negatives": torch.ones(8, 1, 4).double().tril()}],
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else ",".join(each[0]),
)
def test_calls_of_the_same_rows_are_told_apart_by_their_arguments(negatives: str, given: list[dict[str, Tensor]]) -> None:
    rows = [torch.randn(8, 4, generator=torch.Generator().manual_seed(each), dtype=torch.float64) for each in range(2)]
    hard = torch.randn(8, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def gradients(reentrant: bool | None) -> Tensor:
        loss_fn = made("individual:size=32,learning_rate=0.3", "infonce", negatives=negatives).double()
        views = [each.clone().requires_grad_() for each in rows]
        total = torch.zeros((), dtype=torch.float64)
        for each in given:
            items = each.get("index", torch.arange(8))
            arguments = {"hard_negatives": hard} | each
            count = arguments["hard_negatives"].shape[1]
            of_rows = {"view_a": items, "view_b": items, "hard_negatives": items[:, None].expand(-1, count)}
            keys = {} if "keys" not in each else {"keys": {**of_rows, "view_a": each["keys"], "view_b": each["keys"]}}
            call = partial(loss_fn, **(arguments | {"index": of_rows} | keys))
            total = total + (call(*views) if reentrant is None else checkpoint(call, *views, use_reentrant=reentrant))
        total.backward()
        return torch.cat([each.grad for each in views if each.grad is not None])

    expected = gradients(None)
    for reentrant in (False, True):
        torch.testing.assert_close(gradients(reentrant), expected, rtol=1e-10, atol=1e-14)


def test_a_large_argument_does_not_hide_that_rows_differ() -> None:
    rows = [torch.randn(8, 4, generator=torch.Generator().manual_seed(each), dtype=torch.float64) for each in range(3)]
    guide = {name: 1e9 * rows[0] for name in ("view_a", "view_b")}

    def gradients(around: Callable[..., Any] | None) -> list[Tensor]:
        loss_fn = made(FAST, "infonce", negatives="guide").double()
        leaves = [each.clone().requires_grad_() for each in rows]
        call, total = partial(loss_fn, guide=guide), torch.zeros((), dtype=torch.float64)
        for other in leaves[1:]:
            total = total + (call(leaves[0], other) if around is None else around(call, leaves[0], other))
        return list(torch.autograd.grad(total, leaves))

    for ours, theirs in zip(gradients(AROUND["checkpoint"]), gradients(None), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_two_losses_with_one_strategy_have_the_state_of_their_own_calls() -> None:
    def losses() -> list[ContrastiveLoss]:
        strategy = FAST()
        return [ContrastiveLoss(strategy, objective, "cross-view") for objective in ("infonce", "dcl")]

    calls = pairs_of_views("other candidates")
    for ours, theirs in zip(step(losses(), calls, AROUND["checkpoint"]), step(losses(), calls, None), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_a_step_may_have_hundreds_of_calls_as_one_with_a_loss_a_layer_and_dimension_has() -> None:
    rows = [torch.randn(6, 4, generator=torch.Generator().manual_seed(each), dtype=torch.float64) for each in range(2 * 300)]
    calls = list(zip(rows[::2], rows[1::2], strict=True))
    expected = step([made(partial(Moving, 0.1), "infonce")], calls, None)
    found = step([made(partial(Moving, 0.1), "infonce")], calls, AROUND["checkpoint"])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_two_equal_calls_of_one_step_cannot_be_told_apart_and_of_two_steps_need_not_be() -> None:
    (views, _), loss_fn = pairs_of_views("other order"), made(FAST, "infonce")
    with pytest.raises(ConfigError, match=r"two calls before it read the same embeddings and arguments.*outside of torch"):
        step([loss_fn], [views, views], AROUND["checkpoint"])
    loss_fn, plain = made(FAST, "infonce"), made(FAST, "infonce")
    for _ in range(3):  # of a learning rate of 0, or accumulated
        for ours, theirs in zip(step([loss_fn], [views], AROUND["checkpoint"]), step([plain], [views], None), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_without_a_checkpoint_nothing_is_remembered() -> None:
    loss_fn = made(FAST, "infonce")
    calls = pairs_of_views("other order")
    step([loss_fn], calls, None)
    assert not loss_fn.memory.replay._calls
    step([loss_fn], calls, AROUND["checkpoint"])
    assert len(loss_fn.memory.replay._calls) == 2


def test_a_second_computation_of_other_rows_is_refused() -> None:
    loss_fn = made(FAST, "infonce").double()
    views = [each.clone().requires_grad_() for each in pairs_of_views("other order")[0]]
    loss = checkpoint(
        lambda a, b: loss_fn(torch.dropout(a, 0.5, True), b), *views, use_reentrant=False, preserve_rng_state=False
    )
    with pytest.raises(ConfigError, match=r"those of none of its last 512 calls.*preserve_rng_state=True"):
        loss.backward()


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
