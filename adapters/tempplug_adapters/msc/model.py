"""MSC's training step: two views of normal images relative to the centre of the normal class, and a contrastive loss.

A pretrained network maps the images of one class to a small region of the sphere. A standard contrastive loss would spread them
over the whole sphere, which makes anomalies harder to detect; relative to their centre, they are already spread.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug import ContrastiveLoss


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
