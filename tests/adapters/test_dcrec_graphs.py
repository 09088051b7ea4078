"""DCRec's graphs of items: weights and neighbours by hand, the authors' slicing fault, propagation beside a dense matrix."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from tempplug_adapters.recommendation.graph_encoder import GraphEncoder, ItemGraph
from tempplug_adapters.recommendation.interactions import Ranges
from tempplug_adapters.recommendation.item_graphs import OwnEdges, co_interaction_graph, cut_rows, similarity_edges


def histories(*rows: list[int]) -> tuple[np.ndarray, Ranges]:
    ends = np.cumsum([len(row) for row in rows])
    return np.concatenate([np.array(row, np.int64) for row in rows]), Ranges(
        np.arange(len(rows)), ends - [len(row) for row in rows], ends
    )


def edges_of(graph: ItemGraph) -> dict[tuple[int, int], float]:
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    return dict(zip(ends, graph.weights.tolist(), strict=True))


def test_items_that_follow_each_other_are_joined() -> None:
    graph = co_interaction_graph(*histories([1, 2, 3], [2, 1], [3, 3], [], [4]), 6)
    # 1–2 twice and 2–3 once, each counted from both of its ends; every item with itself once
    sums = {0: 1, 1: 5, 2: 7, 3: 3, 4: 1, 5: 1}
    counts = {(1, 2): 4, (2, 1): 4, (2, 3): 2, (3, 2): 2, **{(item, item): 1 for item in range(6)}}
    assert edges_of(graph) == pytest.approx(
        {(one, other): count / (sums[one] * sums[other]) ** 0.5 for (one, other), count in counts.items()}
    )
    assert graph.starts.tolist() == [0, 1, 3, 6, 8, 9, 10]


def test_own_edges_are_those_of_the_histories_both_ways() -> None:
    items, rows = histories([1, 2, 3], [2, 1], [3, 4, 4], [], [4])
    graph = co_interaction_graph(items, rows, 5)
    own = OwnEdges(graph, items, rows)
    for users, expected in [
        ([1], {(1, 2), (2, 1)}),
        ([0, 1, 1], {(1, 2), (2, 1), (2, 3), (3, 2)}),
        ([2, 3], {(3, 4), (4, 3)}),
        ([3, 4], set()),
    ]:
        mask = own(torch.tensor(users))
        assert set(zip(graph.sources[mask].tolist(), graph.targets[mask].tolist(), strict=True)) == expected


def brute_similarity(rows: list[list[int]], nodes: int, neighbours: int) -> dict[int, dict[int, float]]:
    taken = [Counter({user: row.count(item) for user, row in enumerate(rows) if item in row}) for item in range(nodes)]
    norms = [sum(count**2 for count in each.values()) ** 0.5 for each in taken]
    found = {}
    for item in range(nodes):
        alike = {
            other: sum(taken[item][user] * taken[other][user] for user in taken[item]) / (norms[item] * norms[other])
            for other in range(nodes)
            if norms[item] and norms[other]
        }
        best = sorted(alike, key=lambda other: (-round(alike[other], 9), other != item, other))[: neighbours + 1]
        best = [other for other in best if alike[other] > 0]
        found[item] = {other: alike[other] / sum(alike[each] for each in best) for other in best}
    return found


def test_the_most_similar_items_are_those_of_a_brute_force() -> None:
    chance = np.random.default_rng(1)
    rows = [chance.integers(1, 12, chance.integers(0, 7)).tolist() for _ in range(25)]
    sources, targets, weights = similarity_edges(*histories(*rows), 14, 3)
    found: dict[int, dict[int, float]] = {item: {} for item in range(14)}
    for source, target, weight in zip(sources, targets, weights, strict=True):
        found[source][target] = weight
    expected = brute_similarity(rows, 14, 3)
    assert found.keys() == expected.keys()
    for item, neighbours in expected.items():
        assert found[item] == pytest.approx(neighbours), item
    assert found[0] == found[13] == {}, "nobody took them"


def test_the_slicing_fault_puts_rows_under_other_items() -> None:
    """Nine rows in slices of two: at 0, then 2 later, then 4 later than that; what is left is one row."""
    by_hand = [0, 1, 2, 3, 6, 7, 8]
    assert cut_rows(9, 2).tolist() == by_hand
    assert sum(place == row for place, row in enumerate(by_hand)) == 4
    emulated = cut_rows(20_000)
    assert (len(emulated), int((emulated == np.arange(len(emulated))).sum())) == (3104, 512)
    rows = [[1, 2], [2, 3, 4], [4, 5, 6], [6, 7], [7, 8, 1]]
    right = brute_similarity(rows, 9, 2)
    sources, targets, weights = similarity_edges(*histories(*rows), 9, 2, faithful=True, block=2)
    for place, row in enumerate(by_hand):
        own = sources == place
        assert dict(zip(targets[own], weights[own], strict=True)) == pytest.approx(right[row])
    assert not np.isin([7, 8], sources).any(), "these have no row at all"


def test_propagation_is_a_dense_matrix_with_its_gradient() -> None:
    torch.manual_seed(0)
    graph = co_interaction_graph(*histories([1, 2, 3, 1, 4], [2, 1], [5]), 7)
    removed = torch.rand(len(graph)) < 0.3
    there = {ends: weight for (ends, weight), gone in zip(edges_of(graph).items(), removed, strict=True) if not gone}
    sends = [sum(source == node for source, _ in there) + 1 for node in range(7)]
    receives = [sum(target == node for _, target in there) + 1 for node in range(7)]
    dense = torch.zeros(7, 7, dtype=torch.float64)
    for (source, target), weight in [*there.items(), *(((node, node), 1.0) for node in range(7))]:
        dense[target, source] += weight / (sends[source] * receives[target]) ** 0.5
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    coefficients = torch.randn(7, 3, dtype=torch.float64)
    step = graph.propagation(torch.float64, removed)
    torch.testing.assert_close(step(x), dense @ x)
    (gradient,) = torch.autograd.grad((step(x) * coefficients).sum(), x)
    torch.testing.assert_close(gradient, dense.T @ coefficients)
    encoder = GraphEncoder(3, 2, 0.0, 0.0, edge_dropout_at_evaluation=False).double()
    mean = (x + dense @ x + dense @ dense @ x) / 3
    expected = torch.nn.functional.layer_norm(mean + x, (3,), eps=1e-12)
    torch.testing.assert_close(encoder(x, graph, removed), expected)


def test_edges_are_dropped_in_training_and_where_asked_at_evaluation() -> None:
    graph = co_interaction_graph(*histories(list(range(1, 40))), 40)
    x = torch.randn(40, 4)
    for at_evaluation in (False, True):
        encoder = GraphEncoder(4, dropout=0.0, edge_dropout=0.5, edge_dropout_at_evaluation=at_evaluation)
        assert not torch.equal(encoder(x, graph), encoder(x, graph))
        encoder.eval()
        assert torch.equal(encoder(x, graph), encoder(x, graph)) is not at_evaluation
    torch.manual_seed(0)
    kept = [float((graph.propagation(torch.float32, dropout=0.5).pattern.values() > 0).float().mean()) for _ in range(50)]
    assert np.mean(kept) == pytest.approx(np.exp(-0.5), abs=0.02), "drawn with replacement"
