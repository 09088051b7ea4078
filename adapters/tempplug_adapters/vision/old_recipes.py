"""What the papers set, as data: trainings by method and name, and the options and objectives of the temperature strategies.

Where a paper has no number for a method on small images, the recipe says whose it takes instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug_adapters.images.resnet import RESNETS
from tempplug_adapters.vision.old_recipe import METHODS, VisionSettings

_SMALL = VisionSettings()
_LARGE = VisionSettings(
    backbone="resnet50",
    stem="imagenet",
    image_size=224,
    augmentation="simclr",
    epochs=100,
    batch_size=256,
    optimizer="lars",
    learning_rate=0.3,
    learning_rate_scaling="linear",
    weight_decay=1e-6,
    spare_norms=True,
    warmup_epochs=10,
)
_LONG_TAIL = replace(
    _SMALL, augmentation="long-tail", epochs=2000, batch_size=512, learning_rate=0.5, weight_decay=1e-4, warmup_epochs=10
)
_AMCL = replace(_SMALL, augmentation="amcl-abcde", epochs=1000, batch_size=512)
_MOCO_V2 = replace(
    _LARGE,
    augmentation="moco-v2",
    epochs=200,
    optimizer="sgd",
    learning_rate=0.03,
    weight_decay=1e-4,
    spare_norms=False,
    warmup_epochs=0,
    queue_size=65536,
)

_RECIPES: dict[str, dict[str, VisionSettings]] = {
    "simclr": {
        # Manna et al. (DySTreSS), CIFAR; its text, where its code passes no momentum
        "dystress-cifar": _SMALL,
        # Huang et al. 2023 (MACL), appendix B.3; above 256 images a step its rate grows with the batch
        "macl-cifar": replace(
            _SMALL,
            batch_size=256,
            optimizer="adam",
            learning_rate=1e-3,
            learning_rate_scaling="linear-above-256",
            weight_decay=1e-6,
        ),
        # Wang et al. 2024 (AMCL)
        "amcl": _AMCL,
        # Kukleva et al. 2023 (temperature schedules), CIFAR-LT
        "long-tail": _LONG_TAIL,
        # Kim and Kim (temperature-free), Imagenette; its colours change half as much as SimCLR's
        "imagenette": replace(_SMALL, stem="imagenet", image_size=128, augmentation="amcl-abcde", epochs=800, batch_size=256),
        # Chen et al. 2020, with the epochs that its code has by default; the paper trains up to 1000
        "google": replace(_LARGE, batch_size=4096, zero_init_residual=True),
        # Manna et al., ImageNet
        "dystress-imagenet": replace(_LARGE, learning_rate=0.075, learning_rate_scaling="square-root", precision="bf16"),
        # Huang et al. 2023, ImageNet, the smallest batch and shortest training of its tables
        "macl-imagenet": replace(_LARGE, epochs=200, zero_init_residual=True),
    },
    "moco": {
        # the base of Wang et al. 2024 (AMCL): lightly's, in both directions
        "amcl": replace(_AMCL, learning_rate=0.08, encoder_momentum=0.99, symmetric=True),
        # Kukleva et al. 2023; the batch is not said: SimCLR's
        "long-tail": replace(_LONG_TAIL, head_layers=1, queue_size=10000),
        # Chen et al. 2020 (MoCo v2)
        "moco-v2": replace(_MOCO_V2, learning_rate_scaling="none"),
        # Huang et al. 2023, ImageNet-100
        "macl-imagenet-100": replace(_MOCO_V2, learning_rate_scaling="none", learning_rate=0.3, warmup_epochs=10),
    },
    "nnclr": {
        # no paper trains it on CIFAR: the paper's heads, otherwise as SimCLR there, with lightly's support set
        "cifar": replace(_SMALL, batch_size=256, embedding_dimension=256),
        # Dwibedi et al. 2021
        "nnclr": replace(_LARGE, epochs=1000, batch_size=4096, embedding_dimension=256, queue_size=98304),
        # Huang et al. 2023, ImageNet-100
        "macl-imagenet-100": replace(
            _LARGE,
            batch_size=512,
            learning_rate=0.8,
            learning_rate_scaling="none",
            embedding_dimension=256,
            queue_size=98304,
        ),
    },
    "simsiam": {
        # Chen and He 2021, appendix D
        "cifar": replace(
            _SMALL,
            head_layers=2,
            embedding_dimension=2048,
            epochs=800,
            batch_size=512,
            learning_rate=0.03,
            learning_rate_scaling="linear",
        ),
        # Chen and He 2021, section 4
        "simsiam": replace(
            _MOCO_V2,
            zero_init_residual=True,
            head_layers=3,
            embedding_dimension=2048,
            epochs=100,
            batch_size=512,
            learning_rate=0.05,
            queue_size=_SMALL.queue_size,
        ),
    },
    "barlow-twins": {
        # the base of Wang et al. 2024 (AMCL)
        "amcl": replace(_AMCL, learning_rate=0.11, embedding_dimension=2048),
        # Zbontar et al. 2021 with its code's λ, but SimCLR's views: the code's own have half the jitter, bicubic crops and
        # other blur in each, and some of the second views are solarised
        "barlow-twins": replace(
            _LARGE,
            zero_init_residual=True,
            embedding_dimension=8192,
            epochs=1000,
            batch_size=2048,
            learning_rate=0.2,
            bias_learning_rate=0.0048,
            redundancy_weight=0.0051,
        ),
    },
}
RECIPES: dict[str, dict[str, VisionSettings]] = {
    method: {name: replace(settings, recipe=name) for name, settings in recipes.items()} for method, recipes in _RECIPES.items()
}
"""Trainings by method and name; the first of a method is its default."""

# One temperature for each recipe, and each strategy as its own paper has it with the method where it does.
_FIXED = {"simclr": 0.1, "moco": 0.2, "nnclr": 0.1}
_FIXED_OF_RECIPE = {
    ("simclr", "amcl"): 0.5,
    ("simclr", "long-tail"): 0.2,
    ("simclr", "imagenette"): 0.5,
    ("moco", "amcl"): 0.1,
}
_MACL = {"base_temperature": 0.1, "alpha": 0.5, "threshold": 0.0}
_STRATEGIES: dict[str, dict[str, dict[str, Any]]] = {
    "simclr": {"macl": _MACL},
    "moco": {"macl": {"base_temperature": 0.15, "alpha": 0.5, "threshold": 0.2}},
    "nnclr": {"macl": _MACL},
}
_DYSTRESS = {True: {"temperature_min": 0.07, "temperature_max": 0.2}, False: {"temperature_min": 0.1, "temperature_max": 0.2}}

OBJECTIVES = {"macl": "reweighted", "amcl": "dcl"}
"""The objective of a strategy where the flags give none; ``infonce`` for the others."""

HEADS = {"amcl": 3}
"""Projection heads of a strategy where the flags do not say; one for the others."""


def recipe_settings(method: str, recipe: str | None = None, **changes: Any) -> VisionSettings:
    """Returns the settings of a recipe, some of them changed.

    Args:
        method: one of `METHODS`.
        recipe: one of ``RECIPES[method]``; None: its first.
        **changes: of `VisionSettings`. With a backbone that is no ResNet of ours, what only those have is left out unless it
            is given.

    Raises:
        UnknownNameError: there is no such recipe.
        ConfigError: there is no such method, or a setting is out of range.

    >>> recipe_settings("moco", epochs=3).queue_size
    4096
    """
    if method not in RECIPES:
        raise ConfigError(f"method='{method}' must be one of {', '.join(METHODS)}.")
    recipes = RECIPES[method]
    name = next(iter(recipes)) if recipe is None else recipe
    if name not in recipes:
        raise UnknownNameError(f"{method} has no recipe '{name}'.{nearest(name, recipes)} Known: {', '.join(recipes)}.")
    if changes.get("backbone", recipes[name].backbone) not in RESNETS:
        changes = {"stem": None, "width": None, "zero_init_residual": False, **changes}
    return replace(recipes[name], **changes)


def known_options(method: str, strategy: str, settings: VisionSettings, images: int) -> dict[str, Any]:
    """Returns the options of a strategy that the recipe and the number of images decide.

    Args:
        method: one of `METHODS`.
        strategy: name of the strategy.
        settings: of the training.
        images: that are trained on: how many a strategy for every example keeps.
    """
    # Barlow Twins compares features by their values over the batch.
    dimension = settings.batch_size if method == "barlow-twins" else settings.embedding_dimension
    options: dict[str, Any] = {"size": images, "dimension": dimension}
    fixed = _FIXED_OF_RECIPE.get((method, settings.recipe), _FIXED.get(method))
    match strategy:
        case "fixed":
            options["temperature"] = fixed
        case "learnable":
            options["initial_temperature"] = fixed
        case "uncertainty":
            options["base_temperature"] = fixed
        case "individual":
            options["temperature_init"] = fixed
        case "dystress":
            options |= _DYSTRESS[settings.image_size <= 64]
        case "schedule":
            options["period"] = max(settings.epochs, 1) / 5
    return options | _STRATEGIES.get(method, {}).get(strategy, {})
