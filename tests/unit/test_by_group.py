"""One temperature for each group of anchors; its formula in every layout is in the covering array of the oracle."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss, create_strategy
from tempplug.errors import ConfigError, ShapeError, TempplugError

SIZE = 6
TAU = torch.tensor([0.05, 0.1, 0.4], dtype=torch.float64)
SPEC: Any = "by-group:temperatures=0.05/0.1/0.4"
GROUPS = torch.tensor([0, 2, 1, 1, 0, 2])


def rows(seed: int, width: int = 4, count: int = SIZE) -> Tensor:
    made = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_()


def test_each_direction_has_the_groups_of_its_own_anchors() -> None:
    a, b, of_b = rows(1), rows(2), GROUPS.roll(1)
    loss_fn = ContrastiveLoss(SPEC, layout="cross-view", symmetric=True)
    loss = loss_fn(a, b, groups={"view_a": GROUPS, "view_b": of_b})
    similarity = normalize(a) @ normalize(b).T
    ways = [cross_entropy(s / TAU[of][:, None], torch.arange(SIZE)) for s, of in ((similarity, GROUPS), (similarity.T, of_b))]
    torch.testing.assert_close(loss, sum(ways) / 2, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(loss_fn.record.temperature_max, TAU[2])
    torch.testing.assert_close(loss_fn.record.temperature_min, TAU[0])


def test_equal_temperatures_are_one_and_groups_of_negatives_may_be_the_same() -> None:
    a, b, negatives = rows(1), rows(2), "within-group"
    same = ContrastiveLoss("by-group:temperatures=0.1/0.1/0.1", layout="two-view", negatives=negatives)  # type: ignore[arg-type]
    one = ContrastiveLoss(0.1, layout="two-view", negatives=negatives)
    torch.testing.assert_close(same(a, b, groups=GROUPS), one(a, b, groups=GROUPS), rtol=1e-12, atol=1e-12)


def test_masks_read_groups_of_the_anchors_alone() -> None:
    a, b = rows(1), rows(2, count=SIZE + 3)
    positive = torch.eye(SIZE, SIZE + 3, dtype=torch.bool)
    loss = ContrastiveLoss(SPEC, layout="masks")(a, b, positive_mask=positive, negative_mask=~positive, groups=GROUPS)
    logits = normalize(a) @ normalize(b).T / TAU[GROUPS][:, None]
    torch.testing.assert_close(loss, cross_entropy(logits, torch.arange(SIZE)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_learned_temperatures_have_the_gradient_of_their_rows_a_bound_and_a_state(engine: Any) -> None:
    loss_fn = ContrastiveLoss(f"{SPEC},learn=true,max_scale=20", layout="cross-view", engine=engine).double()
    assert loss_fn.no_weight_decay() == {"strategy.log_scales"}
    assert loss_fn.strategy.learning_rate == 0.01
    a, b, groups = rows(1), rows(2), GROUPS.clamp(max=1)
    loss_fn(a, b, groups=groups).backward()
    t = (-TAU.log()).requires_grad_()
    logits = normalize(a.detach()) @ normalize(b.detach()).T * t.exp()[groups][:, None]
    (expected,) = torch.autograd.grad(cross_entropy(logits, torch.arange(SIZE)), t)
    (parameter,) = loss_fn.strategy.parameters()
    torch.testing.assert_close(parameter.grad, expected, rtol=1e-6, atol=1e-8)  # which begins as float32
    assert parameter.grad is not None
    assert parameter.grad[2] == 0
    with torch.no_grad():
        parameter.add_(torch.tensor([1.0, -0.5, 0.2]))
    loss_fn(a, b, groups=groups)
    now: Tensor = loss_fn.strategy.now()  # type: ignore[operator]
    torch.testing.assert_close(now, torch.tensor([0.05, 0.1 * math.exp(0.5), 0.4 * math.exp(-0.2)]).double(), rtol=1e-6, atol=0)
    resumed = copy.deepcopy(loss_fn)
    resumed.strategy = create_strategy(f"{SPEC},learn=true,max_scale=20").double()
    resumed.load_state_dict(loss_fn.state_dict())
    assert torch.equal(resumed.strategy.now(), now)  # type: ignore[operator]


def test_the_group_may_be_the_dimension_of_the_embeddings() -> None:
    loss_fn = ContrastiveLoss(f"{SPEC},dimensions=8/4/2", layout="cross-view")
    assert "groups" not in loss_fn.takes
    for width, temperature in zip((8, 4, 2), (0.05, 0.1, 0.4), strict=True):
        a, b = rows(1, width), rows(2, width)
        torch.testing.assert_close(
            loss_fn(a, b), ContrastiveLoss(temperature, layout="cross-view")(a, b), rtol=1e-12, atol=1e-12
        )
    with pytest.raises(ShapeError, match="dimensions=8/4/2 of strategy 'by-group' must hold 3, that of the embeddings"):
        loss_fn(rows(1, 3), rows(2, 3))
    with pytest.raises(ConfigError, match="'by-group' is defined for cosines"):
        loss_fn.from_scores(rows(1, SIZE))


def test_scores_have_the_temperature_of_their_row() -> None:
    scores = rows(1, SIZE)
    loss_fn = ContrastiveLoss(SPEC, layout="cross-view")
    loss = loss_fn.from_scores(scores, groups=GROUPS)
    expected = cross_entropy(scores / TAU[GROUPS][:, None], torch.arange(SIZE))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    a, b = rows(1), rows(2, count=SIZE + 2)
    torch.testing.assert_close(loss_fn.logits(a, b, groups=GROUPS), normalize(a) @ normalize(b).T / TAU[GROUPS][:, None])
    with pytest.raises(ConfigError, match="needs the group of each anchor: pass groups= to the loss"):
        loss_fn.logits(a, b)
    with pytest.raises(ShapeError, match=r"groups of shape \[5\] must have 6 rows"):
        loss_fn.logits(a, b, groups=GROUPS[:5])
    with pytest.raises(ConfigError, match="groups= is no argument of this loss"):
        ContrastiveLoss().logits(a, b, groups=GROUPS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "strategy 'by-group' needs the group of each anchor: pass groups= to the loss"),
        ({"groups": GROUPS + 1}, r"groups holds 3; temperatures of strategy 'by-group' allows 0 to 2"),
        ({"groups": GROUPS - 1}, "groups holds -1; temperatures of"),
        ({"groups": GROUPS.double()}, r"groups= holds torch\.float64 of shape \[6\]; wanted an integer a row"),
        ({"groups": GROUPS[:5]}, r"groups of shape \[5\] must have 6 rows"),
        ({"groups": {"view_b": GROUPS}}, "groups= is needed of view_a, too"),
    ],
)
def test_groups_that_do_not_serve_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        ContrastiveLoss(SPEC, layout="cross-view")(rows(1), rows(2), **given)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("by-group", "strategy 'by-group' needs temperatures="),
        ("by-group:temperatures=0.1/", "temperatures=0.1/ of strategy 'by-group' must be a list of 2 or more numbers"),
        ("by-group:temperatures=0.1/0.2,dimensions=8", "dimensions=8 of strategy 'by-group' must be a list"),
        ("by-group:temperatures=0.1/0.2,dimensions=8/", "dimensions=8/ of strategy 'by-group' must name each once"),
        ("by-group:temperatures=0.1/0.2,dimensions=8/8", "dimensions=8/8 of strategy 'by-group' must name each once"),
        ("by-group:temperatures=0.001/0.2,learn=true", r"must be at least 1/max_scale = 0\.01"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_strategy(spec)
