"""How well a ranker finds what users took next: where a target stands among all items or sampled ones, HR@k and NDCG@k.

A tie counts against the model, and so does a score that is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tempplug_adapters.recommendation.interactions import Interactions, Ranges

CUTOFFS = (1, 5, 10)
SAMPLED = 100
"""Negatives of the sampled protocol."""
_BLOCK = 256
"""Rows that the original samples negatives for at once."""


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

    Histories are not left out. As in DCRec's evaluation by RecBole, in a block of 256 rows the negatives avoid the target [R]
    of another row than their own, so that a row's target may be among its negatives.
    """
    found = []
    chances = weights.double()
    for block in torch.split(targets, _BLOCK):
        wanted = len(block) * SAMPLED
        avoided = block.repeat(SAMPLED)
        drawn = torch.multinomial(chances, wanted, replacement=True, generator=generator)
        # an item that is all the weight there is could be avoided for ever
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
_ROWS = 256  # at a time; scores of all items are wide


def evaluate_ranker(
    ranker: Ranker,
    data: Interactions,
    examples: Ranges,
    rankings: Sequence[str],
    seed: int = 0,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, dict[str, float]]:
    """Returns HR@k and NDCG@k × 100 by protocol, see `figures`.

    The sampled negatives depend on the seed and the examples alone: rankers of one seed are compared on the same ones, as is a
    ranker with itself an epoch later. (The original draws new ones at every evaluation.)

    Args:
        ranker: what is measured.
        data: the examples are of.
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
    for first in range(0, len(examples), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(examples)))
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
    """Returns the ranker that gives every history the most frequent items, for counts [I + 1]."""
    return lambda histories, lengths: counts.expand(len(histories), -1)
