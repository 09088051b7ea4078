"""An objective with a pair function, as a third party writes a sigmoid loss, through the loss: equal to a dense formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from oracle_cases import LAYOUTS, Call, make_call
from sigmoid_toys import Sigmoid
from torch import Tensor
from torch.nn.functional import normalize, softplus

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.types import EngineName


def roles_of(call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns unit anchors and candidates, and which pairs are positives and negatives."""
    units = [normalize(view) for view in call.views]
    n, hard, queue = len(units[0]), call.inputs.get("hard_negatives"), call.inputs.get("queue")
    if call.layout in ("two-view", "labels"):
        anchors = candidates = torch.cat(units)
        own = torch.eye(len(anchors), dtype=torch.bool)
        classes = torch.arange(n) if call.layout == "two-view" else call.inputs["labels"]
        classes = classes.repeat(len(units))
        same = classes[:, None] == classes
        positive, negative = same & ~own, ~same
    elif call.layout == "masks":
        (anchors, candidates), positive, negative = units, call.inputs["positive_mask"], call.inputs["negative_mask"]
    else:
        anchors, candidates = units[0], units[1] if queue is None else torch.cat([units[1], normalize(queue)])
        positive = torch.eye(n, len(candidates), dtype=torch.bool)
        negative = ~positive if queue is None else (torch.arange(len(candidates)) >= n).expand(n, -1)
    if hard is not None:
        more = normalize(hard.flatten(0, -2))
        candidates = torch.cat([candidates, more])
        seen = (torch.arange(len(anchors)) < n)[:, None].expand(-1, len(more))
        positive = torch.cat([positive, torch.zeros_like(seen)], 1)
        negative = torch.cat([negative, seen], 1)
    return anchors, candidates, positive, negative


def expected_rows(call: Call, scale: Tensor, bias: Tensor) -> Tensor:
    anchors, candidates, positive, negative = roles_of(call)
    logits = scale * anchors @ candidates.T + bias
    rows = (softplus(logits, threshold=40) * negative + softplus(-logits, threshold=40) * positive).sum(1)
    if call.symmetric:
        turned = Call(call.layout, False, call.views[::-1], {})
        return (rows + expected_rows(turned, scale, bias)) / 2 if "hard_negatives" not in call.inputs else rows
    return rows * positive.any(1)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != "symmetric+hard"])
def test_a_sigmoid_loss_is_that_of_the_formula(layout: str, engine: EngineName) -> None:
    call = make_call(layout, "learnable", 13, 5, torch.float64)
    name: Any = call.layout
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), name, symmetric=call.symmetric, reduction="none", engine=engine).double()
    rows = loss_fn(*call.views, **call.inputs)
    log_scale = loss_fn.strategy.log_scale.detach().clone().requires_grad_()  # type: ignore[operator]
    bias = torch.tensor(-1.5, dtype=torch.float64, requires_grad=True)
    expected = expected_rows(call, log_scale.exp(), bias)
    torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-10)
    weights = torch.linspace(0.5, 2, len(rows), dtype=torch.float64)
    learned = dict(loss_fn.named_parameters())
    ours = torch.autograd.grad(
        (rows * weights).sum(), [*call.leaves(), learned["strategy.log_scale"], learned["objective.offset"]]
    )
    theirs = torch.autograd.grad((expected * weights).sum(), [*call.leaves(), log_scale, bias])
    for position, (found, wanted) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10, msg=lambda text, p=position: f"gradient {p}: {text}")
    assert learned["objective.offset"].grad is None
    assert loss_fn.record.engine == engine


def test_masks_that_are_diagonals_are_no_other_case() -> None:
    """Which loss a pair has does not depend on whether roles are found to stand on diagonals."""
    a, b = torch.randn(2, 6, 4, dtype=torch.float64)
    own = torch.eye(6, dtype=torch.bool)
    loss_fn = ContrastiveLoss("fixed:temperature=0.07", Sigmoid(), "masks", reduction="none")
    one = loss_fn(a, b, positive_mask=own, negative_mask=~own)
    two = loss_fn(a, b, positive_mask=own, negative_mask=~own & ~own.roll(2, 1) & ~own.roll(3, 1))
    other = normalize(a) @ normalize(b).T / 0.07 - 1.5
    left_out = softplus(other, threshold=40) * (own.roll(2, 1) | own.roll(3, 1))
    torch.testing.assert_close(one - two, left_out.sum(1), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_an_anchor_without_a_negative_has_the_loss_of_its_positive(engine: EngineName) -> None:
    a = torch.randn(1, 4, dtype=torch.float64)
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), "cross-view", engine=engine).double()
    with pytest.warns(RuntimeWarning, match="1 of 1 anchors without a negative"):
        assert loss_fn(a, a).item() == pytest.approx(math.log1p(math.exp(1.5 - 1 / 0.07)), rel=1e-6)


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_the_record_shows_no_softmax_that_there_is_none_of(engine: EngineName) -> None:
    call = make_call("two-view", "learnable", 13, 5, torch.float64)
    loss_fn = ContrastiveLoss("learnable", Sigmoid(), engine=engine).double()
    loss = loss_fn(*call.views)
    shown = loss_fn.record.numbers()
    assert shown["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert shown["objective_offset"] == -1.5
    assert shown["temperature_mean"] == pytest.approx(0.07)
    assert not shown.keys() & {"infonce", "positive_probability", "gradient_scale", "effective_negatives"}


def test_another_map_is_refused_by_the_objective() -> None:
    with pytest.raises(ConfigError, match="objective 'sigmoid' needs one scale"):
        ContrastiveLoss("dystress", Sigmoid())(*torch.randn(2, 5, 4, dtype=torch.float64))
