"""Backbones: networks from images in [0, 1] to representations [B, F], by name or wrapped around any module.

Normalisation is inside, so data and augmentations do without it. It must not depend on training methods or losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, ShapeError, TempplugError, UnknownNameError, listed, nearest
from tempplug_adapters.images.networks import (
    LIBRARIES,
    RESNETS,
    VITS,
    create_installed,
    create_resnet,
    create_vit,
    trained_normalisation,
)
from tempplug_adapters.modes import evaluating
from tempplug_adapters.own_modules import create_module, find

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue in [0, 1]."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue in [0, 1]."""

BACKBONES = (*RESNETS, *VITS)
"""Names of the networks that need only transformers."""

_PROBE_SIZES = (32, 224)


class Backbone(nn.Module):
    """Maps images to representations [B, F]: normalises the images, runs the module and pools its output.

    The output may be a tensor [B, F], or [B, F, h, w], which is averaged over positions, or an output object of transformers.
    Of the latter, the pooled output is used if there is one, else the mean of the last hidden state; but the class token of
    a vision transformer without a pooler, or with that of its pre-training (linear and tanh, random in most checkpoints).

    Args:
        module: any network of images [B, C, H, W].
        mean: of each channel, subtracted from images in [0, 1]; ImageNet's by default.
        std: of each channel, by which they are then divided, greater than 0.
        dimension: F; None: found with one black image, of the size that the module's configuration names, else of 32 x 32
            pixels, or of 224 x 224 where the module refuses that.
        image_size: of that image, if its configuration names none; None: as above.

    Raises:
        ConfigError: mean and std do not fit each other, a std is not greater than 0, the dimension is less than 1, or it was
            not given and the module cannot run on the image.
        ShapeError: the output for the image is of another kind.

    >>> import torch
    >>> Backbone(torch.nn.Conv2d(3, 5, kernel_size=3)).dimension
    5
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        module: nn.Module,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        *,
        dimension: int | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ConfigError(f"mean={tuple(mean)} and std={tuple(std)} of a backbone need one number for each channel.")
        if not all(each > 0 for each in std):
            raise ConfigError(f"std={tuple(std)} of a backbone must be greater than 0.")
        if dimension is not None and dimension < 1:
            raise ConfigError(f"dimension={dimension} of a backbone must be at least 1.")
        self.module = module
        device = next((each.device for each in module.parameters()), None)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32, device=device).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32, device=device).view(-1, 1, 1))
        self.dimension = self._probe(image_size) if dimension is None else dimension

    def forward(self, images: Tensor) -> Tensor:
        """Returns the representations, [B, F].

        Args:
            images: [B, C, H, W], floating point, in [0, 1].

        Raises:
            ShapeError: the images have another shape or are integers, or the module's output has another shape.
            ConfigError: the module's configuration requires another size of images.
        """
        if images.ndim != 4 or images.shape[1] != len(self.mean):
            raise ShapeError(f"images has shape {tuple(images.shape)}, but the backbone takes [B, {len(self.mean)}, H, W].")
        if not images.is_floating_point():
            raise ShapeError(f"images has dtype {images.dtype}, but the backbone takes numbers in [0, 1]: divide bytes by 255.")
        try:
            output = self.module((images - self.mean) / self.std)
        except ValueError as error:  # of a vision transformer with too few positions
            self._check_size(images, error)
            raise
        return self._pooled(output)

    def _check_size(self, images: Tensor, cause: ValueError) -> None:
        """Raises ConfigError if the module's configuration has another size than the images."""
        size = getattr(getattr(self.module, "config", None), "image_size", None)
        wanted = (size, size) if isinstance(size, int) else size
        given = tuple(images.shape[2:])
        if wanted is not None and tuple(wanted) != given and not isinstance(cause, TempplugError):
            takes = f"which takes images of {wanted[0]}x{wanted[1]} pixels ({str(cause).rstrip('. ')})"
            fault = f"image_size={given[0]}x{given[1]} does not fit {type(self.module).__name__}, {takes}"
            raise ConfigError(f"{fault}: set image_size={wanted[0]}.") from cause

    def _pooled(self, output: Any) -> Tensor:
        name, values = ("output", output) if isinstance(output, Tensor) else self._chosen(output)
        if values.ndim == 2:
            return values
        if values.ndim == 4:
            return values.mean((2, 3))
        if values.ndim == 3 and name == "last_hidden_state":
            return values.mean(1)
        raise self._unfit(f"{name} of shape {tuple(values.shape)}", "[B, F] or [B, F, h, w]")

    def _unfit(self, given: str, wanted: str) -> ShapeError:
        remedy = f"a backbone needs {wanted}: wrap it in a module that gives one of them"
        return ShapeError(f"{type(self.module).__name__} gave {given}, but {remedy}.")

    def _chosen(self, output: Any) -> tuple[str, Tensor]:
        pooled, last = getattr(output, "pooler_output", None), getattr(output, "last_hidden_state", None)
        of_pretraining = hasattr(getattr(self.module, "pooler", None), "dense")
        has_class_token = isinstance(getattr(getattr(self.module, "embeddings", None), "cls_token", None), Tensor)
        if isinstance(last, Tensor) and last.ndim == 3 and has_class_token and (pooled is None or of_pretraining):
            return "class token", last[:, 0]
        for name, each in (("pooler_output", pooled), ("last_hidden_state", last)):
            if isinstance(each, Tensor):
                return name, each
        raise self._unfit(f"a {type(output).__name__}", "a tensor, or an output with pooler_output or last_hidden_state")

    def _probe(self, image_size: int | None) -> int:
        """Returns the width of the representations; modes, statistics and random states stay unchanged."""
        named = getattr(getattr(self.module, "config", None), "image_size", image_size)
        with evaluating(self):
            for size in _PROBE_SIZES if named is None else (named,):
                height, width = (size, size) if isinstance(size, int) else size
                try:
                    with torch.no_grad():
                        return int(self(torch.zeros(1, len(self.mean), height, width, device=self.mean.device)).shape[1])
                except ShapeError:
                    raise
                except (RuntimeError, ValueError, AssertionError, TypeError) as error:
                    cause = error
        failed = f"{type(self.module).__name__} cannot run on an image of {height} x {width} pixels ({cause})"
        raise ConfigError(f"{failed}: pass dimension=, the width of its representations.") from cause


_KNOWN = f"Known: {listed(BACKBONES, 30)}, {', '.join(f'{each}:NAME' for each in LIBRARIES)} and MODULE:NAME."
_CONTRACT = "A backbone takes images [B, 3, H, W], normalised, and returns [B, F] or [B, F, h, w]."


def is_own(name: str) -> bool:
    """Returns whether a name is ``MODULE:NAME``, a module of the user. Its import runs code."""
    library, separator, _ = name.partition(":")
    return bool(separator) and library not in LIBRARIES and not Path(name).exists()


def create_backbone(
    name: str,
    *,
    stem: str | None = None,
    width: int | None = None,
    image_size: int | None = None,
    patch_size: int | None = None,
    zero_init_residual: bool = False,
    pretrained: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Backbone:
    """Returns the backbone of that name.

    Args:
        name: ``resnet18``, ``resnet34``, ``resnet50``, ``resnet101``, ``resnet152``, ``vit-tiny``, ``vit-small``, ``vit-base``
            (random weights); ``transformers:NAME`` with a folder or a name on the Hugging Face hub (its weights); or
            ``timm:NAME``, ``torchvision:NAME``, ``lightly:NAME`` if that package is installed; or ``MODULE:NAME`` or
            ``MODULE:NAME:key=value`` of any module, or class or function that makes one (see `find`), called with the
            ``image_size`` if it takes that.
        stem: of a ResNet: ``imagenet`` (None) or ``cifar``, see `create_resnet`.
        width: of a ResNet: channels of the first stage; None: 64.
        image_size: of a ViT, or for a module of the user: height and width of the images; None: 224.
        patch_size: of a ViT; None: fits the image size, see `create_vit`.
        zero_init_residual: of a ResNet, see `create_resnet`.
        pretrained: of ``timm:`` and ``torchvision:``: with the weights of the package.
        mean: see `Backbone`; None: that of the network's training, see `trained_normalisation`, else ImageNet's.
        std: as ``mean``.

    Raises:
        UnknownNameError: there is no such backbone.
        ConfigError: an option is out of range, or is of another kind of backbone.
        MissingDependencyError: the package is not installed.

    >>> create_backbone("resnet18", stem="cifar", width=16).dimension
    128
    """
    options = {"stem": stem, "width": width, "image_size": image_size, "patch_size": patch_size}
    options |= {"zero_init_residual": zero_init_residual or None, "pretrained": pretrained or None}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    library, separator, _ = name.partition(":")
    make: Callable[..., nn.Module] = create_installed
    allowed: tuple[str, ...] = ("pretrained",) if library in ("timm", "torchvision") else ()
    if name in RESNETS:
        make, allowed = create_resnet, ("stem", "width", "zero_init_residual")
    elif name in VITS:
        make, allowed = create_vit, ("image_size", "patch_size")
    elif is_own(name):
        return _own(name, image_size, mean, std)
    elif library not in LIBRARIES or not separator:
        raise UnknownNameError(f"there is no backbone '{name}'.{nearest(name, BACKBONES)} {_KNOWN}")
    if wrong := next((option for option in given if option not in allowed), None):
        raise ConfigError(f"{wrong}={given[wrong]} is no option of '{name}', which takes {', '.join(allowed) or 'none'}.")
    network = make(name, **given)
    own_mean, own_std = trained_normalisation(name, network) or (IMAGENET_MEAN, IMAGENET_STD)
    return Backbone(network, own_mean if mean is None else mean, own_std if std is None else std)


def _own(name: str, image_size: int | None, mean: Sequence[float] | None, std: Sequence[float] | None) -> Backbone:
    try:
        given = find(name, "backbone")
    except ConfigError as error:
        raise ConfigError(f"{str(error).rstrip('.')}. {_KNOWN}") from error
    network = create_module(given, "backbone", {} if image_size is None else {"image_size": image_size})
    if isinstance(network, Backbone):
        return network
    try:
        return Backbone(network, mean or IMAGENET_MEAN, std or IMAGENET_STD, image_size=image_size)
    except (ConfigError, ShapeError) as error:
        raise type(error)(f"backbone '{name}': {error} {_CONTRACT}") from error
