"""Pretrained networks by name: MobileNetV2 from a file, and whatever transformers, timm or torchvision offer with weights.

And which of their blocks the paper freezes. It must not know the loss or
the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from tempplug.errors import ConfigError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.msc.blocks import blocks_of
from tempplug_adapters.msc.mobilenet import load_mobilenet
from tempplug_adapters.msc.recipe import MOBILENET, MOBILENET_FILE

_WITH_WEIGHTS = ("timm", "torchvision")
_STEM_AND_TWO_STAGES = ("conv1", "bn1", "layer1", "layer2")


def load_backbone(name: str, weights: str | Path | None = None, data_dir: Path | None = None) -> Backbone:
    """Returns a network with pretrained weights, ready for images in [0, 1].

    Args:
        name: ``mobilenet-v2``; a folder or a name on the Hugging Face hub that transformers loads; or ``timm:NAME`` or
            ``torchvision:NAME`` with the weights that the package offers. Networks with random weights are not offered: MSC
            has nothing to start from there.
        weights: of ``mobilenet-v2``: a state dict in torchvision's layout that was trained with TensorFlow's padding, see
            `load_mobilenet`.
        data_dir: where `MOBILENET_FILE` is looked for without ``weights``.

    Raises:
        ConfigError: weights for another network, or none for this one; or the model cannot be loaded.
        DataError: the file does not fit.
        MissingDependencyError: the package is not installed.
    """
    if name == MOBILENET:
        network = load_mobilenet(weights or _default_weights(data_dir))
        return Backbone(network.mobilenet_v2, dimension=network.classifier.in_features)
    if weights is not None:
        raise ConfigError(f"weights='{weights}' are of backbone '{MOBILENET}', but backbone '{name}' was asked for.")
    library = name.partition(":")[0]
    if library in _WITH_WEIGHTS:
        return create_backbone(name, pretrained=True)
    return create_backbone(name if library == "transformers" else f"transformers:{name}")


def default_frozen_blocks(network: nn.Module) -> int:
    """Returns how many blocks the paper freezes: those up to an eighth of the image's side; 0 for a network it says nothing of.

    The authors freeze a ResNet's stem and its first two stages. MobileNetV2's layers of the same resolutions are its first six
    blocks.

    Args:
        network: a ResNet of transformers, or one with the names of torchvision's and timm's (``conv1``, ``bn1``, ``layer1``,
            ``layer2``); a MobileNetV2 of transformers; or any other.
    """
    config: Any = getattr(network, "config", None)
    kind = getattr(config, "model_type", None)
    if kind == "resnet":
        return 1 + sum(int(blocks) for blocks in config.depths[:2])
    if kind == "mobilenet_v2":
        return 6
    parts = [getattr(network, name, None) for name in _STEM_AND_TWO_STAGES]
    early = {id(inner) for part in parts if isinstance(part, nn.Module) for inner in part.modules()}
    return sum(id(block) in early for block in blocks_of(network)) if all(isinstance(part, nn.Module) for part in parts) else 0


def _default_weights(data_dir: Path | None) -> Path:
    for folder in [] if data_dir is None else [data_dir, data_dir / "vision"]:
        if (folder / MOBILENET_FILE).is_file():
            return folder / MOBILENET_FILE
    raise ConfigError(f"backbone '{MOBILENET}' needs weights: pass --weights FILE, or a data folder that has {MOBILENET_FILE}.")
