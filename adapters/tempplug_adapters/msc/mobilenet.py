"""MobileNetV2 from a state dict in torchvision's layout, with the padding of TensorFlow, where most such weights come from.

TensorFlow pads a convolution of stride 2 so that the last row and column are the ones that may lie outside; PyTorch's usual
padding moves every such layer by a pixel, which costs weights from TensorFlow some accuracy. This module must not know the
loss, images or data sets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

from tempplug.errors import DataError
from tempplug_adapters.storage.tensors import read_tensors

# Prefixes in torchvision's names, in the order in which they are tried, and what transformers calls the same layers. The first
# block has no expansion, and transformers counts it to the stem.
_NAMES: Final = (
    (r"features\.0\.0\.", "conv_stem.first_conv.convolution."),
    (r"features\.0\.1\.", "conv_stem.first_conv.normalization."),
    (r"features\.1\.conv\.0\.0\.", "conv_stem.conv_3x3.convolution."),
    (r"features\.1\.conv\.0\.1\.", "conv_stem.conv_3x3.normalization."),
    (r"features\.1\.conv\.1\.", "conv_stem.reduce_1x1.convolution."),
    (r"features\.1\.conv\.2\.", "conv_stem.reduce_1x1.normalization."),
    (r"features\.18\.0\.", "conv_1x1.convolution."),
    (r"features\.18\.1\.", "conv_1x1.normalization."),
    (r"features\.(\d+)\.conv\.0\.0\.", "layer.{}.expand_1x1.convolution."),
    (r"features\.(\d+)\.conv\.0\.1\.", "layer.{}.expand_1x1.normalization."),
    (r"features\.(\d+)\.conv\.1\.0\.", "layer.{}.conv_3x3.convolution."),
    (r"features\.(\d+)\.conv\.1\.1\.", "layer.{}.conv_3x3.normalization."),
    (r"features\.(\d+)\.conv\.2\.", "layer.{}.reduce_1x1.convolution."),
    (r"features\.(\d+)\.conv\.3\.", "layer.{}.reduce_1x1.normalization."),
)


def load_mobilenet(weights: str | Path, *, tensorflow_padding: bool = True) -> Any:
    """Returns transformers' MobileNetV2 1.0 for image classification, in evaluation mode; ``.mobilenet_v2`` has no classifier.

    Its pooled output has 1,280 channels. Activations overwrite what they are given, which no gradient needs and which makes
    the network about a third faster on a CPU; the values are the same.

    Args:
        weights: a file with a state dict in torchvision's layout, read without running code from it. Every entry must fit.
        tensorflow_padding: pad as TensorFlow does, for weights that were trained there; False for weights of torchvision's own.

    Raises:
        DataError: the file is missing, is no state dict of this network, or lacks weights.

    Source: Sandler et al. 2018.
    """
    state = _read(Path(weights))
    classes = state.get("classifier.1.bias")
    # 1e-5 is torchvision's; transformers takes a hundred times as much.
    config = MobileNetV2Config(layer_norm_eps=1e-5, tf_padding=tensorflow_padding)
    config.num_labels = 1000 if classes is None else len(classes)
    with torch.device("meta"):  # no initial weights are drawn, which would take seconds and random numbers
        model: Any = MobileNetV2ForImageClassification(config)
    try:
        model.load_state_dict({_renamed(name): value for name, value in state.items()}, assign=True)
    except RuntimeError as error:
        reason = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
        raise DataError(f"{weights} does not fit MobileNetV2 1.0 of torchvision: {reason}") from error
    for module in model.modules():
        if isinstance(module, nn.ReLU6):
            module.inplace = True
    return model.float().eval()


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise DataError(f"weights='{path}' does not exist or is not a file.")
    try:
        state = read_tensors(path)
    except DataError as error:
        raise DataError(f"{path} cannot be read as a state dict of PyTorch: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"{path} holds no state dict: wanted the weights of torchvision's mobilenet_v2 by name.")
    return state


def _renamed(name: str) -> str:
    if name.startswith("classifier.1."):
        return name.replace("classifier.1.", "classifier.")
    for pattern, replacement in _NAMES:
        found = re.match(pattern, name)
        if found:
            block = int(found[1]) - 2 if found.groups() else 0
            return f"mobilenet_v2.{replacement.format(block)}{name[found.end() :]}"
    return name
