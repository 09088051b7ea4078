"""The short way of small batches: every map × objective × layout against the float64 oracle, and its record and rounding.

What the short way cannot do goes the long way, with the same numbers; each test asserts which of the two was taken.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
import torch
from oracle_cases import COUNTS, OBJECTIVES, ONE_POSITIVE, build, compare, make_call
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import Batch, ContrastiveLoss, small
from tempplug.engine import single
from tempplug.errors import ConfigError
from tempplug.layouts import CrossView, Direction, Views
from tempplug.objectives.infonce import InfoNCE
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.fixed import Fixed
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Auxiliary, RowStatistics

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

MAPS = [
    "fixed:temperature=0.07",
    "learnable",
    "macl",
    "dystress",
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "temperature-free:eps=0.01",
    "uncertainty",
    f"head-tail:class_counts={COUNTS}",
]
PER_ANCHOR = ("uncertainty", "head-tail")


def goes_short(strategy: str, layout: str) -> bool:
    """Two directions of one block share a map; hard negatives of one direction make two blocks."""
    return layout != "symmetric+hard" and not (layout == "symmetric" and strategy.startswith(PER_ANCHOR))


@pytest.mark.parametrize("layout", ONE_POSITIVE)
@pytest.mark.parametrize("strategy", MAPS, ids=lambda spec: spec.replace(COUNTS, "…"))
def test_rows_and_gradients_are_those_of_the_oracle(strategy: str, layout: str, short: list[bool]) -> None:
    for objective in OBJECTIVES:
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4 if "free" in strategy else 4e-5)):
            compare(strategy, objective, make_call(layout, strategy, 17, 6, dtype), tolerance)
    assert short == [goes_short(strategy, layout)] * len(short)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("layout", [each for each in ONE_POSITIVE if goes_short("", each)])
@pytest.mark.parametrize("strategy", ["learnable", "dystress", "temperature-free", "uncertainty"])
def test_both_ways_have_one_loss_gradient_and_record(
    strategy: str, layout: str, reduction: str, short: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for largest in (single.LARGEST, 0):
        monkeypatch.setattr(single, "LARGEST", largest)
        call = make_call(layout, strategy, 33, 5, torch.float64)
        loss_fn = build(strategy, "infonce", call, reduction)
        value = loss_fn(*call.views, **call.inputs)
        weights = torch.linspace(1, 2, value.numel(), dtype=torch.float64).view(value.shape)
        gradients = torch.autograd.grad((value * weights).sum(), [*call.leaves(), *loss_fn.parameters()])
        assert loss_fn.record.engine in ("tiled", "dense")
        found.append(([value, *gradients], loss_fn.record.numbers()))
    assert short == [goes_short(strategy, layout), False]
    (numbers, record), (others, of_other) = found
    for ours, long in zip(numbers, others, strict=True):
        torch.testing.assert_close(ours, long, rtol=1e-12, atol=1e-14)
    assert record == pytest.approx(of_other, rel=1e-12)


def diagonal_masks(kind: str, rows: int) -> tuple[int, Tensor, Tensor]:
    """Returns how many candidates there are, and the masks of positives and negatives."""
    one, everything = torch.eye(rows, dtype=torch.bool), torch.ones(rows, rows, dtype=torch.bool)
    none = ~everything
    if kind == "one view":
        return rows, one, ~one
    if kind == "both views":  # an anchor is no negative of its own
        return 2 * rows, torch.cat([one, none], 1), torch.cat([~one, ~one], 1)
    return 2 * rows, torch.cat([none, one], 1), torch.cat([everything, ~one], 1)


@pytest.mark.parametrize("kind", ["one view", "both views", "behind"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.1", "macl", "learnable"])
def test_masks_that_are_diagonals_have_one_loss_on_both_ways(
    kind: str, strategy: str, short: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, positive, negative = diagonal_masks(kind, 9)
    found = []
    for largest in (small.LARGEST, 0):
        monkeypatch.setattr(small, "LARGEST", largest)
        torch.manual_seed(0)
        a, b = (torch.randn(rows, 5, dtype=torch.float64, requires_grad=True) for rows in (9, columns))
        loss_fn = ContrastiveLoss(strategy, layout="masks").double()
        value = loss_fn(a, b, positive_mask=positive, negative_mask=negative)
        found.append([value, *torch.autograd.grad(value, [a, b, *loss_fn.parameters()])])
    assert short == [True, False]
    for ours, long in zip(*found, strict=True):
        torch.testing.assert_close(ours, long, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["one view", "both views", "behind"])
def test_masks_with_a_pair_more_or_less_are_no_diagonals(kind: str, short: list[bool]) -> None:
    """Each pair in turn that is a negative, or left out, becomes the other; a second positive; a positive too few."""
    columns, positive, negative = diagonal_masks(kind, 4)
    a, b = torch.randn(4, 5, dtype=torch.float64), torch.randn(columns, 5, dtype=torch.float64)
    loss_fn = ContrastiveLoss("fixed:temperature=0.5", layout="masks")
    logits = 2 * normalize(a) @ normalize(b).T
    for row, column in torch.cartesian_prod(torch.arange(4), torch.arange(columns)).tolist():
        pairs = []
        if not positive[row, column]:
            changed = negative.clone()
            changed[row, column] = ~changed[row, column]
            pairs.append((positive, changed))
            second = positive.clone()
            second[row, column] = True
            pairs.append((second, negative & ~second))
        for positives, negatives in pairs:
            value = loss_fn(a, b, positive_mask=positives, negative_mask=negatives)
            everything = logits.masked_fill(~(positives | negatives), -torch.inf).logsumexp(1)
            mean = (logits * positives).sum(1) / positives.sum(1)
            assert value.item() == pytest.approx((everything - mean).mean().item(), rel=1e-12)
    assert len(short) >= 4 * columns
    assert all(short)


def test_masks_that_contradict_each_other_are_refused_in_small_batches() -> None:
    columns, positive, _ = diagonal_masks("one view", 4)
    a, b = torch.randn(2, columns, 5)
    with pytest.raises(ConfigError, match="overlap"):
        ContrastiveLoss(layout="masks")(a, b, positive_mask=positive, negative_mask=torch.ones_like(positive))


def eager(layout: str, a: Tensor, b: Tensor, extra: Tensor, temperature: float) -> Tensor:
    """The losses as one writes them in plain torch."""
    a, b, extra = normalize(a), normalize(b), normalize(extra)
    rows = torch.arange(len(a))
    if layout == "two-view":
        both = torch.cat([a, b])
        own = torch.eye(len(both), dtype=torch.bool)
        return cross_entropy((both @ both.T / temperature).masked_fill(own, -torch.inf), torch.cat([rows + len(a), rows]))
    if layout == "queue":
        return cross_entropy(torch.cat([(a * b).sum(1, keepdim=True), a @ extra.T], 1) / temperature, rows * 0)
    if layout == "cross-view+hard":
        return cross_entropy(a @ torch.cat([b, extra]).T / temperature, rows)
    logits = a @ b.T / temperature
    if layout == "cross-view":
        return cross_entropy(logits, rows)
    return (cross_entropy(logits, rows) + cross_entropy(logits.T, rows)) / 2


@pytest.mark.parametrize("temperature", [0.01, 0.02, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "symmetric", "cross-view+hard", "queue"])
@pytest.mark.parametrize(("rows", "dimension"), [(32, 128), (200, 64)])
def test_gradients_are_not_worse_than_those_of_plain_torch(
    rows: int, dimension: int, layout: str, temperature: float, short: list[bool]
) -> None:
    name = {"symmetric": "cross-view"}.get(layout, layout.partition("+")[0])
    loss_fn = ContrastiveLoss(f"fixed:temperature={temperature}", layout=name, symmetric=layout == "symmetric")  # type: ignore[arg-type]
    given = {"queue": "queue", "cross-view+hard": "hard_negatives"}.get(layout)

    def gradient(ours: bool, dtype: torch.dtype, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        a, noise, extra = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
        leaves = [each.to(dtype).requires_grad_() for each in (a, a + 2 * noise, extra)]
        inputs = {given: leaves[2]} if given else {}
        value = loss_fn(*leaves[:2], **inputs) if ours else eager(layout, *leaves, temperature)
        return torch.cat(torch.autograd.grad(value, leaves if given else leaves[:2])).double()

    def error(ours: bool, seed: int) -> float:
        exact = gradient(False, torch.float64, seed)
        return ((gradient(ours, torch.float32, seed) - exact).abs().max() / exact.abs().max()).item()

    # Of several batches, because which of two roundings is the luckier changes from one to the next.
    found, plain = (statistics.median(error(ours, seed) for seed in range(7)) for ours in (True, False))
    assert short == [True] * 7
    assert found <= max(1.5 * plain, 6e-7)


def test_incoming_gradients_of_any_size_keep_their_digits_at_small_temperatures(short: list[bool]) -> None:
    call = make_call("two-view", "fixed", 17, 6, torch.float32)
    loss_fn = build("fixed:temperature=0.015", "infonce", call, "none")
    rows = loss_fn(*call.views)
    usual = torch.autograd.grad(rows.sum(), call.views, retain_graph=True)
    for factor in (2.0**-100, 2.0**60):
        for ours, other in zip(torch.autograd.grad((rows * factor).sum(), call.views, retain_graph=True), usual, strict=True):
            torch.testing.assert_close(ours, other * factor, rtol=1e-5, atol=1e-43)
    assert short == [True]


class Reading(Fixed):
    """Reads what the short way does not have."""

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        return ScaleMap(10 + batch.anchors.square().sum() * 0)


class Doubled(InfoNCE):
    """Another loss than its base's, whose closed form is no longer true."""

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return 2 * super().row_loss(statistics, auxiliary)


def test_subclasses_that_change_what_a_closed_form_says_go_the_long_way(short: list[bool]) -> None:
    call = make_call("two-view", "fixed", 17, 6, torch.float64)
    expected = ContrastiveLoss()(*call.views)
    assert ContrastiveLoss(Reading())(*call.views).item() == pytest.approx(expected.item(), rel=1e-12)
    assert ContrastiveLoss(objective=Doubled())(*call.views).item() == pytest.approx(2 * expected.item(), rel=1e-12)
    assert short == [True, False, False]


class Shifted(CrossView):
    """Row i's positive is candidate i + 1."""

    name = "shifted"

    def directions(self, views: Views) -> list[Direction]:
        return [replace(each, roles=self.roles(views.size)) for each in super().directions(views)]

    def only_block(self, size: int, queued: int, extra: int) -> tuple[PairRoles, bool]:
        return self.roles(size), False

    def roles(self, size: int) -> PairRoles:
        runs = ((0, size - 1, 1), (size - 1, size, 1 - size))
        return PairRoles(anchors=size, candidates=size, device=torch.device("cpu"), positives=Pairing(runs))


def test_positives_that_stand_elsewhere_go_the_long_way(short: list[bool]) -> None:
    a, b = torch.randn(2, 7, 4, dtype=torch.float64)
    value = ContrastiveLoss("fixed:temperature=0.5", layout=Shifted())(a, b)
    expected = cross_entropy(2 * normalize(a) @ normalize(b).T, torch.arange(1, 8) % 7)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    assert short == [False]
