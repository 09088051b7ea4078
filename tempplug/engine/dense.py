"""The dense engine: the whole matrix at once, in a few lines of plain torch; autograd does the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import RowStatistics


def dense_statistics(
    anchors: Tensor, candidates: Tensor, roles: PairRoles, logit_map: LogitMap, *, negative_similarity: bool = False
) -> RowStatistics:
    """Returns the statistics of every row.

    Args:
        anchors: [N, D] unit rows, at least float32.
        candidates: [M, D] unit rows.
        roles: of the N×M pairs; every anchor has a negative.
        logit_map: of this batch, not yet bound to a tile.
        negative_similarity: whether to return the softmax-weighted mean similarity of the negatives.
    """
    columns = slice(roles.negatives_start, None)
    similarity = anchors @ candidates[columns].T
    logits = logit_map.at(slice(None), columns).logit(similarity)
    indices = roles.tile(slice(None), columns)
    negative = roles.negative(*indices)
    # Map first, mask second: a mask of -inf before the division by a learned temperature makes its gradient NaN.
    masked = logits.masked_fill(~negative, -torch.inf)
    negative_lse = torch.logsumexp(masked, 1)
    mean_negative = (torch.softmax(masked, 1) * similarity).sum(1) if negative_similarity else None
    negative_count = negative.sum(1)

    if roles.positive_index is not None:
        pairs = torch.arange(roles.anchors, device=roles.device), roles.positive_index
        positive_similarity = (anchors * candidates[roles.positive_index]).sum(1)
        positive_logit = logit_map.at(*pairs, paired=True).logit(positive_similarity)
        return RowStatistics(
            positive_logit=positive_logit,
            positive_similarity=positive_similarity,
            positive_lse=positive_logit,
            negative_lse=negative_lse,
            positive_count=torch.ones_like(negative_count),
            negative_count=negative_count,
            negative_similarity=mean_negative,
        )

    positive = roles.positive(*indices)
    count = positive.sum(1)
    divisor = count.clamp(min=1)
    # A row without positives takes its log-sum-exp over everything: finite, and dropped by whoever averages the rows.
    counted = positive | (count == 0)[:, None]
    return RowStatistics(
        positive_logit=torch.where(positive, logits, 0.0).sum(1) / divisor,
        positive_similarity=torch.where(positive, similarity, 0.0).sum(1) / divisor,
        positive_lse=torch.logsumexp(logits.masked_fill(~counted, -torch.inf), 1),
        negative_lse=negative_lse,
        positive_count=count,
        negative_count=negative_count,
        negative_similarity=mean_negative,
    )
