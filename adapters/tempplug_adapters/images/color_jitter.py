"""Random changes of brightness, contrast, saturation and hue, each image in an order of its own.

Kornia's own jitter draws one order for a whole batch; torchvision's, which the papers use, draws one for each image. This
module must not know recipes.
"""

from __future__ import annotations

import math

import torch
from kornia import enhance
from torch import Tensor, nn


class ColorJitter(nn.Module):
    """Changes the colours of some images.

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

    def forward(self, images: Tensor) -> Tensor:
        """Returns the images, some with other colours, [B, 3, H, W].

        Args:
            images: [B, 3, H, W] float in [0, 1].
        """
        count = len(images)
        changed = torch.rand(count) < self.probability
        order = torch.rand(count, len(_CHANGES)).argsort(1)
        amounts = [torch.empty(count).uniform_(low, high) for low, high in self.factors]
        amounts.append(torch.empty(count).uniform_(-self.turns, self.turns) * (2 * math.pi))
        images = images.clamp(0, 1)  # a bicubic crop leaves the range; also the copy that is written to below
        for place in range(len(_CHANGES)):
            for kind, change in enumerate(_CHANGES):
                rows = (changed & (order[:, place] == kind)).nonzero()[:, 0]
                if len(rows):
                    there = rows.to(images.device)
                    images[there] = change(images[there], amounts[kind][rows].to(images))
        return images


_CHANGES = (
    enhance.adjust_brightness_accumulative,
    enhance.adjust_contrast_with_mean_subtraction,
    enhance.adjust_saturation_with_gray_subtraction,
    enhance.adjust_hue,
)
