"""An objective with a pair function, as a third party writes a sigmoid loss, through the loss: equal to a dense formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from covering import every_pair
from oracle_cases import CUTS, LAYOUTS, Call, cut_into, make_call, roles_of
from sigmoid_toys import Sigmoid
from torch import Tensor
from torch.nn.functional import softplus

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.types import EngineName


def expected_rows(call: Call, scale: Tensor, bias: Tensor) -> Tensor:
    """The mean over the directions in which an anchor has a positive, of pairs whose roles are those of the oracle."""
    found = []
    for blocks in roles_of(call):
        logits = scale * torch.cat([each.anchors @ each.candidates.T for each in blocks], 1) + bias
        negative, positive = (torch.cat([getattr(each, of) for each in blocks], 1) for of in ("negative", "positive"))
        rows = softplus(logits, threshold=40) * negative + softplus(-logits, threshold=40) * positive
        found.append(rows.sum(1) * positive.any(1))
    return torch.stack(found).mean(0)


@pytest.mark.parametrize(("layout", "engine", "cut"), every_pair(LAYOUTS, ["dense", "tiled"], list(CUTS)))
def test_a_sigmoid_loss_is_that_of_the_formula(layout: str, engine: EngineName, cut: str) -> None:
    call = make_call(layout, "learnable", 13, 5, torch.float64)
    name: Any = call.layout
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), name, symmetric=call.symmetric, reduction="none", engine=engine).double()
    learned = dict(loss_fn.named_parameters())
    log_scale = learned["strategy.log_scale"].detach().clone().requires_grad_()
    bias = torch.tensor(-1.5, dtype=torch.float64, requires_grad=True)
    expected = expected_rows(call, log_scale.exp(), bias)
    with cut_into(cut):
        rows = loss_fn(*call.views, **call.inputs)
        torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-10)
        weights = torch.linspace(0.5, 2, len(rows), dtype=torch.float64)
        leaves = [*call.leaves(), learned["strategy.log_scale"], learned["objective.offset"]]
        ours = torch.autograd.grad((rows * weights).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), [*call.leaves(), log_scale, bias])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert loss_fn.record.engine == engine


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_an_anchor_without_a_negative_has_the_loss_of_its_positive(engine: EngineName) -> None:
    a = torch.randn(1, 4, dtype=torch.float64)
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), "cross-view", engine=engine).double()
    with pytest.warns(RuntimeWarning, match="1 of 1 anchors without a negative"):
        assert loss_fn(a, a).item() == pytest.approx(math.log1p(math.exp(1.5 - 1 / 0.07)), rel=1e-6)


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_the_record_shows_no_softmax_where_there_is_none(engine: EngineName) -> None:
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), engine=engine).double()
    loss = loss_fn(*make_call("two-view", "learnable", 13, 5, torch.float64).views)
    shown = loss_fn.record.numbers()
    assert shown["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert shown["objective_offset"] == -1.5
    assert shown["temperature_mean"] == pytest.approx(0.07)
    assert not shown.keys() & {"infonce", "positive_probability", "gradient_scale", "effective_negatives"}


def test_another_map_is_refused_by_the_objective() -> None:
    with pytest.raises(ConfigError, match="objective 'sigmoid' needs one scale"):
        ContrastiveLoss("dystress", Sigmoid())(*torch.randn(2, 5, 4, dtype=torch.float64))
