"""The dense engine: the whole matrix at once, in a few lines of plain torch; autograd does the backward pass."""

from __future__ import annotations

import torch

from tempplug.roles import Block
from tempplug.strategies.maps import LogitMap
from tempplug.types import NOTHING, RowStatistics, Wanted


def dense_statistics(block: Block, logit_map: LogitMap, rows: slice = slice(None), wanted: Wanted = NOTHING) -> RowStatistics:
    """Returns the statistics of every row, or of some.

    Args:
        block: anchors, candidates and their roles.
        logit_map: of this batch, not yet bound to a tile.
        rows: the anchors that are wanted.
        wanted: what beside the log-sum-exps.
    """
    roles = block.roles
    columns = slice(roles.negatives_start, None)
    similarity = block.anchors[rows] @ block.candidates[columns].T
    logits = logit_map.at(rows, columns).logit(similarity)
    indices = roles.tile(rows, columns)
    # Map first, mask second: a mask of -inf before the division by a learned temperature makes its gradient NaN.
    left_out = ~roles.negative(*indices)
    lonely = None if roles.lonely is None else roles.lonely[rows]
    if lonely is not None:
        # Over everything first, and then none: an empty log-sum-exp has NaN for a gradient, which anomaly detection reports.
        left_out.masked_fill_(lonely[:, None], False)
    masked = logits.masked_fill(left_out, -torch.inf)
    negative_lse = torch.logsumexp(masked, 1)
    if lonely is not None:
        negative_lse = negative_lse.masked_fill(lonely, -torch.inf)
    mean_negative = (torch.softmax(masked, 1) * similarity).sum(1) if wanted.negative_similarity else None
    top_logits = None
    if wanted.top:
        order = similarity.detach().masked_fill(left_out, -torch.inf).topk(min(wanted.top, similarity.shape[1]), 1).indices
        top_logits = logits.gather(1, order)
    negative_count = roles.negative_count()[rows]

    if roles.positives is not None:
        anchors = indices[0].squeeze(1)
        positive_similarity = torch.linalg.vecdot(block.anchors[rows], block.candidates[roles.positives.columns(anchors)])
        pairs = logit_map.at(anchors, roles.positives.columns(anchors), paired=True)
        positive_logit = pairs.logit(positive_similarity)
        return RowStatistics(
            positive_logit=positive_logit,
            positive_similarity=positive_similarity,
            positive_lse=positive_logit,
            negative_lse=negative_lse,
            positive_count=roles.positive_count()[rows],
            negative_count=negative_count,
            negative_similarity=mean_negative,
            top_logits=top_logits,
        )

    positive = roles.positive(*indices)
    count = roles.positive_count()[rows]
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
        top_logits=top_logits,
    )
