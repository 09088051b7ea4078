"""Recipes of the vision training: the papers' settings, what flags leave out, and faults that are named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vision_train_toys import SIDE, TinyBackbone, differences, flags, images, saved, small, tiny  # noqa: F401

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.vision.batches import Batches
from tempplug_adapters.vision.methods import create_method, specs
from tempplug_adapters.vision.optimizer import LARS, create_optimizer
from tempplug_adapters.vision.recipe import METHODS, VisionSettings
from tempplug_adapters.vision.recipes import RECIPES, recipe_settings
from tempplug_adapters.vision.train import train_vision

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.mark.parametrize(
    ("method", "strategy", "expected"),
    [
        ("simclr", "fixed", ("fixed:temperature=0.1", "infonce")),
        ("simclr", "fixed:temperature=0.7", ("fixed:temperature=0.7", "infonce")),
        ("moco", "fixed", ("fixed:temperature=0.1", "infonce")),
        ("nnclr", None, ("fixed:temperature=0.1", "infonce")),
        ("simclr", "macl", ("macl:base_temperature=0.1,alpha=0.5,threshold=0,", "reweighted")),
        ("moco", "macl", ("macl:base_temperature=0.15,alpha=0.5,threshold=0.2,", "reweighted")),
        ("nnclr", "macl:alpha=1", ("macl:base_temperature=0.1,alpha=1,threshold=0,", "reweighted")),
        ("simclr", "dystress", ("dystress:temperature_min=0.07,temperature_max=0.2,", "infonce")),
        ("simclr", "schedule", ("schedule:shape=cosine,temperature_min=0.1,temperature_max=1,period=1,", "infonce")),
        ("simclr", "head-tail", ("head-tail:class_counts=14/8/4,temperature_head=1,temperature_tail=0.1", "infonce")),
        ("simclr", "individual", ("individual:size=26,temperature_init=0.1,", "infonce")),
        ("simclr", "learnable", ("learnable:initial_temperature=0.1,", "infonce")),
        ("simclr", "uncertainty", ("uncertainty:base_temperature=0.1", "infonce")),
        ("moco", "amcl", ("amcl:dimension=8,span=2,", "dcl")),
        ("simsiam", "amcl:beta=0.5", ("amcl:dimension=8,span=2,floor=0.05,beta=0.5", None)),
        ("barlow-twins", "amcl", ("amcl:dimension=4,", None)),
        ("simsiam", None, (None, None)),
        ("barlow-twins", None, (None, None)),
    ],
)
def test_recipe_and_data_fill_what_the_flags_leave_out(
    method: str, strategy: str | None, expected: tuple[str | None, str | None]
) -> None:
    settings = small(method, **({"batch_size": 4, "embedding_dimension": 8}))
    found = specs(create_method(method, images(), flags(strategy), settings))
    assert found["objective"] == expected[1]
    assert (found["strategy"] or "").startswith(expected[0] or "")
    assert (found["strategy"] is None) == (expected[0] is None)


def layers(head: nn.Module) -> list[tuple[int, int]]:
    """Widths of the linear layers of a head."""
    return [(each.in_features, each.out_features) for each in head.modules() if isinstance(each, nn.Linear)]


def test_settings_reach_the_method() -> None:
    """The backbone gives 16 numbers."""
    made: dict[str, Any] = {}
    for method, changes in [
        ("simclr", {"heads": 2, "head_layers": 3}),
        ("moco", {"encoder_momentum": 0.75, "symmetric": True, "hidden_dimension": 20}),
        ("nnclr", {"heads": 2}),
        ("simsiam", {"head_layers": 2}),
        ("barlow-twins", {"redundancy_weight": 0.25}),
    ]:
        made[method] = create_method(method, images(), flags(None), small(method, **changes))
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
    gathered = create_method("simclr", images(), flags(None), small("simclr"), gather=True)
    assert (gathered.loss_fn.gather, made["simclr"].loss_fn.gather) == (True, False)  # type: ignore[union-attr]


def test_the_papers_heads_are_the_default() -> None:
    wide = {"queue_size": 4}
    found = create_method("nnclr", images(), flags(None), recipe_settings("nnclr", **wide))
    assert layers(found.projection_head) == [(16, 2048), (2048, 2048), (2048, 256)]
    assert layers(found.prediction_head) == [(256, 4096), (4096, 256)]  # type: ignore[arg-type]
    found = create_method("simsiam", images(), flags(None), recipe_settings("simsiam", "simsiam"))
    assert layers(found.projection_head) == [(16, 2048), (2048, 2048), (2048, 2048)]
    assert layers(found.prediction_head) == [(2048, 512), (512, 2048)]  # type: ignore[arg-type]


def test_the_optimizer_is_the_one_asked_for() -> None:
    module = create_method("simclr", images(), flags("fixed"), small("simclr"))
    for name, kind, option, expected in [
        ("sgd", torch.optim.SGD, "momentum", 0.6),
        ("lars", LARS, "momentum", 0.6),
        ("adam", torch.optim.Adam, "betas", (0.6, 0.999)),
    ]:
        optimizer = create_optimizer(module, small("simclr", optimizer=name, momentum=0.6))
        assert type(optimizer) is kind
        assert all(group[option] == expected for group in optimizer.param_groups)


def test_an_objective_that_is_given_stays() -> None:
    found = specs(create_method("simclr", images(), flags("macl", "dcl"), small("simclr")))
    assert found["objective"] == "dcl"


def test_temperatures_belong_to_the_recipe() -> None:
    for method, recipe, temperature in [("simclr", "amcl", 0.5), ("simclr", "long-tail", 0.2), ("moco", "moco-v2", 0.2)]:
        settings = recipe_settings(method, recipe, embedding_dimension=8, queue_size=11) if method == "moco" else None
        settings = settings or recipe_settings(method, recipe)
        assert (
            specs(create_method(method, images(), flags("fixed"), settings))["strategy"] == f"fixed:temperature={temperature}"
        )
    large = recipe_settings("simclr", "google")
    found = specs(create_method("simclr", images(), flags("dystress"), large))["strategy"] or ""
    assert found.startswith("dystress:temperature_min=0.1,temperature_max=0.2,")


@pytest.mark.parametrize(("method", "recipe"), [(method, name) for method in METHODS for name in RECIPES[method]])
def test_every_recipe_fits_its_method(method: str, recipe: str) -> None:
    settings = recipe_settings(method, recipe)
    settings.check_method(method)
    assert settings.recipe == recipe
    create_method(method, images(), flags(None), recipe_settings(method, recipe, **SHRUNK.get(method, {})))


SHRUNK = {"moco": {"queue_size": 4}, "nnclr": {"queue_size": 4}, "barlow-twins": {"embedding_dimension": 8}}


def test_recipes_are_the_papers() -> None:
    numbers = ("batch_size", "epochs", "optimizer", "learning_rate", "weight_decay", "warmup_epochs", "augmentation")
    for method, recipe, expected in [
        ("simclr", "google", (4096, 100, "lars", 0.3, 1e-6, 10, "simclr")),
        ("simclr", "dystress-cifar", (128, 200, "sgd", 0.06, 5e-4, 0, "simclr-cifar")),
        ("simclr", "dystress-imagenet", (256, 100, "lars", 0.075, 1e-6, 10, "simclr")),
        ("simclr", "long-tail", (512, 2000, "sgd", 0.5, 1e-4, 10, "long-tail")),
        ("simclr", "macl-cifar", (256, 200, "adam", 1e-3, 1e-6, 0, "simclr-cifar")),
        ("simclr", "imagenette", (256, 800, "sgd", 0.06, 5e-4, 0, "amcl-abcde")),
        ("moco", "moco-v2", (256, 200, "sgd", 0.03, 1e-4, 0, "moco-v2")),
        ("moco", "macl-imagenet-100", (256, 200, "sgd", 0.3, 1e-4, 10, "moco-v2")),
        ("nnclr", "macl-imagenet-100", (512, 100, "lars", 0.8, 1e-6, 10, "simclr")),
        ("simsiam", "simsiam", (512, 100, "sgd", 0.05, 1e-4, 0, "moco-v2")),
        ("barlow-twins", "barlow-twins", (2048, 1000, "lars", 0.2, 1e-6, 10, "simclr")),
    ]:
        settings = recipe_settings(method, recipe)
        assert tuple(getattr(settings, name) for name in numbers) == expected
    assert recipe_settings("simclr", "google").scale == 16
    assert recipe_settings("simclr", "dystress-imagenet").scale == 16
    assert recipe_settings("simclr", "macl-cifar").scale == 1
    assert recipe_settings("simclr", "macl-cifar", batch_size=128).scale == 1
    assert recipe_settings("simclr", "macl-cifar", batch_size=1024).scale == 4
    assert recipe_settings("simsiam", "simsiam").zero_init_residual
    assert recipe_settings("barlow-twins", "barlow-twins").zero_init_residual
    assert recipe_settings("nnclr", "macl-imagenet-100").scale == 1
    assert recipe_settings("moco", "moco-v2").queue_size == 65536
    assert recipe_settings("moco", "long-tail").queue_size == 10000


def test_backbones_of_others_have_no_stem_unless_it_is_given() -> None:
    other = recipe_settings("simclr", "google", backbone="vit-tiny")
    assert (other.stem, other.width, other.zero_init_residual) == (None, None, False)
    assert recipe_settings("simclr", backbone="vit-tiny", stem="cifar").stem == "cifar"
    assert recipe_settings("simclr", backbone="resnet34").stem == "cifar"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": -1}, "epochs=-1 must be at least 0."),
        ({"batch_size": 1}, "batch_size=1 must be at least 2."),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0."),
        ({"learning_rate": math.nan}, "learning_rate=nan must be finite."),
        ({"momentum": 1.0}, "momentum=1.0 must be less than 1."),
        ({"encoder_momentum": 1.1}, "encoder_momentum=1.1 must be at most 1."),
        ({"optimizer": "adamw"}, "optimizer='adamw' must be one of sgd, lars, adam."),
        ({"heads": 0}, "heads=0 must be at least 1."),
    ],
)
def test_settings_out_of_range_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        VisionSettings(**changes)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("method", "given", "kind", "message"),
    [
        ("byol", {}, ConfigError, "method='byol' must be one of simclr, moco, nnclr, simsiam, barlow-twins."),
        ("simclr", {"settings": {"queue_size": 5}}, ConfigError, "queue_size=5 is no setting of simclr, but of moco, nnclr"),
        (
            "simclr",
            {"settings": {"batch_size": 32}},
            ConfigError,
            "batch_size=32 must be at most 26, the images of 'colours-0'",
        ),
        ("simclr", {"settings": {"augmentation": "simclear"}}, UnknownNameError, "Did you mean 'simclr'?"),
        ("simclr", {"save_epochs": 0}, ConfigError, "save_epochs=0 must be at least 1."),
        ("simclr", {"evaluate_epochs": 0}, ConfigError, "evaluate_epochs=0 must be at least 1."),
        ("simclr", {"workers": -1}, ConfigError, "workers=-1 must be at least 0."),
        ("simclr", {"strategy": "head-tail", "labelled": False}, DataError, "strategy 'head-tail' needs the class of every"),
        ("moco", {"strategy": "uncertainty"}, ConfigError, "strategy 'uncertainty' needs a head"),
        ("simsiam", {"strategy": "macl"}, ConfigError, "SimSiam has no softmax to put a temperature in. Only 'amcl'"),
        ("barlow-twins", {"strategy": "fixed:temperature=0.2"}, ConfigError, "Barlow Twins has no softmax"),
        ("simsiam", {"objective": "dcl"}, ConfigError, "objective 'dcl' does not apply: SimSiam has no softmax"),
        ("simsiam", {"options": ["beta=1"]}, ConfigError, "temperature_args=beta=1 are options of no strategy"),
    ],
)
def test_faults_are_named(tmp_path: Path, method: str, given: dict[str, Any], kind: type[Exception], message: str) -> None:
    more = {"epochs": 1, **given.pop("settings", {})}
    settings = small(method if method in METHODS else "simclr", **more)
    data = images(labelled=given.pop("labelled", True))
    temperature = TemperatureArguments(given.pop("strategy", None), given.pop("options", []), given.pop("objective", None))
    with pytest.raises(kind) as raised:
        train_vision(data, method, temperature, settings, tmp_path, **given)
    assert message in str(raised.value)
    assert not (tmp_path / "checkpoint.pt").exists()


def test_sets_of_other_classes_are_refused(tmp_path: Path) -> None:
    other = images(12)
    test = ImageArray(other.images, other.labels, ("a", "b", "c"), "letters")
    with pytest.raises(DataError, match="'colours-0' and 'letters' must have the same classes"):
        train_vision(images(), "simclr", flags("fixed"), small("simclr"), tmp_path, test=test)


def test_processes_need_batches_that_divide() -> None:
    with pytest.raises(ConfigError, match="batch_size=8 must be a multiple of the 3 processes"):
        Batches(images(), 8, seed=0, world=3)
