"""The sigmoid objective beside SigLIP's formula in float64: what the oracle's array leaves out, such as blocks and terms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from covering import every_pair
from oracle_cases import CUTS, cut_into
from torch import Tensor
from torch.nn.functional import normalize, softplus

from tempplug import ContrastiveLoss, create_objective
from tempplug.errors import ConfigError
from tempplug.types import EngineName

ENGINES: list[EngineName] = ["dense", "tiled"]
FREE = "learnable:initial_temperature=0.0089,max_scale=none"
ROWS = 9


def views() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(ROWS, 5, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]


def row_sums(logits: Tensor, bias: Tensor, positive: Tensor) -> Tensor:
    """Each row's sum of softplus(-y·(l + b)), of pairs whose logit is not -inf."""
    y = torch.where(positive, 1.0, -1.0)
    return torch.where(logits > -torch.inf, softplus(-y * (logits + bias), threshold=99), 0.0).sum(1)


@pytest.mark.parametrize(
    ("engine", "cut", "symmetric", "relative"), every_pair(ENGINES, list(CUTS), [False, True], [False, True])
)
def test_both_ways_and_one_way_are_siglips_loss(engine: EngineName, cut: str, symmetric: bool, relative: bool) -> None:
    """(1/N)·Σ_ij softplus(-y_ij·(t·s_ij + b)): no block is counted twice, and no scale is clamped."""
    a, b = views()
    objective = f"sigmoid:relative_bias={str(relative).lower()},initial_bias={0.2 if relative else -16.5}"
    loss_fn = ContrastiveLoss(FREE, objective, "cross-view", symmetric=symmetric, engine=engine).double()
    learned = list(loss_fn.parameters())
    with cut_into(cut):
        loss = loss_fn(a, b)
        found = torch.autograd.grad(loss, [a, b, *learned])
    assert learned[0].exp().item() == pytest.approx(1 / 0.0089, rel=1e-6)
    log_scale, bias = (each.detach().clone().requires_grad_() for each in learned)
    scale = log_scale.exp()
    logits = scale * normalize(a) @ normalize(b).T
    expected = row_sums(logits, -scale * bias if relative else bias, torch.eye(ROWS, dtype=torch.bool)).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, torch.autograd.grad(expected, [a, b, log_scale, bias]), rtol=1e-9, atol=1e-12)
    shown = loss_fn.record.numbers()
    assert [shown["loss"], shown["objective_bias"]] == pytest.approx([loss.item(), bias.item()], rel=1e-12)
    assert not shown.keys() & {"infonce", "positive_probability", "gradient_scale", "effective_negatives"}


@pytest.mark.parametrize(("engine", "layout"), every_pair(ENGINES, ["cross-view", "labels"]))
def test_pairs_far_on_their_side_keep_their_digits(engine: EngineName, layout: Any) -> None:
    """In float32, where 1e-9 beside a logit of 20 would be lost."""
    a = torch.tensor([[1.0, 0], [-1, 0]] if layout == "cross-view" else [[1.0, 0], [1, 0], [-1, 0], [-1, 0]]).requires_grad_()
    given = {"labels": torch.tensor([0, 0, 1, 1])} if layout == "labels" else {}
    loss_fn = ContrastiveLoss("fixed:temperature=0.05", "sigmoid:initial_bias=0", layout, engine=engine)
    loss = loss_fn(a, **given) if given else loss_fn(a, a)
    assert loss.item() == pytest.approx((3 if given else 2) * math.exp(-20), rel=1e-5)
    (found,) = torch.autograd.grad(loss, loss_fn.objective.bias)
    assert found.item() == pytest.approx((1 if given else 0) * math.exp(-20), rel=1e-5)  # negatives minus positives


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_an_anchor_without_a_negative_has_the_loss_of_its_positive(engine: EngineName) -> None:
    a = torch.randn(1, 4, dtype=torch.float64)
    loss_fn = ContrastiveLoss("fixed:temperature=0.5", "sigmoid:initial_bias=-1.5", "cross-view", engine=engine).double()
    with pytest.warns(RuntimeWarning, match="1 of 1 anchors without a negative: .* a loss of their positives alone\\. Use"):
        assert loss_fn(a, a).item() == pytest.approx(math.log1p(math.exp(1.5 - 2)), rel=1e-12)


def test_the_bias_is_learned_saved_and_spared_by_weight_decay() -> None:
    loss_fn = ContrastiveLoss(FREE, "sigmoid:initial_bias=-3")
    assert loss_fn.no_weight_decay() == {"strategy.log_scale", "objective.bias"}
    assert loss_fn.state_dict()["objective.bias"].tolist() == [-3]
    assert loss_fn.strategy.bounds() == {}
    assert [create_objective(f"sigmoid{rest}").bias.item() for rest in ("", ":relative_bias=true")] == [-10, 1]


@pytest.mark.parametrize(
    ("strategy", "objective", "negatives", "message"),
    [
        ("dystress", "sigmoid:relative_bias=true", None, "relative_bias=true of objective 'sigmoid' needs one scale for all"),
        ("fixed", "sigmoid:initial_bias=1e10", None, r"initial_bias=1e\+10 of objective 'sigmoid' must be at least -1e\+09"),
        ("fixed", "sigmoid", "debiased", "'debiased' works on log-sum-exps, which objective 'sigmoid' has not"),
    ],
)
def test_what_has_no_meaning_is_refused(strategy: str, objective: str, negatives: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContrastiveLoss(strategy, objective, negatives=negatives)(*views())
