"""Networks for images: transformers' ResNet and ViT with random weights, and models of packages without their classifiers.

Strides, and thereby the meaning of the weights, are torchvision's: a block of three convolutions strides in its 3x3 one, the
first stage does not stride, and a shortcut has weights only where the shape changes. It must not depend on training methods.
"""

from __future__ import annotations

import importlib
from itertools import takewhile
from pickle import UnpicklingError
from typing import Any

from torch import nn
from transformers import AutoModel, ResNetConfig, ResNetModel, ViTConfig, ViTModel

from tempplug.errors import ConfigError, MissingDependencyError, TempplugError
from tempplug_adapters.huggingface.loading import explained, load_image_settings, load_pretrained
from tempplug_adapters.storage.tensors import tensors_alone, why_refused

_BASIC, _BOTTLENECK = "basic", "bottleneck"
_EXPANSION = {_BASIC: 1, _BOTTLENECK: 4}

RESNETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "resnet18": (_BASIC, (2, 2, 2, 2)),
    "resnet34": (_BASIC, (3, 4, 6, 3)),
    "resnet50": (_BOTTLENECK, (3, 4, 6, 3)),
    "resnet101": (_BOTTLENECK, (3, 4, 23, 3)),
    "resnet152": (_BOTTLENECK, (3, 8, 36, 3)),
}
"""Names of residual networks: the kind of block, and how many of them each stage has."""

STEMS = ("imagenet", "cifar")
"""First layers: a 7x7 convolution of stride 2 and a maximum over 3x3 of stride 2, or one 3x3 convolution of stride 1."""


def create_resnet(name: str, *, stem: str = "imagenet", width: int = 64, zero_init_residual: bool = False) -> ResNetModel:
    """Returns a residual network with random weights; its pooled output has 8 · width channels, from resnet50 on 32 · width.

    Args:
        name: one of `RESNETS`.
        stem: one of `STEMS`: ``imagenet`` reduces an image 32 times, ``cifar`` only 8 times, for images of some 32 pixels.
        width: channels of the first stage (before its blocks widen them), at least 1; the papers' networks have 64.
        zero_init_residual: start the last normalisation of every block at zero, so that each block begins as the identity
            (Goyal et al. 2017).

    Raises:
        ConfigError: no such stem, or the width is less than 1.

    Source: He et al. 2016; Chen et al. 2020 (SimCLR), B.9, for the small stem.

    >>> network = create_resnet("resnet18", stem="cifar", width=8)
    >>> network.config.hidden_sizes
    [8, 16, 32, 64]
    """
    if stem not in STEMS:
        raise ConfigError(f"stem='{stem}' must be {' or '.join(STEMS)}.")
    if width < 1:
        raise ConfigError(f"width={width} of {name} must be at least 1.")
    block, depths = RESNETS[name]
    widths = [width * _EXPANSION[block] * 2**stage for stage in range(len(depths))]
    network = ResNetModel(ResNetConfig(embedding_size=width, hidden_sizes=widths, depths=list(depths), layer_type=block))
    if stem == "cifar":
        convolution = nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        network.embedder.embedder.convolution = convolution
        network.embedder.add_module("pooler", nn.Identity())
    if zero_init_residual:
        stages: Any = network.encoder.stages
        for stage in stages:
            for residual in stage.layers:
                nn.init.zeros_(residual.layer[-1].normalization.weight)
    return network


VITS: dict[str, tuple[int, int]] = {"vit-tiny": (192, 3), "vit-small": (384, 6), "vit-base": (768, 12)}
"""Names of vision transformers of 12 layers: the width of a token, and the attention heads."""


def create_vit(name: str, *, image_size: int = 224, patch_size: int | None = None) -> ViTModel:
    """Returns a vision transformer with random weights and without a pooler: its class token is the representation.

    The pooler of transformers' ViT (a linear layer and tanh over the class token) is for its pre-training; untrained, it is a
    random layer.

    Args:
        name: one of `VITS`.
        image_size: height and width of the images, a multiple of the patch size.
        patch_size: height and width of a patch; None: an eighth of the image, but at most 16 (4 for images of 32 pixels, 8 for
            64, 16 for 224), so that small images have 64 patches, too.

    Raises:
        ConfigError: the image cannot be cut into such patches.

    Source: Dosovitskiy et al. 2021 (base); Touvron et al. 2021 (DeiT) for tiny and small.

    >>> create_vit("vit-tiny", image_size=32).config.patch_size
    4
    """
    patch = max(1, min(16, image_size // 8)) if patch_size is None else patch_size
    if image_size < 1 or patch < 1 or image_size % patch:
        remedy = "choose a multiple of it, or another patch_size"
        raise ConfigError(f"image_size={image_size} cannot be cut into patches of patch_size={patch}: {remedy}.")
    width, heads = VITS[name]
    sizes: dict[str, Any] = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
    return ViTModel(ViTConfig(**sizes, image_size=image_size, patch_size=patch), add_pooling_layer=False)


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

    One number for each channel; None for models without these numbers. timm's models have them, and those of transformers with
    a preprocessor_config.json; `ConfigError` if that file is malformed.
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
        name = module.partition(".")[0]
        remedy = f"pip install -c constraints.txt {name} in the folder of tempplug ({error})"
        raise MissingDependencyError(f"backbones '{name}:NAME' need the package '{name}': {remedy}.") from error


def _without_classifier(model: nn.Module, name: str) -> nn.Module:
    """Returns the model without its classifier, from the first linear or dropout layer on."""
    for attribute in CLASSIFIERS:
        classifier = getattr(model, attribute, None)
        if isinstance(classifier, nn.Module):
            layers = classifier if isinstance(classifier, nn.Sequential) else ()
            features = takewhile(lambda layer: not isinstance(layer, nn.Linear | nn.Dropout), layers)
            setattr(model, attribute, nn.Sequential(*features))
            return model
    remedy = "make the model yourself, remove its classifier and wrap it in Backbone"
    raise ConfigError(f"backbone '{name}' has no classifier named {', '.join(CLASSIFIERS)}: {remedy}.")
