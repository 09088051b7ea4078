"""Models of optional packages without their classifiers: timm, torchvision, lightly, and checkpoints of transformers.

A package is imported only when one of its models is created.
"""

from __future__ import annotations

import importlib
from pickle import UnpicklingError
from typing import Any

from torch import nn
from transformers import AutoModel

from tempplug.errors import ConfigError, MissingDependencyError, TempplugError
from tempplug_adapters.huggingface.loading import explained, load_image_settings, load_pretrained
from tempplug_adapters.storage.tensors import tensors_alone, why_refused

LIBRARIES = ("transformers", "timm", "torchvision", "lightly")
"""Packages whose models have names ``package:name``."""

CLASSIFIERS = ("fc", "classifier", "heads", "head", "linear")
"""Names that packages give to the classifier of a model."""


def create_installed(name: str, *, pretrained: bool = False) -> nn.Module:
    """Returns a model whose output is features in place of class scores.

    Args:
        name: ``transformers:NAME`` (a folder or a name on the Hugging Face hub, always with its weights), ``timm:NAME``,
            ``torchvision:NAME`` or ``lightly:NAME`` (one of lightly's ResNets for images of 32 x 32 pixels, ``resnet-18``).
        pretrained: with the weights of timm or torchvision.

    Raises:
        MissingDependencyError: the package is not installed; the message has the pip command.
        ConfigError: the package has no such model, or its classifier is not recognised.
    """
    library, _, model = name.partition(":")
    if library == "transformers":
        network: nn.Module = load_pretrained(AutoModel, model)
        return network
    try:
        with tensors_alone():
            if library == "timm":
                network = _package("timm").create_model(model, pretrained=pretrained, num_classes=0)
                return network
            if library == "torchvision":
                weights = "DEFAULT" if pretrained else None
                return _without_classifier(_package("torchvision.models").get_model(model, weights=weights), name)
            return _without_classifier(_package("lightly.models").ResNetGenerator(model), name)
    except (RuntimeError, ValueError, KeyError, TypeError, UnpicklingError) as error:
        if isinstance(error, TempplugError):
            raise
        raise ConfigError(f"backbone '{name}' cannot be made: {why_refused(error) or error}") from error


def trained_normalisation(name: str, network: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Returns the mean and standard deviation with which a model's images, in [0, 1], were normalised when it was trained.

    Args:
        name: as in `create_installed`.
        network: the model that it returned.

    Returns:
        One number for each channel; None for models without these numbers. timm's models have them, and those of transformers
        with a preprocessor_config.json.

    Raises:
        ConfigError: that file is malformed.
    """
    library, _, model = name.partition(":")
    found: Any = getattr(network, "pretrained_cfg", None) if library == "timm" else None
    keys = ("mean", "std")
    if library == "transformers":
        found, keys = load_image_settings(model), ("image_mean", "image_std")
    if not isinstance(found, dict):
        return None
    if found.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    mean, std = (found.get(key) for key in keys)
    if mean is None or std is None:
        return None
    with explained(model):
        return tuple(float(value) for value in mean), tuple(float(value) for value in std)


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependencyError(
            f"backbones '{package}:NAME' need the package '{package}': pip install {package} ({error})."
        ) from error


def _without_classifier(model: nn.Module, name: str) -> nn.Module:
    """Returns the model without its classifier, from the first linear or dropout layer on."""
    for attribute in CLASSIFIERS:
        classifier = getattr(model, attribute, None)
        if not isinstance(classifier, nn.Module):
            continue
        kept: list[nn.Module] = []
        for layer in classifier if isinstance(classifier, nn.Sequential) else ():
            if isinstance(layer, nn.Linear | nn.Dropout):
                break
            kept.append(layer)
        setattr(model, attribute, nn.Sequential(*kept))
        return model
    raise ConfigError(
        f"backbone '{name}' has no classifier named {', '.join(CLASSIFIERS)}: make the model yourself, remove its classifier "
        "and wrap it in Backbone."
    )
