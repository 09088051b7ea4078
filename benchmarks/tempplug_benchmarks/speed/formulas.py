"""Reference losses: eager PyTorch formulas as commonly written in training code, and the losses of other libraries.

A formula maps two views of raw embeddings [N, D] to the mean loss. Libraries are imported when called. This module must not use
tempplug.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Maps two views of raw embeddings [N, D] to a loss; its backward leaves gradients on the views.
LossFunction = Callable[[Tensor, Tensor], Tensor]


def nt_xent(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """SimCLR's loss: cross entropy over the 2N × 2N matrix with its diagonal masked."""
    rows = _both(view_a, view_b)
    return _masked_cross_entropy(rows @ rows.T / temperature)


def grace(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """GRACE's loss: separate between-view and within-view similarities, summed exponentials, both views as anchors."""
    first, second = F.normalize(view_a), F.normalize(view_b)

    def one_side(anchors: Tensor, others: Tensor) -> Tensor:
        same_side = torch.exp(anchors @ anchors.T / temperature)
        between = torch.exp(anchors @ others.T / temperature)
        everything = same_side.sum(1) + between.sum(1) - same_side.diag()
        return -torch.log(between.diag() / everything)

    return ((one_side(first, second) + one_side(second, first)) / 2).mean()


def pygcl_infonce(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """PyGCL's InfoNCE of a dual-branch contrast with intra-view negatives: both dense masks are rebuilt every step."""
    size = view_a.shape[0]

    def one_side(anchors: Tensor, others: Tensor) -> Tensor:
        identity = torch.eye(size, dtype=torch.float32, device=anchors.device)
        positive = torch.cat([identity, torch.zeros_like(identity)], dim=1)
        negative = torch.cat([1 - identity, torch.ones_like(identity) - identity], dim=1)
        samples = torch.cat([others, anchors])
        similarity = F.normalize(anchors) @ F.normalize(samples).T / temperature
        exponentials = torch.exp(similarity) * (positive + negative)
        log_probability = similarity - torch.log(exponentials.sum(dim=1, keepdim=True))
        return -((log_probability * positive).sum(dim=1) / positive.sum(dim=1)).mean()

    return (one_side(view_a, view_b) + one_side(view_b, view_a)) * 0.5


def macl(view_a: Tensor, view_b: Tensor, temperature: float, alpha: float = 0.5) -> Tensor:
    """MACL's loss: the temperature follows the mean similarity of the positives, rows are reweighted (eq. 11)."""
    rows = _both(view_a, view_b)
    similarity = rows @ rows.T
    positive = similarity.gather(1, _partners(rows)[:, None])
    adapted = temperature * (1 + alpha * positive.detach().mean())
    log_probability = -_masked_cross_entropy(similarity / adapted, reduction="none")
    weight = 1 / (1 - log_probability.exp() + 1e-8)
    return -(weight.detach() * log_probability).mean()


def dystress(
    view_a: Tensor, view_b: Tensor, temperature: float = 0.0, temperature_min: float = 0.1, temperature_max: float = 0.2
) -> Tensor:
    """DySTreSS: every pair's temperature is a cosine of its similarity, without gradient; ``temperature`` is not used."""
    rows = _both(view_a, view_b)
    similarity = rows @ rows.T
    cosine = torch.cos(math.pi * (1 + similarity.detach()))
    return _masked_cross_entropy(similarity / (temperature_min + 0.5 * (temperature_max - temperature_min) * (1 + cosine)))


def temperature_free(view_a: Tensor, view_b: Tensor, temperature: float = 0.0, eps: float = 1e-4) -> Tensor:
    """Temperature-Free InfoNCE: logits are log-odds of the similarity, clamped away from ±1; ``temperature`` is not used."""
    rows = _both(view_a, view_b)
    similarity = (rows @ rows.T).clamp(-1 + eps, 1 - eps)
    return _masked_cross_entropy(torch.log((1 + similarity) / (1 - similarity)))


def one_way(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """In-batch negatives in one direction, the formula of multiple-negatives ranking."""
    scores = F.normalize(view_a) @ F.normalize(view_b).T * (1 / temperature)
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def two_way(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """CLIP's loss with one matrix for both directions."""
    scores = F.normalize(view_a) @ F.normalize(view_b).T * (1 / temperature)
    diagonal = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, diagonal) + F.cross_entropy(scores.T, diagonal)) / 2


def open_clip(view_a: Tensor, view_b: Tensor, temperature: float) -> Tensor:
    """open_clip's form of CLIP's loss: a separate matrix product for each direction."""
    first, second, scale = F.normalize(view_a), F.normalize(view_b), 1 / temperature
    diagonal = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(scale * first @ second.T, diagonal) + F.cross_entropy(scale * second @ first.T, diagonal)) / 2


def hard_negatives(view_a: Tensor, view_b: Tensor, temperature: float, *, hard_negatives: Tensor) -> Tensor:
    """One direction with hard negatives appended to the candidates, as in SimCSE's supervised loss."""
    scores = F.normalize(view_a) @ F.normalize(torch.cat([view_b, hard_negatives])).T / temperature
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def queue(view_a: Tensor, view_b: Tensor, temperature: float, *, queue: Tensor) -> Tensor:
    """MoCo's loss: each row against its key and the rows of a queue."""
    anchors, keys = F.normalize(view_a), F.normalize(view_b)
    scores = torch.cat([(anchors * keys).sum(1, keepdim=True), anchors @ F.normalize(queue).T], dim=1) / temperature
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device))


def labels(view_a: Tensor, view_b: Tensor, temperature: float, *, labels: Tensor) -> Tensor:
    """SupCon's loss: all rows of both views are anchors, those of the same class their positives."""
    rows, classes = _both(view_a, view_b), torch.cat([labels, labels])
    logits = rows @ rows.T / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    positive = (classes[:, None] == classes[None, :]) & ~itself
    log_probability = logits - torch.logsumexp(logits.masked_fill(itself, -math.inf), 1, keepdim=True)
    return -((log_probability * positive).sum(1) / positive.sum(1)).mean()


def masks(view_a: Tensor, view_b: Tensor, temperature: float, *, positive_mask: Tensor, negative_mask: Tensor) -> Tensor:
    """PyGCL's InfoNCE of one direction, with positives and negatives given as two masks."""
    logits = F.normalize(view_a) @ F.normalize(view_b).T / temperature
    exponentials = torch.exp(logits) * (positive_mask | negative_mask)
    log_probability = logits - torch.log(exponentials.sum(1, keepdim=True))
    return -((log_probability * positive_mask).sum(1) / positive_mask.sum(1)).mean()


def amcl(view_a: Tensor, view_b: Tensor, temperature: float, *, weight: Tensor, bias: Tensor) -> Tensor:
    """AMCL's loss in its NT-Xent form: the temperature of a pair is 2/(1 + exp⟨φ, φ⟩) + η, where φ is one linear layer."""
    rows = _both(view_a, view_b)
    projected = F.linear(rows, weight, bias)
    adapted = 2 * torch.sigmoid(-(projected @ projected.T)) + temperature
    logits = rows @ rows.T / adapted - (rows.shape[1] / 2 * torch.log(adapted) + 1 / adapted)
    left_out = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    left_out = left_out | left_out.roll(len(rows) // 2, 1)
    positive = logits.gather(1, _partners(rows)[:, None]).squeeze(1)
    return (torch.logsumexp(logits.masked_fill(left_out, -math.inf), 1) - positive).mean()


def _both(view_a: Tensor, view_b: Tensor) -> Tensor:
    return F.normalize(torch.cat([view_a, view_b]))


def _partners(rows: Tensor) -> Tensor:
    """Returns for each of 2N rows the position of its positive."""
    return torch.arange(len(rows), device=rows.device).roll(len(rows) // 2)


def _masked_cross_entropy(logits: Tensor, reduction: str = "mean") -> Tensor:
    itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return F.cross_entropy(logits.masked_fill(itself, -math.inf), _partners(logits), reduction=reduction)


def lightly_nt_xent(temperature: float) -> LossFunction:
    """Returns lightly's NTXentLoss."""
    from lightly.loss import NTXentLoss  # type: ignore[import-not-found, unused-ignore]

    return NTXentLoss(temperature=temperature)  # type: ignore[no-any-return, unused-ignore]


def lightly_macl(temperature: float) -> LossFunction:
    """Returns lightly's MACLLoss with alpha 0.5 and threshold 0."""
    from lightly.loss import MACLLoss  # type: ignore[import-not-found, unused-ignore]

    return MACLLoss(temperature=temperature, alpha=0.5, A_0=0.0)  # type: ignore[no-any-return, unused-ignore]


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

    It computes gradients chunk by chunk together with the loss, and the returned loss is a leaf. The second embedding pass is
    not part of the loss and is left out.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    loss = CachedMultipleNegativesRankingLoss(_encoder(), scale=1 / temperature)

    def of_views(view_a: Tensor, view_b: Tensor) -> Tensor:
        value = loss.calculate_loss([[view_a], [view_b]], with_backward=True)
        return value.detach().requires_grad_()

    return of_views


def _encoder() -> Any:
    """Returns a placeholder for the encoder that sentence-transformers' losses require but do not use with embeddings."""
    return nn.Sequential(nn.Identity())
