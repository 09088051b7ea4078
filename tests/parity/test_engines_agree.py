"""Both engines have one loss, gradient and record: what the oracle does not know, and roles that have a way of their own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from oracle_cases import LAYOUTS, ONE_POSITIVE, build, make_call
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss
from tempplug.layouts import CrossView, Direction, Views
from tempplug.roles import Pairing, PairRoles
from tempplug.types import EngineName

MORE = ["labels+hard", "labels-one-view+hard"]
ENGINES: list[EngineName] = ["dense", "tiled"]
both_engines = pytest.mark.parametrize("engine", ENGINES)


CASES = [
    *itertools.product(("learnable", "dystress", "uncertainty", "individual:size=40"), ["infonce"], [*LAYOUTS, *MORE]),
    *itertools.product(["amcl:dimension=5"], ["amcl-top:top_k=3,beta=0.5"], ONE_POSITIVE),
]


@pytest.mark.usefixtures("cut_or_not")
@pytest.mark.parametrize(("strategy", "objective", "layout"), CASES)
def test_engines_have_one_loss_gradient_state_and_record(strategy: str, objective: str, layout: str) -> None:
    found = []
    for engine in ENGINES:
        call = make_call(layout, strategy, 16, 5, torch.float64)
        if layout.startswith("labels-one-view"):
            call.inputs["labels"][:2] = torch.tensor([100, 10**9])  # two anchors without a positive
        if strategy.startswith("individual"):
            call.inputs["index"] = torch.arange(16)
        loss_fn = build(strategy, objective, call, "none", engine)
        value = loss_fn(*call.views, **call.inputs)
        weights = torch.linspace(1, 2, value.numel(), dtype=torch.float64).view(value.shape)
        leaves = [*call.leaves(), *loss_fn.parameters()]
        gradients = torch.autograd.grad((value * weights).sum(), leaves, retain_graph=True)
        again = torch.autograd.grad((value * weights).sum(), leaves)
        torch.testing.assert_close(again, gradients, rtol=1e-12, atol=1e-14)
        assert loss_fn.record.engine == engine
        found.append(([value, *gradients, *loss_fn.buffers()], loss_fn.record.numbers()))
    (numbers, record), (others, of_other) = found
    for ours, theirs in zip(numbers, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)
    assert record == pytest.approx(of_other, rel=1e-10)


def diagonal_masks(kind: str, rows: int) -> tuple[int, Tensor, Tensor]:
    """Returns how many candidates there are, and the masks of positives and negatives."""
    one, everything = torch.eye(rows, dtype=torch.bool), torch.ones(rows, rows, dtype=torch.bool)
    none = ~everything
    if kind == "one view":
        return rows, one, ~one
    if kind == "both views":  # an anchor is no negative of its own
        return 2 * rows, torch.cat([one, none], 1), torch.cat([~one, ~one], 1)
    return 2 * rows, torch.cat([none, one], 1), torch.cat([everything, ~one], 1)


@both_engines
@pytest.mark.parametrize("kind", ["one view", "both views", "behind"])
def test_masks_that_are_diagonals_have_the_loss_of_the_formula(kind: str, engine: EngineName) -> None:
    columns, positive, negative = diagonal_masks(kind, 9)
    a, b = (torch.randn(rows, 5, dtype=torch.float64, requires_grad=True) for rows in (9, columns))
    value = ContrastiveLoss("fixed:temperature=0.5", layout="masks", engine=engine)(
        a, b, positive_mask=positive, negative_mask=negative
    )
    logits = 2 * normalize(a) @ normalize(b).T
    everything = logits.masked_fill(~(positive | negative), -torch.inf).logsumexp(1)
    expected = (everything - logits[positive]).mean()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(*(torch.autograd.grad(each, [a, b]) for each in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["one view", "both views", "behind"])
def test_masks_with_a_pair_more_or_less_are_no_diagonals(kind: str) -> None:
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


class Shifted(CrossView):
    """Row i's positive is candidate i + 1."""

    name = "shifted"

    def build(self, views: Views) -> list[Direction]:
        size = views.size
        runs = ((0, size - 1, 1), (size - 1, size, 1 - size))
        roles = PairRoles(anchors=size, candidates=size, device=views.device, positives=Pairing(runs))
        return [replace(each, roles=roles) for each in super().build(views)]


@both_engines
def test_positives_may_stand_elsewhere(engine: EngineName) -> None:
    a, b = (torch.randn(7, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value = ContrastiveLoss("fixed:temperature=0.5", layout=Shifted(), engine=engine)(a, b)
    expected = cross_entropy(2 * normalize(a) @ normalize(b).T, torch.arange(1, 8) % 7)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(*(torch.autograd.grad(each, [a, b]) for each in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
