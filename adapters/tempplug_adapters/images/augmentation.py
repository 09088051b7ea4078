"""Random views of images by the recipes of the papers, for a whole batch at once on its device.

Kornia computes them. Every image has its own random choices, from PyTorch's global CPU generator, so that a seed gives the same
views on any device. Pixels stay in [0, 1]; the backbone normalises them. This module must not depend on data sets or models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, MissingDependencyError, ShapeError, install_command, nearest, unknown
from tempplug.options import Number, check_fields

BLUR_SIGMA: Final = (0.1, 2.0)
"""Range of a blur's standard deviation, in pixels."""


@dataclass(frozen=True)
class AugmentationRecipe:
    """The numbers of one recipe, in the order in which they are applied.

    Attributes:
        crop_scale: smallest and largest share of the area that a random crop keeps; its width is 3/4 to 4/3 of its height.
        interpolation: how the crop is resized, ``bilinear`` or ``bicubic``.
        flip: probability of a horizontal flip.
        jitter: how far brightness, contrast and saturation, as factors around 1, and hue, in turns, are changed at most.
        jitter_probability: that an image's colours are changed, in a random order of the four changes.
        grey: probability of greyscale.
        blur: probability of a Gaussian blur with a deviation from `BLUR_SIGMA`.
        blur_share: share of the image's side that the blur's kernel covers. A tenth truncates a wide blur on small images and
            leaves images of less than 20 pixels sharp. None: three deviations to each side, or up to the image's width.
    """

    crop_scale: tuple[float, float] = (0.08, 1.0)
    interpolation: str = "bilinear"
    flip: float = 0.0
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.0
    grey: float = 0.0
    blur: float = 0.0
    blur_share: float | None = None


_MOCO_V2 = AugmentationRecipe((0.2, 1.0), flip=0.5, jitter_probability=0.8, grey=0.2, blur=0.5)

RECIPES: Final = {
    "simclr": AugmentationRecipe(
        flip=0.5, jitter=(0.8, 0.8, 0.8, 0.2), jitter_probability=0.8, grey=0.2, blur=0.5, blur_share=0.1
    ),
    "simclr-cifar": AugmentationRecipe(flip=0.5, jitter_probability=0.8, grey=0.2),
    "moco-v2": _MOCO_V2,
    "msc": _MOCO_V2,
    "crop": AugmentationRecipe((0.3, 1.0)),
    "long-tail": AugmentationRecipe((0.1, 1.0), "bicubic", flip=0.5, jitter_probability=0.8, grey=0.2),
    "amcl-a": AugmentationRecipe(),
    "amcl-ab": AugmentationRecipe(blur=0.5),
    "amcl-abc": AugmentationRecipe(blur=0.5, grey=0.2),
    "amcl-abcd": AugmentationRecipe(blur=0.5, grey=0.2, jitter_probability=0.8),
    "amcl-abcde": AugmentationRecipe(blur=0.5, grey=0.2, jitter_probability=0.8, flip=0.5),
}
"""By name. The letters of AMCL's Table 6 are a crop, b blur, c greyscale, d colour jitter, e flip; these five were measured.
``crop`` is of no paper: it keeps small grey images, such as digits, unflipped and unchanged in brightness.

Source: Chen et al. 2020 (SimCLR), appendix A, with its code's kernel of a tenth of the image; for CIFAR as Manna et al.
(DySTreSS). Chen et al. 2020 (MoCo v2). Reiss and Hoshen 2023 (MSC). Kukleva et al. 2023 and Jiang et al. 2021 (SDCLR) for
long tails. Wang et al. 2024 (AMCL), Table 6, which lists the changes without numbers: those are of its base's code.
The code of MoCo v2, MSC and AMCL's base blurs with Pillow, which does not truncate. Crops are bilinear, torchvision's default,
unless the code of a paper differs; SimCLR's own is bicubic.
"""

UNCHANGED: Final = "none"
"""The recipe without randomness: the middle square, resized."""


def create_augmentation(recipe: str, size: int) -> nn.Module:
    """Returns a module that makes a view of every image of a batch.

    It takes float images [B, 3, H, W] in [0, 1] of any height and width, on any device, in any memory format, and returns
    float32 [B, 3, size, size] in [0, 1]; it computes in float32 also under autocast, and without gradients. Images larger
    than ``size`` are not smoothed before a crop is made smaller: load them at about this size.

    Args:
        recipe: one of `RECIPES`, or ``none`` for the resized middle square without randomness; with options of
            `create_small_crops`, which make this view a large crop.
        size: pixels of each side of a view.

    Returns:
        A module without parameters and state; its ``forward`` raises `ShapeError` and `ConfigError` for other images.

    Raises:
        UnknownNameError: no recipe of that name.
        ConfigError: the size is not at least 1, or an option is out of range.
        MissingDependencyError: kornia is not installed.

    Example:
        >>> import torch
        >>> augmentation = create_augmentation("simclr-cifar", 32)
        >>> augmentation(torch.rand(4, 3, 48, 40)).shape
        torch.Size([4, 3, 32, 32])
    """
    name, crops = _with_crops(recipe)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f"size={size} of the augmentation '{recipe}' must be a whole number of pixels, at least 1.")
    if name == UNCHANGED:
        return Augmentation([_MiddleSquare(size)], size)
    settings = RECIPES[name] if crops is None else replace(RECIPES[name], crop_scale=(crops.scale, 1.0))
    return Augmentation(_steps(settings, size), size)


def create_small_crops(recipe: str, size: int) -> tuple[int, nn.Module] | None:
    """Returns the number of small crops of each image, and the module that makes one; None where the recipe has none.

    ``simclr:small=6`` makes 6 small crops beside two large ones; ``size`` are the pixels of each side (3/7 of a view's, as 96
    of 224), ``scale`` the share of the area that large crops exceed and small ones keep at most, at least 0.05 (0.14).

    Args:
        recipe: as in `create_augmentation`.
        size: pixels of each side of a view.

    Raises:
        TempplugError: as there.

    Source: Caron et al. 2020 (SwAV), multi-crop, with its scales.

    >>> count, module = create_small_crops("simclr-cifar:small=6,size=16", 32)
    >>> count, module(torch.rand(4, 3, 40, 40)).shape
    (6, torch.Size([4, 3, 16, 16]))
    """
    name, crops = _with_crops(recipe)
    if crops is None:
        return None
    side = crops.size or max(1, round(size * 3 / 7))
    return crops.small, Augmentation(_steps(replace(RECIPES[name], crop_scale=(_SMALLEST, crops.scale)), side), side)


_SMALLEST = 0.05


@dataclass(frozen=True)
class _Crops:
    small: Annotated[int, Number(at_least=1, integer=True)] = 0
    size: Annotated[int | None, Number(at_least=1, integer=True, optional=True)] = None
    scale: Annotated[float, Number(above=_SMALLEST, below=1)] = 0.14

    def __post_init__(self) -> None:
        check_fields(self, "small crops")


def _with_crops(recipe: str) -> tuple[str, _Crops | None]:
    """Returns the name of a recipe and its small crops."""
    name, options = parse_spec(recipe)
    if name != UNCHANGED and name not in RECIPES:
        raise unknown("augmentation", name, (*RECIPES, UNCHANGED))
    allowed = () if name == UNCHANGED else tuple(each.name for each in fields(_Crops))
    for option in options:
        if option not in allowed:
            has = f"{nearest(option, allowed)} It has: {', '.join(allowed)}"
            raise ConfigError(f"augmentation '{name}' has no option '{option}'.{has}.")
    return name, _Crops(**options) if options else None


class Augmentation(nn.Module):
    """Steps applied one after the other in float32, after checks of the images.

    Args:
        steps: modules from images [B, 3, H, W] to images; together they make them square.
        size: pixels of each side of a view.
    """

    def __init__(self, steps: list[nn.Module], size: int) -> None:
        super().__init__()
        self.steps = nn.Sequential(*steps)
        self.size = size

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Returns a view of every image, [B, 3, size, size] float32 in [0, 1].

        Args:
            images: [B, 3, H, W] float in [0, 1].

        Raises:
            ShapeError: they have another shape or type.
            ConfigError: a value is not in [0, 1]; not checked on an accelerator, which it would synchronise.
        """
        _check(images)
        if not len(images):
            return torch.empty((0, 3, self.size, self.size), device=images.device)
        with torch.autocast(images.device.type, enabled=False):
            views: Tensor = self.steps(images.float().clamp(0, 1))
            return views.clamp(0, 1)


class _MiddleSquare(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = images[:, :, top : top + side, left : left + side]
        if side == self.size:
            return square
        return functional.interpolate(square, (self.size, self.size), mode="bicubic", antialias=True)


class ColorJitter(nn.Module):
    """Changes brightness, contrast, saturation and hue of some images, in a random order for each image.

    By hand, because kornia's own jitter draws one order for a whole batch; torchvision's, which the papers use, draws one for
    each image.

    Args:
        brightness: x draws factors from max(0, 1 - x) to 1 + x.
        contrast: likewise.
        saturation: likewise.
        hue: x draws turns from -x to x; at most 1/2.
        probability: that an image is changed at all.

    Source: torchvision's ``ColorJitter``, whose formulas kornia's functions follow.
    """

    def __init__(self, brightness: float, contrast: float, saturation: float, hue: float, *, probability: float) -> None:
        super().__init__()
        self.factors = tuple((max(0.0, 1 - reach), 1 + reach) for reach in (brightness, contrast, saturation))
        self.turns = hue
        self.probability = probability
        from kornia.enhance import (
            adjust_brightness_accumulative,
            adjust_contrast_with_mean_subtraction,
            adjust_hue,
            adjust_saturation_with_gray_subtraction,
        )

        factors = adjust_brightness_accumulative, adjust_contrast_with_mean_subtraction, adjust_saturation_with_gray_subtraction
        self.changes = (*factors, adjust_hue)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the images, some with other colours, [B, 3, H, W].

        Args:
            images: [B, 3, H, W] float in [0, 1].
        """
        count = len(images)
        changed = torch.rand(count) < self.probability
        order = torch.rand(count, len(self.changes)).argsort(1)
        amounts = [torch.empty(count).uniform_(low, high) for low, high in self.factors]
        amounts.append(torch.empty(count).uniform_(-self.turns, self.turns) * (2 * math.pi))
        images = images.clamp(0, 1)  # a bicubic crop leaves the range; also the copy that is written to below
        for place in range(len(self.changes)):
            for kind, change in enumerate(self.changes):
                rows = (changed & (order[:, place] == kind)).nonzero()[:, 0]
                if len(rows):
                    there = rows.to(images.device)
                    images[there] = change(images[there], amounts[kind][rows].to(images))
        return images


def _steps(recipe: AugmentationRecipe, size: int) -> list[nn.Module]:
    try:
        from kornia import augmentation as kornia
    except ImportError as error:
        remedy = install_command("vision")
        raise MissingDependencyError(f"the augmentation of images needs kornia, which is not installed: {remedy}.") from error
    # as torchvision: pixels are areas, not points
    crop: dict[str, Any] = {"resample": recipe.interpolation, "cropping_mode": "slice", "align_corners": False}
    steps: list[nn.Module] = [kornia.RandomResizedCrop((size, size), scale=recipe.crop_scale, **crop)]
    if recipe.flip:
        steps.append(kornia.RandomHorizontalFlip(p=recipe.flip))
    if recipe.jitter_probability:
        steps.append(ColorJitter(*recipe.jitter, probability=recipe.jitter_probability))
    if recipe.grey:
        steps.append(kornia.RandomGrayscale(p=recipe.grey))
    # an odd number of pixels, and at most as many as the image has
    reach = min(math.ceil(3 * BLUR_SIGMA[1]), (size - 1) // 2)
    taps = 2 * (reach if recipe.blur_share is None else int(size * recipe.blur_share / 2)) + 1
    if recipe.blur and taps > 1:
        steps.append(kornia.RandomGaussianBlur((taps, taps), BLUR_SIGMA, p=recipe.blur))
    return steps


_ROUNDING = 1e-2  # of a bicubic resize, or of 16-bit floats


def _check(images: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or 0 in images.shape[2:] or not images.is_floating_point():
        wanted = "float [B, 3, H, W] in [0, 1]; 8-bit images are divided by 255"
        raise ShapeError(f"images {list(images.shape)} {images.dtype} must be {wanted}.")
    if images.device.type == "cpu" and len(images):
        low, high = (float(end) for end in images.aminmax())
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
            raise ConfigError(f"images from {low:g} to {high:g} must lie in [0, 1]: augment them before they are normalised.")
