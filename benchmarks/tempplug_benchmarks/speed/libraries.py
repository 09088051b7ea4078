"""The losses of other libraries, called as their users call them.

Each function imports its library when it is called, so that a library that is not installed is missing in its own line of
the table and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# Maps two views of raw embeddings [N, D] to a loss; its backward leaves gradients on the views.
LossFunction = Callable[[Tensor, Tensor], Tensor]


def lightly_nt_xent(temperature: float) -> LossFunction:
    """Returns lightly's NTXentLoss."""
    from lightly.loss import NTXentLoss  # type: ignore[import-not-found, unused-ignore]

    loss: LossFunction = NTXentLoss(temperature=temperature)
    return loss


def lightly_macl(temperature: float) -> LossFunction:
    """Returns lightly's MACLLoss with alpha 0.5 and threshold 0."""
    from lightly.loss import MACLLoss  # type: ignore[import-not-found, unused-ignore]

    loss: LossFunction = MACLLoss(temperature=temperature, alpha=0.5, A_0=0.0)
    return loss


def metric_learning_nt_xent(temperature: float) -> LossFunction:
    """Returns pytorch-metric-learning's NTXentLoss; the two views of a pair share a label."""
    from pytorch_metric_learning.losses import NTXentLoss

    loss = NTXentLoss(temperature=temperature)

    def of_views(view_a: Tensor, view_b: Tensor) -> Tensor:
        labels = torch.arange(len(view_a), device=view_a.device).repeat(2)
        result: Tensor = loss(torch.cat([view_a, view_b]), labels)
        return result

    return of_views


def multiple_negatives_ranking(temperature: float) -> LossFunction:
    """Returns the loss part of sentence-transformers' MultipleNegativesRankingLoss."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    loss = MultipleNegativesRankingLoss(_encoder(), scale=1 / temperature)

    def of_views(view_a: Tensor, view_b: Tensor) -> Tensor:
        return loss.compute_loss_from_embeddings([view_a, view_b], labels=None)  # type: ignore[arg-type]

    return of_views


def cached_multiple_negatives_ranking(temperature: float) -> LossFunction:
    """Returns the loss part of CachedMultipleNegativesRankingLoss with its default mini-batch.

    It goes backward chunk by chunk while it computes the loss, so the gradients are there when it returns and the loss that
    it returns is a leaf. Embedding a second time is no part of the loss and left out.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    loss = CachedMultipleNegativesRankingLoss(_encoder(), scale=1 / temperature)

    def of_views(view_a: Tensor, view_b: Tensor) -> Tensor:
        value = loss.calculate_loss([[view_a], [view_b]], with_backward=True)
        return value.detach().requires_grad_()

    return of_views


def _encoder() -> Any:
    """Returns what the losses of sentence-transformers ask for and, given embeddings, never use."""
    return nn.Sequential(nn.Identity())
