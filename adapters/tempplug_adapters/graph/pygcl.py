"""The contract of PyGCL's losses, so that its contrast models train with any temperature strategy.

PyGCL (the package ``GCL``) hands a loss ``anchor [N, D], sample [M, D], pos_mask [N, M], neg_mask [N, M]``. This module keeps
that contract without importing ``GCL``, whose published wheel does not import on today's stack unless its users repair it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, Objective, Strategy
from tempplug.errors import ConfigError, ShapeError
from tempplug.types import EngineName

# Numbers of a mask that are looked at together.
PART = 1 << 18


class PyGCLLoss(nn.Module):
    """A loss for PyGCL's `DualBranchContrast` and `SingleBranchContrast`, in all modes: L2L, G2G and G2L.

    As a module it becomes part of the contrast model: a learnable temperature is in ``contrast_model.parameters()``, its state
    in ``contrast_model.state_dict()``. Where a pair is in both masks, it is positive; a pair in neither is left out. Anchors
    without a positive leave the mean.

    Args:
        strategy: spec string or instance; how similarities become logits.
        objective: spec string or instance; G2L has several positives an anchor, which not every objective has a form for.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        contrastive_loss: the loss itself: its ``record`` speaks of the last direction, and ``set_progress`` drives schedules.

    Raises:
        UnknownNameError: no such strategy, objective or option.
        ConfigError: an option is not allowed.

    Source: PyGCL 0.1.2, ``GCL.losses.Loss``. With ``fixed`` the value is that of its ``InfoNCE``, but for
    ``intraview_negs=True``: PyGCL's contrast model marks each anchor as its own negative, as GRACE's paper does not, and here
    that pair is left out.

    >>> loss = PyGCLLoss("fixed:temperature=0.5")  # contrast_model = DualBranchContrast(loss, mode="L2L")
    >>> view_a, view_b = torch.eye(4), torch.eye(4).roll(1, 0)
    >>> same = torch.eye(4)
    >>> round(loss(anchor=view_a, sample=view_b, pos_mask=same, neg_mask=1 - same).item(), 4)
    2.3408
    """

    def __init__(
        self, strategy: str | Strategy = "fixed", objective: str | Objective = "infonce", *, engine: EngineName = "auto"
    ) -> None:
        super().__init__()
        self.contrastive_loss = ContrastiveLoss(strategy, objective, "masks", engine=engine)

    def forward(
        self, anchor: Tensor, sample: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None, **given: Any
    ) -> Tensor:
        """Returns `compute` of the same arguments: PyGCL's models call a loss like a function."""
        return self.compute(anchor, sample, pos_mask, neg_mask, **given)

    def compute(
        self, anchor: Tensor, sample: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None, **given: Any
    ) -> Tensor:
        """Returns the mean loss over the anchors, in nats.

        Args:
            anchor: [N, D] raw embeddings.
            sample: [M, D] raw embeddings of the candidates; with intra-view negatives, the anchors stand behind the others.
            pos_mask: [N, M] zeros and ones of any dtype; by default row i belongs to row i.
            neg_mask: [N, M] likewise; by default whatever is not positive.
            given: ``labels``, ``index`` or ``uncertainty`` [N], where the strategy needs them. A contrast model passes on the
                keywords that it was made with.

        Raises:
            ShapeError: shapes do not fit.
            ConfigError: a mask holds something else than zeros and ones, or the objective has no form for these masks.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        anchors, candidates = anchor.shape[0], sample.shape[0]
        if pos_mask is None:
            pos_mask = torch.eye(anchors, candidates, dtype=torch.bool, device=anchor.device)
        positive = _bytes("pos_mask", pos_mask, anchors, candidates)
        negative = positive ^ 1 if neg_mask is None else _bytes("neg_mask", neg_mask, anchors, candidates)
        negative = negative > positive  # of bytes: negative and not positive, in one pass
        # What the model appended is recognised by its values: M = 2N alone may also be two nodes a graph.
        if candidates == 2 * anchors and torch.equal(sample[anchors:], anchor):
            negative[:, anchors:].fill_diagonal_(False)
        roles = {"positive_mask": positive.view(torch.bool), "negative_mask": negative}
        loss: Tensor = self.contrastive_loss(anchor, sample, **roles, **given)
        return loss


def _bytes(name: str, mask: Tensor, anchors: int, candidates: int) -> Tensor:
    """Returns a mask as bytes 0 and 1, after a look at its shape and its values."""
    if tuple(mask.shape) != (anchors, candidates):
        raise ShapeError(
            f"{name} of shape {list(mask.shape)} must be [{anchors}, {candidates}], anchors by samples. "
            "PyGCL's intraview_negs=True makes such masks in mode G2L, where it has no meaning."
        )
    if mask.dtype == torch.bool:
        return mask.view(torch.uint8)
    found = torch.empty(mask.shape, dtype=torch.uint8, device=mask.device)
    # Some rows at a time: what a comparison needs beside the mask stays in the cache.
    height = max(1, PART // candidates)
    for rows, own in zip(torch.split(mask, height), torch.split(found, height), strict=True):
        own.copy_(rows)
        if own.max() > 1 or not torch.equal(own.to(mask.dtype), rows):
            raise ConfigError(
                f"{name} must hold zeros and ones alone: a pair is positive, negative or neither, without weights."
            )
    return found


__all__ = ["PyGCLLoss"]
