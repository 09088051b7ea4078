"""Each objective on hand-made row statistics: its value, its gradient, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss, RowStatistics, create_objective
from tempplug.errors import ConfigError
from tempplug.objectives.reweighted import ratio_to_scale
from tempplug.types import Auxiliary


def statistics(margin: Tensor, similarity: float = 0.5) -> RowStatistics:
    zeros = torch.zeros_like(margin)
    ones = torch.ones_like(margin, dtype=torch.int64)
    return RowStatistics(
        positive_logit=zeros,
        positive_similarity=torch.full_like(margin, similarity),
        positive_lse=zeros,
        negative_lse=margin,
        positive_count=ones,
        negative_count=5 * ones,
    )


def values_and_gradient(name: str, margins: list[float]) -> tuple[list[float], list[float]]:
    margin = torch.tensor(margins, dtype=torch.float64, requires_grad=True)
    losses = create_objective(name).row_loss(statistics(margin))
    losses.sum().backward()
    return losses.tolist(), margin.grad.tolist()


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("infonce", lambda d: math.log1p(math.exp(d)), lambda d: 1 / (1 + math.exp(-d))),
        ("dcl", lambda d: d, lambda d: 1.0),
        ("flatnce", lambda d: 1.0, lambda d: 1.0),
        ("reweighted", lambda d: math.log1p(math.exp(d)) * (1 + math.exp(-d)), lambda d: 1.0),
    ],
)
def test_value_and_gradient_are_those_of_the_formula(name: str, value, gradient) -> None:
    margins = [-20.0, -2.0, 0.0, 0.7, 25.0]
    values, gradients = values_and_gradient(name, margins)
    assert values == pytest.approx([value(d) for d in margins], rel=1e-12)
    assert gradients == pytest.approx([gradient(d) for d in margins], rel=1e-12)


def test_the_reweighted_value_joins_its_series_smoothly_and_tends_to_one() -> None:
    margin = torch.tensor([-700.0, -30.0 - 1e-9, -30.0 + 1e-9, -10.0], dtype=torch.float64)
    ratio = ratio_to_scale(margin)
    assert ratio[0].item() == 1.0
    assert (ratio[2] - ratio[1]).abs().item() < 1e-15
    assert ratio[3].item() == pytest.approx(1 + math.exp(-10) / 2, rel=1e-9)


def test_dclw_weighs_positives_by_the_mean_over_the_whole_batch() -> None:
    everyone = torch.tensor([0.1, 0.5, 0.9, 0.3], dtype=torch.float64)
    logits, local = torch.tensor([1.0, 2.0], dtype=torch.float64), everyone[:2]
    rows = replace(statistics(torch.ones(2, dtype=torch.float64)), positive_logit=logits, positive_similarity=local)
    weights = 2 - torch.exp(local / 0.5) / torch.exp(everyone / 0.5).mean()
    found = create_objective("dclw").row_loss(rows, Auxiliary(everyone))
    assert torch.allclose(found, 1 - weights * logits, rtol=1e-13)
    with pytest.raises(ConfigError, match=r"'dclw' needs auxiliary\.positive_similarity"):
        create_objective("dclw").row_loss(rows)


def test_dual_temperature_needs_a_second_temperature_where_the_strategy_has_no_scalar() -> None:
    views = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ConfigError, match="needs second_temperature= beside a strategy without one scalar"):
        ContrastiveLoss("dystress", "dual-temperature")(*views)
    with pytest.raises(ConfigError, match=r"must be at least the strategy's temperature 0\.5"):
        ContrastiveLoss("fixed:temperature=0.5", "dual-temperature:second_temperature=0.1")(*views)


@pytest.mark.parametrize("name", ["dclw", "reweighted", "dual-temperature"])
def test_objectives_without_a_form_for_several_positives_say_so(name: str) -> None:
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    loss_fn = ContrastiveLoss("fixed", name, "labels")
    with pytest.raises(ConfigError, match=f"'{name}' has no form for several positives"):
        loss_fn(embeddings, labels=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert torch.isfinite(loss_fn(embeddings, labels=torch.tensor([0, 0, 1, 1, 2, 3])))
