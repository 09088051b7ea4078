"""SimCLR: contrasts two views of every image with all other views in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
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
    takes_small_crops = True
    needs_labels: ClassVar[bool] = False

    def forward(
        self,
        view_a: Tensor,
        view_b: Tensor,
        *,
        index: Tensor | None = None,
        labels: Tensor | None = None,
        small: Sequence[Tensor] = (),
    ) -> Tensor:
        """Returns the loss in nats, []: of both views; with small crops the mean over all pairs of which one is large.

        Args:
            view_a: [B, 3, H, W].
            view_b: [B, 3, H, W], another view of the same images.
            index: [B] positions in the data set, for strategies that use them.
            labels: [B] classes, likewise, and the keys of terms on negatives that read some.
            small: small crops of the same images, each [B, 3, h, w].

        Raises:
            ShapeError: the views have different shapes.
            ConfigError: there are small crops, and the loss has a state of each image, which a step must update once; or SupCon
                has no labels.
        """
        if self.needs_labels and labels is None:
            raise ConfigError(f"{self.title} needs labels, the class of every image: pass labels=, or use SimCLR.")
        if view_a.shape != view_b.shape:
            raise ShapeError(f"view_b of shape {list(view_b.shape)} must have view_a's shape {list(view_a.shape)}.")
        self.check_small_crops(small)
        large = self._seen([view_a, view_b])
        pairs = [(one, other) for other in (self._seen(small) if small else ()) for one in large] + [tuple(large)]
        losses = []
        for (first, unsure), (second, less) in pairs:
            uncertainty = None if self.uncertainty_head is None else (unsure, less)
            known = self.loss_fn.accepted(index=index, labels=labels, uncertainty=uncertainty, keys=labels)
            losses.append(self.loss_fn(first, second, **known))
        return torch.stack(losses).mean()

    def _seen(self, views: Sequence[Tensor]) -> list[tuple[list[Tensor], Tensor | None]]:
        """Returns the embeddings of each head, and the uncertainty, of each view; all go through the backbone as one batch."""
        representations = self.backbone(torch.cat(list(views)))
        heads = [each.chunk(len(views)) for each in project(self.projection_head, representations)]
        unsure: Sequence[Tensor | None] = [None] * len(views)
        if self.uncertainty_head is not None:
            unsure = self.uncertainty_head(representations).squeeze(1).chunk(len(views))
        return [([each[place] for each in heads], unsure[place]) for place in range(len(views))]


__all__ = ["SimCLR"]
