"""HR and NDCG beside a brute force in plain Python; ties, own targets, repeated negatives, empty histories."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.method import (
    SAMPLED,
    draw_negatives,
    evaluate_ranker,
    figures,
    full_ranks,
    popularity_ranker,
    sampled_ranks,
)


def brute_rank(scores: list[float], target: int, among: set[int]) -> int:
    """One more than the items that are not behind the target."""
    return 1 + sum(1 for item in among - {target, 0} if not scores[item] < scores[target])


def brute_figures(ranks: list[int]) -> dict[str, float]:
    found = {}
    for k in (1, 5, 10):
        found[f"hr@{k}"] = 100 * sum(rank <= k for rank in ranks) / len(ranks)
        found[f"ndcg@{k}"] = 100 * sum(1 / math.log2(1 + rank) for rank in ranks if rank <= k) / len(ranks)
    return found


def test_ranks_and_figures_are_those_of_a_brute_force() -> None:
    chance = random.Random(0)
    rows, items = 60, 30
    # few different scores, so that many tie, and one that is no number
    scores = [[float(chance.randrange(12)) for _ in range(items + 1)] for _ in range(rows)]
    scores[3][7] = math.nan
    targets = [chance.randrange(1, items + 1) for _ in range(rows)]
    targets[4] = 7
    scores[4][7] = math.nan
    histories = [[chance.randrange(items + 1) for _ in range(6)] for _ in range(rows)]
    histories[5] = [0] * 6
    histories[6][2] = targets[6]
    negatives = [[chance.randrange(1, items + 1) for _ in range(15)] for _ in range(rows)]
    negatives[7][3] = targets[7]
    table, wanted = torch.tensor(scores), torch.tensor(targets)
    for found, among in [
        (full_ranks(table, wanted, torch.tensor(histories)), [set(range(1, items + 1)) - set(each) for each in histories]),
        (sampled_ranks(table, wanted, torch.tensor(negatives)), [set(each) for each in negatives]),
    ]:
        expected = [brute_rank(*each) for each in zip(scores, targets, among, strict=True)]
        assert found.tolist() == expected
        assert figures(found) == pytest.approx(brute_figures(expected), abs=1e-12)


def test_negatives_are_drawn_by_weight_and_avoid_the_targets_of_the_wrong_rows() -> None:
    weights = torch.tensor([0, 1, 0, 3, 4, 0])
    targets = torch.tensor([1, 3] * 128 + [4] * 44)
    drawn = draw_negatives(weights, targets, torch.Generator().manual_seed(0))
    assert drawn.shape == (300, SAMPLED)
    # the second block is one of targets 4 alone, so that there 4 is left out; in the first, draws take turns
    assert set(drawn[256:].unique().tolist()) == {1, 3}
    flat = drawn[:256].flatten()
    assert set(flat[0::2].unique().tolist()) == {3, 4}
    assert set(flat[1::2].unique().tolist()) == {1, 4}
    assert float((flat[0::2] == 3).double().mean()) == pytest.approx(3 / 7, abs=0.02)
    assert (drawn[:256] == targets[:256, None]).any(), "a row's own target may be among its negatives"
    assert torch.equal(drawn, draw_negatives(weights, targets, torch.Generator().manual_seed(0)))
    assert draw_negatives(torch.tensor([0, 1]), torch.tensor([1]), torch.Generator()).unique().tolist() == [1]


def test_a_ranker_is_measured_under_both_protocols() -> None:
    chance = np.random.default_rng(0)
    data = Interactions([chance.permutation(20)[: chance.integers(2, 9)] + 1 for _ in range(400)], 21)
    counts = data.popularity("test")
    found = evaluate_ranker(popularity_ranker(counts), data, data.test, ["full", "sampled"], seed=4)
    histories, lengths, targets = data.batch(data.test)
    negatives = draw_negatives(data.last_targets(), targets, torch.Generator().manual_seed(4)).tolist()
    full, sampled = [], []
    for row, length, target, drawn in zip(histories.tolist(), lengths, targets.tolist(), negatives, strict=True):
        full.append(brute_rank(counts.tolist(), target, set(range(1, 22)) - set(row[: int(length)])))
        sampled.append(brute_rank(counts.tolist(), target, set(drawn)))
    assert found["full"] == pytest.approx(brute_figures(full))
    assert found["sampled"] == pytest.approx(brute_figures(sampled))
    assert counts[21] == 0, "an item without interactions is ranked, too"
