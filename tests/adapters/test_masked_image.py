"""The contrastive term of CAN and LGP: the factors, the two forms, and lists of heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from vision_method_toys import cross_loss, macl_temperature, nt_xent, unit

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug_adapters.vision.masked_image import MaskedImageContrastiveLoss


def embeddings(count: int = 4, rows: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    return [(base + torch.randn(rows, 5, generator=generator, dtype=torch.float64)).requires_grad_() for _ in range(count)]


def test_can_is_nt_xent_with_the_papers_weight() -> None:
    view_a, view_b = embeddings(2)
    torch.testing.assert_close(
        MaskedImageContrastiveLoss()(view_a, view_b), 0.03 * nt_xent(view_a, view_b, 0.1), rtol=1e-10, atol=0
    )
    weighted = MaskedImageContrastiveLoss("fixed:temperature=0.3", weight=0.5)(view_a, view_b)
    torch.testing.assert_close(weighted, 0.5 * nt_xent(view_a, view_b, 0.3), rtol=1e-10, atol=0)


def test_lgp_is_the_loss_of_moco_v3() -> None:
    predictions_a, predictions_b, keys_a, keys_b = embeddings()
    keys_a, keys_b = keys_a.detach(), keys_b.detach()
    loss_fn = MaskedImageContrastiveLoss("fixed:temperature=0.2", form="lgp")
    both = cross_loss(predictions_a, keys_b, 0.2) + cross_loss(predictions_b, keys_a, 0.2)
    loss = loss_fn(predictions_a, predictions_b, keys_a, keys_b)
    torch.testing.assert_close(loss, 2 * 0.2 * both, rtol=1e-10, atol=0)
    loss.backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in (predictions_a, predictions_b))
    other = MaskedImageContrastiveLoss("fixed:temperature=0.1", form="lgp", weight=3.0, base_temperature=0.1)
    both = cross_loss(predictions_a, keys_b, 0.1) + cross_loss(predictions_b, keys_a, 0.1)
    torch.testing.assert_close(other(predictions_a, predictions_b, keys_a, keys_b), 3 * 2 * 0.1 * both, rtol=1e-10, atol=0)


def test_lgp_has_one_temperature_unless_told_otherwise() -> None:
    predictions_a, predictions_b, keys_a, keys_b = embeddings()
    for given in ({}, {"base_temperature": 0.5}):
        loss = MaskedImageContrastiveLoss(form="lgp", **given)(predictions_a, predictions_b, keys_a, keys_b)
        temperature = given.get("base_temperature", 0.2)
        both = cross_loss(predictions_a, keys_b, temperature) + cross_loss(predictions_b, keys_a, temperature)
        torch.testing.assert_close(loss, 2 * temperature * both, rtol=1e-10, atol=0)
    loss.backward()
    assert keys_a.grad is None
    assert keys_b.grad is None


def test_the_factor_stays_where_the_temperature_moves() -> None:
    predictions_a, predictions_b, keys_a, keys_b = embeddings()
    loss = MaskedImageContrastiveLoss("macl", form="lgp")(predictions_a, predictions_b, keys_a, keys_b)
    expected = torch.zeros((), dtype=torch.float64)
    for anchors, keys in ((predictions_a, keys_b), (predictions_b, keys_a)):
        temperature = macl_temperature((unit(anchors) * unit(keys)).sum(1))
        expected = expected + 0.4 * cross_loss(anchors, keys, temperature)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("form", ["can", "lgp"])
def test_amcl_takes_lists_of_heads(form: str) -> None:
    torch.manual_seed(0)
    loss_fn = MaskedImageContrastiveLoss("amcl:dimension=5", form=form, weight=1.0, base_temperature=0.5).double()
    first, second = embeddings(), [each * 2 + 1 for each in embeddings()]
    arguments = [[a, b] for a, b in zip(first, second, strict=True)][: 2 if form == "can" else 4]
    alone = ContrastiveLoss(loss_fn.contrastive_loss.strategy, layout="two-view" if form == "can" else "cross-view")
    expected = sum(
        alone(each[0], each[1]) if form == "can" else alone(each[0], each[3]) + alone(each[1], each[2])
        for each in (first, second)
    )
    torch.testing.assert_close(loss_fn(*arguments), expected, rtol=1e-10, atol=0)
    assert loss_fn.no_weight_decay() == {"contrastive_loss.strategy.phi.weight", "contrastive_loss.strategy.phi.bias"}
    assert loss_fn.no_weight_decay() <= {name for name, _ in loss_fn.named_parameters()}


@pytest.mark.parametrize("form", ["can", "lgp"])
def test_labels_and_index_reach_the_strategy(form: str) -> None:
    arguments = embeddings(2 if form == "can" else 4)
    spec = "head-tail:class_counts=9/1,temperature_head=0.5,temperature_tail=0.25"
    loss_fn = MaskedImageContrastiveLoss(spec, form=form)
    loss_fn(*arguments, labels=torch.tensor([0, 0, 0, 1, 1, 1]))
    assert loss_fn.contrastive_loss.record.temperature_max.item() == pytest.approx(0.5)
    individual = MaskedImageContrastiveLoss("individual:size=9", form=form)
    individual(*arguments, index=torch.arange(6))
    assert individual.contrastive_loss.strategy.log_means.isfinite().tolist() == [True] * 6 + [False] * 3


def test_wrong_calls_are_refused() -> None:
    view_a, view_b, keys_a, keys_b = embeddings()
    with pytest.raises(ConfigError, match="form='mae' must be one of can, lgp"):
        MaskedImageContrastiveLoss(form="mae")
    with pytest.raises(ConfigError, match="base_temperature=0 must be greater than 0"):
        MaskedImageContrastiveLoss(form="lgp", base_temperature=0)
    with pytest.raises(ConfigError, match="form 'lgp' needs keys_a= and keys_b="):
        MaskedImageContrastiveLoss(form="lgp")(view_a, view_b, keys_b=keys_b)
    with pytest.raises(ConfigError, match="form 'can' has no use for keys_a= and keys_b="):
        MaskedImageContrastiveLoss()(view_a, view_b, keys_a)
