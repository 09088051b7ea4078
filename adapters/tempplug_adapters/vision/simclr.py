"""SimCLR: contrasts two views of every image with all other views in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, NegativeTerm, Objective, Strategy
from tempplug.errors import ShapeError
from tempplug.strategies.uncertainty import Uncertainty
from tempplug.types import EngineName, LayoutName, ObjectiveName
from tempplug_adapters.vision.step_module import StepModule, project


class SimCLR(StepModule):
    """NT-Xent over both views of a batch, with any temperature strategy.

    Both views go through the backbone as one batch, as in the authors' code: half the calls, and batch normalisation sees
    both views at once (lightly makes two passes). Across processes, convert it to `nn.SyncBatchNorm` for the same reason.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings, or an `nn.ModuleList` of several, whose losses are summed.
        strategy: spec string or instance. ``uncertainty`` (TaU) adds a linear layer from representations to its scalar.
        objective: spec string or instance.
        negatives: terms on negatives, as in `tempplug.ContrastiveLoss`.
        gather: candidates of all processes.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        uncertainty_head: the layer of ``uncertainty``, else None.

    Raises:
        ConfigError: the backbone has no dimension, or an option is not allowed.
        UnknownNameError: no such strategy, objective or option.

    Source: Chen et al. 2020. The value is the mean over both directions, as in the paper; the authors' code returns their sum.

    >>> backbone = nn.Flatten()
    >>> backbone.dimension = 12
    >>> SimCLR(backbone, nn.Linear(12, 4), "macl")(torch.rand(8, 3, 2, 2), torch.rand(8, 3, 2, 2)).shape
    torch.Size([])
    """

    layout: ClassVar[LayoutName] = "two-view"
    loss_fn: ContrastiveLoss

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        *,
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        gather: bool = False,
        engine: EngineName = "auto",
    ) -> None:
        super().__init__(backbone, projection_head)
        self.loss_fn = ContrastiveLoss(strategy, objective, self.layout, negatives=negatives, gather=gather, engine=engine)
        uncertain = isinstance(self.loss_fn.strategy, Uncertainty)
        self.uncertainty_head = nn.Linear(self.dimension, 1) if uncertain else None

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
            raise ShapeError(
                f"view_b of shape {list(view_b.shape)} must have view_a's shape {list(view_a.shape)}: both are one batch."
            )
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
