"""The ranking losses: `fixed` equals the library's own, alone and wrapped, and what the losses refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformer_toys import features, gradients, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import dot_score
from tokenizers import Tokenizer, models
from torch import nn
from transformers import set_seed

from tempplug.errors import ConfigError, ShapeError, UnknownNameError
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss

BOTH = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}


def value_and_gradients(model: nn.Module, loss: nn.Module, columns: int) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    set_seed(0)  # wrappers sample dimensions and layers
    value = loss(features(model, columns=columns), None)
    value.backward()
    return value.item(), gradients(model)


def assert_same(model: nn.Module, ours: nn.Module, theirs: nn.Module, columns: int = 3) -> None:
    (value, own), (expected, others) = (value_and_gradients(model, loss, columns) for loss in (ours, theirs))
    assert value == pytest.approx(expected, abs=1e-9, rel=1e-9)
    assert own.keys() == others.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, others[name], atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, BOTH], ids=["one way", "both ways"])
def test_fixed_equals_the_librarys_loss(tiny_bert: Path, options: dict[str, Any]) -> None:
    """Of pairs, of a hard negative and of several; as a spec, as a scale and by default."""
    model = tiny(tiny_bert).double()
    for columns, given in ((2, {"strategy": "fixed:temperature=0.05"}), (3, {"scale": 20}), (4, {})):
        ours, cached = (kind(model, **given, **options) for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss))
        cached.mini_batch_size = 5
        theirs = library.CachedMultipleNegativesRankingLoss(model, scale=20, mini_batch_size=5, **options)
        assert_same(model, ours, library.MultipleNegativesRankingLoss(model, scale=20, **options), columns)
        assert_same(model, cached, theirs, columns)


def test_fixed_equals_the_librarys_loss_inside_its_wrappers(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    plain = TemperatureRankingLoss(model, "fixed:temperature=0.05"), library.MultipleNegativesRankingLoss(model)
    kinds = CachedTemperatureRankingLoss, library.CachedMultipleNegativesRankingLoss
    for inner in (plain, [kind(model, mini_batch_size=5) for kind in kinds]):
        assert_same(model, *(library.MatryoshkaLoss(model, loss, [16, 8, 4], [1.0, 0.5, 0.25]) for loss in inner))
    assert_same(model, *(library.AdaptiveLayerLoss(model, loss) for loss in plain))
    assert_same(model, *(library.Matryoshka2dLoss(model, loss, [16, 8]) for loss in plain))


@pytest.mark.parametrize("strategy", ["learnable:initial_temperature=0.1", "macl", "dystress", "temperature-free"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in Matryoshka"])
def test_the_cached_loss_equals_the_plain_one_also_in_its_own_parameters(tiny_bert: Path, strategy: str, wrapped: bool) -> None:
    """The weights of Matryoshka, and whatever factor the loss gets later, reach the temperature's gradient too."""
    model = tiny(tiny_bert).double()
    found = []
    for kind, options in (
        (TemperatureRankingLoss, {}),
        (CachedTemperatureRankingLoss, {"mini_batch_size": 5}),
        (CachedTemperatureRankingLoss, {"mini_batch_num_tokens": 20}),
    ):
        loss = kind(model, strategy, **options)
        loss.take_charge()
        whole = library.MatryoshkaLoss(model, loss, [16, 8], [1.0, 0.5]) if wrapped else loss
        model.zero_grad()
        value = 0.25 * whole(features(model), None)
        assert gradients(loss.contrastive_loss) == {}
        value.backward()
        found.append((value.item(), gradients(model), gradients(loss.contrastive_loss)))
    plain, weights, own = found[0]
    assert list(own) == (["strategy.log_scale"] if strategy.startswith("learnable") else [])
    for cached, *others in found[1:]:
        assert cached == pytest.approx(plain, rel=1e-9)
        for first, second in zip((weights, own), others, strict=True):
            assert first.keys() == second.keys()
            for name, gradient in first.items():
                torch.testing.assert_close(second[name], gradient, atol=1e-8, rtol=1e-6)


def test_a_cached_loss_without_gradient_is_that_of_the_whole_batch_and_leaves_wrappers_alone(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double().eval()
    loss = CachedTemperatureRankingLoss(model, "learnable", mini_batch_size=5)
    with torch.no_grad():
        value = loss(features(model), None)
        assert value.item() == pytest.approx(TemperatureRankingLoss(model, "learnable")(features(model), None).item())
    assert not value.requires_grad
    assert "calculate_loss" not in vars(loss)
    wrapper = library.MatryoshkaLoss(model, loss, [16, 8])
    decorated = loss.calculate_loss
    with torch.no_grad():
        wrapper(features(model), None)
    assert loss.calculate_loss is decorated


def test_a_strategy_and_an_objective_reach_the_loss(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    specs = ("fixed", "macl+infonce", "macl+reweighted", "dystress+dcl", "temperature-free+infonce")
    values = {TemperatureRankingLoss(model, *spec.split("+"))(features(model), None).item() for spec in specs}
    assert len(values) == len(specs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "macl", "scale": 20}, "scale=20 belongs to 'fixed' alone"),
        ({"strategy": "fixed", "scale": 20}, "scale=20 belongs to 'fixed' alone"),
        ({"scale": 0}, "scale=0 must be a number greater than 0"),
        ({"scale": float("nan")}, "scale=nan must be a number greater than 0"),
        ({"similarity_fct": dot_score}, "similarity_fct=.* must be the library's cos_sim"),
        ({"hardness_mode": "all_negatives"}, "hardness_mode='all_negatives' must be None"),
        (
            {"directions": ("doc_to_query",)},
            r"directions=.* must be \('query_to_doc',\), or \('query_to_doc', 'doc_to_query'\)",
        ),
        ({"directions": ("query_to_doc", "query_to_query")}, "no layout equals others"),
        ({"directions": ("query_to_doc", "doc_to_query")}, "partition_mode='joint' does not fit directions"),
        ({"partition_mode": "both"}, "partition_mode='both' does not fit"),
        ({"strategy": "macl:alpha=-1"}, "alpha=-1 of strategy 'macl'"),
    ],
)
def test_what_no_layout_equals_is_refused(tiny_bert: Path, options: dict[str, Any], message: str) -> None:
    for loss in (TemperatureRankingLoss, CachedTemperatureRankingLoss):
        with pytest.raises(ConfigError, match=message):
            loss(tiny(tiny_bert), **options)


def test_unknown_names_and_single_columns_are_refused(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    static = SentenceTransformer(modules=[StaticEmbedding(Tokenizer(models.WordLevel({"a": 0}, "a")), embedding_dim=4)])
    for error, message, call in (
        (UnknownNameError, r"unknown strategy 'macle'\. Did you mean", lambda: TemperatureRankingLoss(model, "macle")),
        (ShapeError, "embeddings of 1 column", lambda: TemperatureRankingLoss(model)(features(model, columns=1), None)),
        (ConfigError, "mini_batch_size=0 must be", lambda: CachedTemperatureRankingLoss(model, mini_batch_size=0)),
        (ConfigError, "StaticEmbedding", lambda: CachedTemperatureRankingLoss(static)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_scale_and_temperature_are_those_of_fixed(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    loss = TemperatureRankingLoss(model)
    assert (loss.scale, loss.temperature) == (20.0, 0.05)
    loss.scale = 50
    assert loss.temperature == 0.02
    assert_same(model, loss, library.MultipleNegativesRankingLoss(model, scale=50))
    with pytest.raises(ConfigError, match="scale=-1 must be"):
        loss.scale = -1
    adaptive = TemperatureRankingLoss(model, "macl")
    assert not hasattr(adaptive, "scale")
    assert adaptive.temperature == adaptive.contrastive_loss.strategy.spec()
    with pytest.raises(ConfigError, match="cannot be set: strategy 'macl' decides"):
        adaptive.scale = 20


def test_card_and_samplers_know_the_loss(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    loss = CachedTemperatureRankingLoss(model, "macl:alpha=2", "dclw", mini_batch_size=4)
    assert isinstance(loss, library.MultipleNegativesRankingLoss)
    assert loss.get_config_dict() == {
        "strategy": "macl:base_temperature=0.05,alpha=2,threshold=0,floor_ratio=0.1,strict=false",
        **{"objective": "dclw:sigma=0.5", "gather_across_devices": False, "directions": ("query_to_doc",)},
        **{"partition_mode": "joint", "mini_batch_size": 4, "mini_batch_num_tokens": None},
    }
    library_citation = library.MultipleNegativesRankingLoss(model).citation
    assert loss.citation.startswith("@misc{tempplug-macl,\n    title = {Model-Aware Contrastive Learning: ")
    assert "note = {eq. 7; strategy macl of tempplug}," in loss.citation
    assert loss.citation.endswith(library_citation.lstrip())
    assert TemperatureRankingLoss(model).citation == library_citation
