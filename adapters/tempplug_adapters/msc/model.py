"""MSC's pretrained networks, and its training step: two views of normal images relative to the centre of the normal class.

A pretrained network maps the images of one class to a small region of the sphere. A standard contrastive loss would spread them
over the whole sphere, which makes anomalies harder to detect; relative to their centre, they are already spread.

MobileNetV2 is read from a state dict in torchvision's layout and uses TensorFlow's padding, since most such weights come from
TensorFlow; PyTorch's padding shifts every convolution of stride 2 by a pixel, which reduces the accuracy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.encoder_checks import load_state
from tempplug_adapters.images.backbones import Backbone, create_backbone, is_own
from tempplug_adapters.msc.recipe import MOBILENET, MOBILENET_FILE
from tempplug_adapters.storage.tensors import read_tensors


def unit_representations(backbone: nn.Module, images: Tensor) -> Tensor:
    """Returns the representations of images [B, 3, H, W] in [0, 1], of length one and in at least float32, [B, F]."""
    # Channels last is how convolutions run fastest; the values do not depend on it.
    found = backbone(images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images)
    return F.normalize(found.to(torch.promote_types(found.dtype, torch.float32)), dim=1)


def centre_of(representations: Tensor, *, unit: bool = False) -> Tensor:
    """Returns the mean, [F], of unit representations [N, F], N at least 1, scaled to length one if ``unit``."""
    mean = representations.mean(0)
    return F.normalize(mean, dim=0) if unit else mean


class MSC(nn.Module):
    """Turns two views of normal images into the mean-shifted contrastive loss, with any temperature strategy.

    Args:
        backbone: pretrained: images to representations [B, F].
        centre: [F] of the normal class, see `centre_of`; constant.
        loss_fn: of layout ``two-view``; ``infonce`` with temperature 0.25 is MSC's.
        angular: add the mean squared distances of both views from the centre, which pull the class together.

    Attributes:
        backbone: as given. It is always in evaluation mode, also while it trains: batch normalisation uses the statistics of
            its pretraining.
        loss_fn: as given.

    Source: Reiss & Hoshen 2023, Mean-Shifted Contrastive Loss for Anomaly Detection. The angular loss is an option of their
    code, off by default; Kim & Kim 2025 (temperature-free) do not state whether they used it.

    >>> model = MSC(nn.Flatten(), torch.full((12,), 0.2), ContrastiveLoss("fixed:temperature=0.25", layout="two-view"))
    >>> model(torch.rand(8, 3, 2, 2), torch.rand(8, 3, 2, 2)).shape
    torch.Size([])
    """

    centre: Tensor

    def __init__(self, backbone: nn.Module, centre: Tensor, loss_fn: ContrastiveLoss, *, angular: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.loss_fn = loss_fn
        self.angular = angular
        self.register_buffer("centre", centre.detach().clone())
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of the loss; the backbone stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None) -> Tensor:
        """Returns the loss in nats, [], of two views [B, 3, H, W] in [0, 1]; ``index`` [B] are positions in the data set."""
        # Embed the views separately: in evaluation mode the result is the same, and small batches fit in the cache.
        seen = [unit_representations(self.backbone, view) for view in (view_a, view_b)]
        shifted = [each - self.centre for each in seen]
        loss: Tensor = self.loss_fn(*shifted, **self.loss_fn.accepted(index=index))
        if self.angular:
            loss = loss + sum(each.square().sum(1).mean() for each in shifted)
        return loss


_WITH_WEIGHTS = ("timm", "torchvision")
_STEM_AND_TWO_STAGES = ("conv1", "bn1", "layer1", "layer2")
# Prefixes of torchvision's names, in matching order, and transformers' names of the same layers. The first block has no
# expansion and belongs to the stem in transformers.
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


def load_backbone(
    name: str, weights: str | Path | None = None, data_dir: Path | None = None, image_size: int | None = None
) -> Backbone:
    """Returns a network with pretrained weights, ready for images in [0, 1].

    Args:
        name: ``mobilenet-v2``; a folder or a name on the Hugging Face hub that transformers loads; ``timm:NAME`` or
            ``torchvision:NAME`` with the package's weights; or ``MODULE:NAME`` of the user, see `create_backbone`. MSC needs
            pretrained weights.
        weights: of ``mobilenet-v2``: a state dict in torchvision's layout that was trained with TensorFlow's padding, see
            `load_mobilenet`.
        data_dir: folder with `MOBILENET_FILE`, which is used without ``weights``.
        image_size: pixels of each side, for a module of the user.

    Raises:
        ConfigError: weights for another network, or none for this one; or the model cannot be loaded.
        DataError: the file does not fit.
        MissingDependencyError: the package is not installed.
    """
    if name == MOBILENET:
        network = load_mobilenet(weights or _default_weights(data_dir))
        return Backbone(network.mobilenet_v2, dimension=network.classifier.in_features)
    if weights is not None:
        raise ConfigError(f"weights='{weights}' belong to backbone '{MOBILENET}', but backbone='{name}'.")
    if is_own(name):
        return create_backbone(name, image_size=image_size)
    library = name.partition(":")[0]
    if library in _WITH_WEIGHTS:
        return create_backbone(name, pretrained=True)
    return create_backbone(name if library == "transformers" else f"transformers:{name}")


def default_frozen_blocks(network: nn.Module) -> int:
    """Returns the number of blocks that the paper freezes: those with a resolution of at least an eighth; 0 for other networks.

    The authors freeze a ResNet's stem and its first two stages. The layers of MobileNetV2 with the same resolutions are its
    first six blocks.

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


def load_mobilenet(weights: str | Path) -> Any:
    """Returns transformers' MobileNetV2 1.0 for image classification, in evaluation mode; ``.mobilenet_v2`` has no classifier.

    Its pooled output has 1,280 channels. Activations work in place, which makes the network about a third faster on a CPU.

    Args:
        weights: a file with a state dict in torchvision's layout, trained with TensorFlow's padding. Every entry must fit.

    Raises:
        DataError: the file is missing, is no state dict of this network, or lacks weights.

    Source: Sandler et al. 2018.
    """
    state = _read(Path(weights))
    classes = state.get("classifier.1.bias")
    # 1e-5 is torchvision's; transformers takes a hundred times as much.
    config = MobileNetV2Config(layer_norm_eps=1e-5, tf_padding=True)
    config.num_labels = 1000 if classes is None else len(classes)
    with torch.device("meta"):  # no initial weights are drawn, which would take seconds and random numbers
        model: Any = MobileNetV2ForImageClassification(config)
    try:
        load_state(model, {_renamed(name): value for name, value in state.items()}, assign=True)
    except (DataError, NonFiniteError) as error:
        raise DataError(f"{weights} does not fit MobileNetV2 1.0 of torchvision: {error}") from error
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


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """Returns the parts of a network that have parameters, in order; lists, sequences and wrappers are replaced by their parts.

    A stage of a ResNet has its residual blocks as parts, an encoder of a transformer its layers.

    Args:
        network: any module that registers its parts in the order in which they run.

    >>> stage = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3))
    >>> [type(block).__name__ for block in blocks_of(nn.ModuleDict({"stage": stage, "norm": nn.LayerNorm(3)}))]
    ['Linear', 'Linear', 'LayerNorm']
    """
    return _blocks(network, opened=True)


def freeze_blocks(network: nn.Module, count: int) -> None:
    """Freezes the parameters of the first blocks and unfreezes all others.

    Parameters outside the blocks, such as a transformer's class token, are frozen together with the first block.

    Args:
        network: see `blocks_of`.
        count: number of blocks, from 0 to all but one.

    Raises:
        ConfigError: the count is out of range.
    """
    blocks = blocks_of(network)
    if not 0 <= count < len(blocks):
        raise ConfigError(f"frozen_blocks={count} must be from 0 to {len(blocks) - 1}: one block must be left to train.")
    network.requires_grad_(count == 0)
    for block in blocks[count:]:
        block.requires_grad_(True)


def _blocks(module: nn.Module, *, opened: bool) -> list[nn.Module]:
    children = list(module.children())
    # A residual block without a projection is not a wrapper: it also contains an identity or an activation.
    if len(children) == 1 and next(module.parameters(recurse=False), None) is None:
        return _blocks(children[0], opened=opened)
    opened = opened or isinstance(module, nn.ModuleList | nn.Sequential)
    found = [block for child in children if opened for block in _blocks(child, opened=False)]
    return found or ([module] if next(module.parameters(), None) is not None else [])
