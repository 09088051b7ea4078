"""The dense engine: the whole matrix at once, in a few lines of plain torch; autograd does the backward pass."""

from __future__ import annotations

import torch

from tempplug.roles import Block
from tempplug.strategies.maps import LogitMap
from tempplug.types import RowStatistics


def dense_statistics(block: Block, logit_map: LogitMap, *, negative_similarity: bool = False) -> RowStatistics:
    """Returns the statistics of every row.

    Args:
        block: anchors, candidates and their roles.
        logit_map: of this batch, not yet bound to a tile.
        negative_similarity: whether to return the softmax-weighted mean similarity of the negatives.
    """
    roles = block.roles
    columns = slice(roles.negatives_start, None)
    similarity = block.anchors @ block.candidates[columns].T
    logits = logit_map.at(slice(None), columns).logit(similarity)
    indices = roles.tile(slice(None), columns)
    # Map first, mask second: a mask of -inf before the division by a learned temperature makes its gradient NaN.
    masked = logits.masked_fill(~roles.negative(*indices), -torch.inf)
    negative_lse = torch.logsumexp(masked, 1)
    mean_negative = (torch.softmax(masked, 1) * similarity).sum(1) if negative_similarity else None

    if roles.positives is not None and block.positive_similarity is not None:
        rows = torch.arange(roles.anchors, device=roles.device)
        positive_logit = logit_map.at(rows, roles.positives.columns(rows), paired=True).logit(block.positive_similarity)
        return RowStatistics(
            positive_logit=positive_logit,
            positive_similarity=block.positive_similarity,
            positive_lse=positive_logit,
            negative_lse=negative_lse,
            positive_count=roles.positive_count(),
            negative_count=roles.negative_count(),
            negative_similarity=mean_negative,
        )

    positive = roles.positive(*indices)
    count = roles.positive_count()
    divisor = count.clamp(min=1)
    # A row without positives takes its log-sum-exp over everything: finite, and dropped by whoever averages the rows.
    counted = positive | (count == 0)[:, None]
    return RowStatistics(
        positive_logit=torch.where(positive, logits, 0.0).sum(1) / divisor,
        positive_similarity=torch.where(positive, similarity, 0.0).sum(1) / divisor,
        positive_lse=torch.logsumexp(logits.masked_fill(~counted, -torch.inf), 1),
        negative_lse=negative_lse,
        positive_count=count,
        negative_count=roles.negative_count(),
        negative_similarity=mean_negative,
    )
