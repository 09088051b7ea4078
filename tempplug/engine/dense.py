"""The dense engine: the whole matrix at once, in a few lines of plain torch; autograd does the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.logit_map import LogitMap
from tempplug.term_map import TermMap
from tempplug.types import NOTHING, RowStatistics, Wanted

EVERY = slice(None)


def dense_similarity(block: Block) -> Tensor:
    """Returns the similarities of anchors and candidates, [N, M], without columns that hold no negatives."""
    if block.scores is not None:
        return block.scores
    return block.anchors @ block.candidates[block.roles.negatives_start :].T


def dense_statistics(
    block: Block, logit_map: LogitMap, wanted: Wanted = NOTHING, terms: Sequence[TermMap] = (), similarity: Tensor | None = None
) -> RowStatistics:
    """Returns the statistics of every row; ``similarity`` [N, M] is that of `dense_similarity`, None to have it computed."""
    roles, pair = block.roles, wanted.pair_function
    columns = slice(roles.negatives_start, None)
    if similarity is None:
        similarity = dense_similarity(block)
    logits = logit_map.restrict(EVERY, columns).logit(similarity)
    indices = roles.tile(EVERY, columns)
    of_negatives = logits
    for term in terms:
        of_negatives = of_negatives + term.restrict(EVERY, columns).term(similarity.detach())
    # Map first, mask second: a mask of -inf before the division by a learned temperature makes its gradient NaN.
    left_out = roles.not_negative(*indices)
    without, negative_count = roles.without_negatives, roles.negative_count
    if terms:
        left_out = left_out | (of_negatives.detach() == -torch.inf)
        without = left_out.all(1)
        if wanted.negative_count:
            negative_count = (~left_out).sum(1)
        of_negatives = torch.where(without[:, None], logits, of_negatives)
    if without is not None:
        # Over everything first, and then none: an empty log-sum-exp has NaN for a gradient, which anomaly detection reports.
        left_out.masked_fill_(without[:, None], False)
    masked = of_negatives.masked_fill(left_out, -torch.inf)
    if pair is None:
        negative = torch.logsumexp(masked, 1)
    else:
        negative = torch.where(left_out, 0.0, pair.value(of_negatives + pair.offset(logit_map))).sum(1)
    if without is not None:
        negative = negative.masked_fill(without, -torch.inf if pair is None else 0.0)
    mean_negative = (torch.softmax(masked, 1) * similarity).sum(1).detach() if wanted.negative_similarity else None
    top_logits = None
    if wanted.top:
        order = similarity.detach().masked_fill(left_out, -torch.inf).topk(min(wanted.top, similarity.shape[1]), 1).indices
        top_logits = of_negatives.gather(1, order)
    count = roles.positive_count
    if roles.positives is not None and roles.negatives_start:
        anchors = indices[0].squeeze(1)
        positive_similarity = torch.linalg.vecdot(block.anchors, roles.partners(block.candidates))
        positive_logit = logit_map.restrict(anchors, roles.positives.columns(anchors), paired=True).logit(positive_similarity)
    else:
        # From the matrix, which is there: a compiler finds them on its way over the rows.
        positive = roles.positive(*indices)
        positive_similarity, positive_logit = (
            (values * roles.targets).sum(1) if roles.targets is not None else values.where(positive, 0.0).sum(1)
            for values in (similarity, logits)
        )
    if roles.positives is not None:
        positive_lse = positive_logit if pair is None else pair.value(-(positive_logit + pair.offset(logit_map)))
    else:
        positive_logit, positive_similarity = (total / roles.positive_total for total in (positive_logit, positive_similarity))
        if pair is None:
            # A row without positives takes its log-sum-exp over everything: finite, and dropped when the rows are averaged.
            counted = positive | (count == 0)[:, None]
            positive_lse = torch.logsumexp(logits.masked_fill(~counted, -torch.inf), 1)
        else:
            shifted = logits + pair.offset(logit_map)
            of_pairs = pair.value(-shifted)
            if roles.targets is not None:
                of_pairs = torch.lerp(pair.value(shifted), of_pairs, roles.targets)
            positive_lse = torch.where(positive, of_pairs, 0.0).sum(1)
    return RowStatistics(
        positive_logit=positive_logit,
        positive_similarity=positive_similarity,
        positive_lse=positive_lse,
        negative_lse=negative,
        positive_count=count,
        negative_count=negative_count,
        negative_similarity=mean_negative,
        top_logits=top_logits,
    )
