"""SimCLR: contrasts two views of every image with all other views in the batch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from tempplug.errors import ShapeError
from tempplug.types import LayoutName
from tempplug_adapters.vision.step_module import WithSoftmax, project


class SimCLR(WithSoftmax):
    """NT-Xent over both views of a batch, with any temperature strategy.

    Both views go through the backbone as one batch, as in the authors' code: half the calls, and batch normalisation sees
    both views at once (lightly makes two passes). Across processes, convert it to `nn.SyncBatchNorm` for the same reason.

    Its arguments and errors are those of `WithSoftmax`. Strategy ``uncertainty`` (TaU) adds a linear layer from representations
    to its scalar.

    Source: Chen et al. 2020. The value is the mean over both directions, as in the paper; the authors' code returns their sum.

    >>> from torch import nn
    >>> backbone = nn.Flatten()
    >>> backbone.dimension = 12
    >>> SimCLR(backbone, nn.Linear(12, 4), "macl")(torch.rand(8, 3, 2, 2), torch.rand(8, 3, 2, 2)).shape
    torch.Size([])
    """

    layout: ClassVar[LayoutName] = "two-view"
    title = "SimCLR"
    uncertain = True

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            view_a: [B, 3, H, W].
            view_b: [B, 3, H, W], another view of the same images.
            index: [B] positions in the data set, for strategies that use them.
            labels: [B] classes, likewise, and the keys of terms on negatives that read some.

        Raises:
            ShapeError: the views have different shapes.
        """
        if view_a.shape != view_b.shape:
            raise ShapeError(f"view_b of shape {list(view_b.shape)} must have view_a's shape {list(view_a.shape)}.")
        representations = self.backbone(torch.cat([view_a, view_b]))
        pairs = [each.chunk(2) for each in project(self.projection_head, representations)]
        uncertainty = None
        if self.uncertainty_head is not None:
            uncertainty = self.uncertainty_head(representations).squeeze(1).chunk(2)
        loss: Tensor = self.loss_fn(
            [first for first, _ in pairs],
            [second for _, second in pairs],
            **self.loss_fn.accepted(index=index, labels=labels, uncertainty=uncertainty, keys=labels),
        )
        return loss


__all__ = ["SimCLR"]
