"""Recipes of vision: the papers' settings, what flags leave out, and faults that are named."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch import nn
from vision_train_toys import TinyBackbone, built, images, small, tiny  # noqa: F401

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.images.image_data import DATASETS
from tempplug_adapters.vision.recipes import METHODS

SCHEDULE = "schedule:shape=cosine,temperature_min=0.1,temperature_max=1,period=1,seed=0,granularity=epoch"


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("method", "strategy", "expected"),
    [
        ("simclr", "fixed", ("fixed:temperature=0.1", "infonce")),
        ("nnclr", None, ("fixed:temperature=0.1", "infonce")),
        ("simclr", "macl", ("macl:base_temperature=0.1,alpha=0.5,threshold=0,", "reweighted")),
        ("moco", "macl", ("macl:base_temperature=0.15,alpha=0.5,threshold=0.2,", "reweighted")),
        ("nnclr", "macl:alpha=1", ("macl:base_temperature=0.1,alpha=1,threshold=0,", "reweighted")),
        ("supcon", "macl", ("macl:base_temperature=0.1,alpha=0.5,threshold=0,", "infonce")),
        ("simclr", "dystress", ("dystress:temperature_min=0.07,temperature_max=0.2,", "infonce")),
        ("simclr", "schedule", (SCHEDULE, "infonce")),
        ("simclr", "head-tail", ("head-tail:class_counts=14/8/4,temperature_head=1,temperature_tail=0.1", "infonce")),
        ("simclr", "learnable", ("learnable:initial_temperature=0.1,", "infonce")),
        ("moco", "amcl", ("amcl:dimension=8,span=2,", "dcl")),
        ("simsiam", "amcl:beta=0.5", ("amcl:dimension=8,", None)),
        ("barlow-twins", "amcl", ("amcl:dimension=4,", None)),
        ("barlow-twins", None, (None, None)),
    ],
)
def test_recipe_and_data_complete_the_flags(method: str, strategy: str | None, expected: tuple[Any, Any]) -> None:
    module = built(method, strategy, per_device_train_batch_size=4)
    found = METHODS[method].load().specs(module)
    assert found["objective"] == expected[1]
    assert (found["strategy"] or "").startswith(expected[0] or "")
    assert (found["strategy"] is None) == (expected[0] is None)
    if module.loss_fn is not None:
        assert module.loss_fn.layout.name == small(method).loss.layout


def layers(head: nn.Module) -> list[tuple[int, int]]:
    """Widths of the linear layers of a head."""
    return [(each.in_features, each.out_features) for each in head.modules() if isinstance(each, nn.Linear)]


@pytest.mark.usefixtures("tiny")
def test_settings_reach_the_method() -> None:
    """The backbone gives 16 numbers."""
    made: dict[str, Any] = {}
    for method, changes in [
        ("simclr", {"heads": 2, "head_layers": 3}),
        ("moco", {"encoder_momentum": 0.75, "symmetric": True, "hidden_dimension": 20}),
        ("nnclr", {"heads": 2}),
        ("simsiam", {"head_layers": 2}),
        ("barlow-twins", {"redundancy_weight": 0.25}),
        ("supcon", {}),
    ]:
        made[method] = built(method, **changes).step
    assert [layers(head) for head in made["simclr"].projection_head] == [[(16, 16), (16, 16), (16, 8)]] * 2
    moco = made["moco"]
    assert layers(moco.projection_head) == [(16, 20), (20, 8)]
    assert (moco.symmetric, moco.momentum_encoder.momentum, moco.queues[0].rows.shape) == (True, 0.75, (11, 8))
    nnclr = made["nnclr"]
    assert [layers(head) for head in nnclr.projection_head] == [[(16, 12), (12, 12), (12, 8)]] * 2
    assert [layers(head) for head in nnclr.prediction_head] == [[(8, 24), (24, 8)]] * 2
    assert nnclr.support_sets[0].rows.shape == (11, 8)
    assert layers(made["simsiam"].projection_head) == [(16, 8), (8, 8)]
    assert layers(made["simsiam"].prediction_head) == [(8, 2), (2, 8)]
    assert layers(made["barlow-twins"].projection_head) == [(16, 8), (8, 8), (8, 8)]
    assert made["barlow-twins"].redundancy_weight == 0.25
    assert layers(made["supcon"].projection_head) == [(16, 16), (16, 8)]
    heads = [("supcon", None, True), ("simclr", False, False), ("moco", None, False), ("moco", True, True)]
    for method, given, normalised in [*heads, ("simsiam", None, True), ("simsiam", False, False)]:
        changed: Any = built(method, last_batch_norm=given).step
        assert isinstance(list(changed.projection_head.modules())[-1], nn.BatchNorm1d) == normalised
    paper: Any = built("nnclr", embedding_dimension=256, hidden_dimension=None).step
    assert layers(paper.projection_head) == [(16, 2048), (2048, 2048), (2048, 256)]
    assert layers(paper.prediction_head) == [(256, 4096), (4096, 256)]


@pytest.mark.usefixtures("tiny")
def test_amcl_has_three_heads_unless_told() -> None:
    for strategy, given, expected in (("amcl", {}, 3), ("amcl", {"heads": 1}, 1), ("fixed", {}, 1)):
        assert len(built("simclr", strategy, **given).step.projection_head) == expected  # type: ignore[arg-type]


def test_temperatures_belong_to_the_recipe() -> None:
    for recipe, temperature in {"amcl": 0.5, "long-tail": 0.2, "imagenette": 0.5}.items():
        assert METHODS["simclr"].recipe(recipe).loss.temperatures["fixed"] == {"temperature": temperature}
    for recipe, temperature in {"moco-v2": 0.2, "amcl": 0.1}.items():
        assert METHODS["moco"].recipe(recipe).loss.temperatures["fixed"] == {"temperature": temperature}
    for recipe, lowest in {"dystress-cifar": 0.07, "google": 0.1, "imagenette": 0.1}.items():
        found = METHODS["simclr"].recipe(recipe).loss.temperatures["dystress"]
        assert found == {"temperature_min": lowest, "temperature_max": 0.2}


def test_recipes_are_the_papers() -> None:
    numbers = ("per_device_train_batch_size", "num_train_epochs", "optimizer", "learning_rate", "weight_decay", "augmentation")
    for method, recipe, expected, warm_epochs in [
        ("simclr", "google", (4096, 100, "lars", 0.3, 1e-6, "simclr"), 10),
        ("simclr", "dystress-cifar", (128, 200, "sgd", 0.06, 5e-4, "simclr-cifar"), 0),
        ("simclr", "dystress-imagenet", (256, 100, "lars", 0.075, 1e-6, "simclr"), 10),
        ("simclr", "long-tail", (512, 2000, "sgd", 0.5, 1e-4, "long-tail"), 10),
        ("simclr", "macl-cifar", (256, 200, "adam", 1e-3, 1e-6, "simclr-cifar"), 0),
        ("simclr", "macl-imagenet", (256, 200, "lars", 0.3, 1e-6, "simclr"), 10),
        ("simclr", "imagenette", (256, 800, "sgd", 0.06, 5e-4, "amcl-abcde"), 0),
        ("moco", "amcl", (512, 1000, "sgd", 0.08, 5e-4, "amcl-abcde"), 0),
        ("moco", "moco-v2", (256, 200, "sgd", 0.03, 1e-4, "moco-v2"), 0),
        ("moco", "macl-imagenet-100", (256, 200, "sgd", 0.3, 1e-4, "moco-v2"), 10),
        ("nnclr", "nnclr", (4096, 1000, "lars", 0.3, 1e-6, "simclr"), 10),
        ("nnclr", "macl-imagenet-100", (512, 100, "lars", 0.8, 1e-6, "simclr"), 10),
        ("simsiam", "simsiam", (512, 100, "sgd", 0.05, 1e-4, "moco-v2"), 0),
        ("barlow-twins", "barlow-twins", (2048, 1000, "lars", 0.2, 1e-6, "simclr"), 10),
        ("supcon", "cifar", (1024, 1000, "sgd", 0.5, 1e-4, "simclr-cifar"), 10),
    ]:
        settings = METHODS[method].recipe(recipe)
        assert tuple(getattr(settings, name) for name in numbers) == expected
        assert settings.warmup_steps * settings.num_train_epochs == pytest.approx(warm_epochs)
        assert (settings.lr_scheduler_type, settings.momentum, settings.dataloader_drop_last) == ("cosine", 0.9, True)
    found: Any = {f"{method} {name}": info.recipe(name) for method, info in METHODS.items() for name in info.recipes}
    for name, size, factor in [
        ("simclr google", 4096, 16),
        ("simclr dystress-imagenet", 256, 16),
        ("simclr macl-cifar", 128, 1),
        ("simclr macl-cifar", 1024, 4),
        ("nnclr macl-imagenet-100", 512, 1),
        ("simsiam simsiam", 512, 2),
    ]:
        assert found[name].learning_rate_factor(size) == factor
    for name, setting, value in [
        ("simsiam simsiam", "zero_init_residual", True),
        ("barlow-twins barlow-twins", "zero_init_residual", True),
        ("barlow-twins barlow-twins", "bias_learning_rate", 0.0048),
        ("moco moco-v2", "queue_size", 65536),
        ("moco long-tail", "queue_size", 10000),
        ("simclr dystress-imagenet", "bf16", True),
    ]:
        assert getattr(found[name], setting) == value
    sizes = {"dystress-cifar": (32, None), "google": (224, 256), "macl-imagenet": (224, 256), "imagenette": (128, 160)}
    assert {name: (found[f"simclr {name}"].image_size, found[f"simclr {name}"].load_size) for name in sizes} == sizes


def test_backbones_of_others_have_no_stem_unless_it_is_given() -> None:
    simclr = METHODS["simclr"]
    other: Any = simclr.recipe("google", backbone="vit-tiny")
    assert (other.stem, other.width, other.zero_init_residual) == (None, None, False)
    changed: Any = [simclr.recipe(backbone="vit-tiny", stem="cifar"), simclr.recipe(backbone="resnet34")]
    assert [each.stem for each in changed] == ["cifar", "cifar"]


def test_settings_out_of_range_and_those_of_another_method_are_named() -> None:
    for changes, message in [
        ({"per_device_train_batch_size": 1}, "per_device_train_batch_size=1 must be an integer, at least 2."),
        ({"encoder_momentum": 1.1}, "encoder_momentum=1.1 must be at least 0 and at most 1."),
        ({"learning_rate_scaling": "cubic"}, "learning_rate_scaling='cubic' must be one of none, linear, linear-above-256"),
        ({"evaluations": ("knm",)}, "must be a list of 0 or more words, each one of knn, linear-probe"),
        ({"held_out": -10}, "held_out=-10 must be an integer, at least 0."),
        ({"redundancy_weight": 5}, "no setting 'redundancy_weight'"),
    ]:
        with pytest.raises((ConfigError, UnknownNameError), match=re.escape(message)):
            METHODS["moco"].recipe(**changes)


def test_help_names_all_data_sets() -> None:
    for info in METHODS.values():
        assert set(DATASETS) <= set(info.datasets.split(", "))
