"""Pretrained networks by name: MobileNetV2 from a file, and whatever transformers, timm or torchvision offer with weights.

It must not know the loss or the data.
"""

from __future__ import annotations

from pathlib import Path

from tempplug.errors import ConfigError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.msc.mobilenet import load_mobilenet

MOBILENET = "mobilenet-v2"
MOBILENET_FILE = "mobilenet_v2_imagenet.pth"
"""Where no weights are named: this file of the data folder, itself or below ``vision``."""

_WITH_WEIGHTS = ("timm", "torchvision")


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


def _default_weights(data_dir: Path | None) -> Path:
    for folder in [] if data_dir is None else [data_dir, data_dir / "vision"]:
        if (folder / MOBILENET_FILE).is_file():
            return folder / MOBILENET_FILE
    raise ConfigError(f"backbone '{MOBILENET}' needs weights: pass --weights FILE, or a data folder that has {MOBILENET_FILE}.")
