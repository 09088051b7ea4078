"""Rankings of next items: the rank of a target among all items or sampled ones, HR@k and NDCG@k.

Ties and NaN scores are counted against the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.recommendation.interactions import Interactions, Ranges

CUTOFFS = (1, 5, 10)
SAMPLED = 100
"""Negatives of the sampled protocol."""
_BLOCK = 256
"""Block size of the original's sampling of negatives."""


def full_ranks(scores: Tensor, targets: Tensor, histories: Tensor) -> Tensor:
    """Returns the rank [B], 1 the best, of each target among all items but the rest of its history, by scores [B, I + 1]."""
    own = scores.gather(1, targets[:, None])
    ahead = ~(scores < own)
    ahead.scatter_(1, histories, False)
    ahead[:, 0] = False
    ahead.scatter_(1, targets[:, None], False)
    return 1 + ahead.sum(1)


def sampled_ranks(scores: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Returns the rank [B] of each target among negatives [B, K] by scores [B, I + 1]; an item counts once."""
    drawn = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, negatives, True)
    drawn.scatter_(1, targets[:, None], False)
    own = scores.gather(1, targets[:, None])
    return 1 + (drawn & ~(scores < own)).sum(1)


def draw_negatives(weights: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
    """Returns negatives for each row, [R, `SAMPLED`], drawn with replacement by the weights [I + 1] of items.

    Items of the histories are included. As in DCRec's evaluation by RecBole, the negatives of a block of 256 rows avoid the
    targets [R] of other rows, so that a row's own target may be among its negatives.
    """
    found = []
    chances = weights.double()
    for block in torch.split(targets, _BLOCK):
        wanted = len(block) * SAMPLED
        avoided = block.repeat(SAMPLED)
        drawn = torch.multinomial(chances, wanted, replacement=True, generator=generator)
        # with a single item of weight, a clash can never be avoided
        while (clash := (drawn == avoided).nonzero()[:, 0]).numel() and int((chances > 0).sum()) > 1:
            drawn[clash] = torch.multinomial(chances, len(clash), replacement=True, generator=generator)
        found.append(drawn.reshape(len(block), SAMPLED))
    return torch.cat(found)


def figures(ranks: Tensor) -> dict[str, float]:
    """Returns HR@k and NDCG@k × 100 of ranks [R] for k of `CUTOFFS`; NDCG is 1 / log₂(rank + 1) up to rank k."""
    gains = 100 / torch.log2(ranks.double() + 1)
    found = {f"hr@{k}": 100 * float((ranks <= k).double().mean()) for k in CUTOFFS}
    return found | {f"ndcg@{k}": float(torch.where(ranks <= k, gains, 0.0).mean()) for k in CUTOFFS}


Ranker = Callable[[Tensor, Tensor], Tensor]
"""Histories [B, L], padded with 0, and their lengths [B], both on the CPU, to scores of all items [B, I + 1] on any device."""
ROWS = 256
"""Histories that are ranked at once."""


def evaluate_ranker(
    ranker: Ranker, data: Interactions, examples: Ranges, rankings: Sequence[str], seed: int = 0, progress: Progress = silent
) -> dict[str, dict[str, float]]:
    """Returns HR@k and NDCG@k × 100 by protocol, see `figures`.

    The sampled negatives depend only on the seed and the examples, so that rankers and epochs are compared on the same ones.
    (The original draws new ones at every evaluation.)

    Args:
        ranker: the ranker to measure.
        data: the data of the examples.
        examples: histories and targets.
        rankings: of `RANKINGS`.
        seed: of the negatives.
        progress: called with the fraction done.
    """
    targets = torch.from_numpy(data.items[examples.ends])
    negatives = None
    if "sampled" in rankings:
        negatives = draw_negatives(data.last_targets(), targets, torch.Generator().manual_seed(seed))
    found: dict[str, list[Tensor]] = {name: [] for name in rankings}
    for first in range(0, len(examples), ROWS):
        rows = np.arange(first, min(first + ROWS, len(examples)))
        histories, lengths, wanted = data.batch(examples[rows])
        scores = ranker(histories, lengths)
        wanted = wanted.to(scores.device)
        if "full" in found:
            found["full"].append(full_ranks(scores, wanted, histories.to(scores.device)).cpu())
        if negatives is not None:
            found["sampled"].append(sampled_ranks(scores, wanted, negatives[rows].to(scores.device)).cpu())
        progress((rows[-1] + 1) / len(examples))
    return {name: figures(torch.cat(ranks)) for name, ranks in found.items()}


def popularity_ranker(counts: Tensor) -> Ranker:
    """Returns a ranker that scores items by their counts [I + 1]."""
    return lambda histories, lengths: counts.expand(len(histories), -1)
