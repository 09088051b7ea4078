"""How well a ranker finds what users took next: any function from histories to scores, under any of the protocols.

It must not know models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tempplug_adapters.recommendation.interactions import Interactions, Ranges
from tempplug_adapters.recommendation.ranking import draw_negatives, figures, full_ranks, sampled_ranks

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
    """Returns the ranker that gives every history the most frequent items.

    Args:
        counts: [I + 1].
    """
    return lambda histories, lengths: counts.expand(len(histories), -1)
