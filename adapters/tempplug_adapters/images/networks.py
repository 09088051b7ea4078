"""Networks for images with random weights: transformers' ResNet and ViT.

Strides, and thereby the meaning of the weights, are torchvision's: a block of three convolutions strides in its 3x3 one, the
first stage does not stride, and a shortcut has weights only where the shape changes. It must not depend on training methods.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import ResNetConfig, ResNetModel, ViTConfig, ViTModel

from tempplug.errors import ConfigError

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
    network = ResNetModel(
        ResNetConfig(
            embedding_size=width,
            hidden_sizes=[width * _EXPANSION[block] * 2**stage for stage in range(len(depths))],
            depths=list(depths),
            layer_type=block,
        )
    )
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
        raise ConfigError(
            f"image_size={image_size} cannot be cut into patches of patch_size={patch}: choose a multiple of it, or another "
            "patch_size."
        )
    width, heads = VITS[name]
    config = ViTConfig(
        hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width, image_size=image_size, patch_size=patch
    )
    return ViTModel(config, add_pooling_layer=False)
