"""DCRec beside dense matrices in float64, written from the formulas: its graphs of items, its terms, odd weights."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.dcrec import DCRecMethod, DCRecModule, bounded, conformity_weights, weight_divergence
from tempplug_adapters.recommendation.interactions import Interactions, Ranges
from tempplug_adapters.recommendation.item_graphs import (
    GraphEncoder,
    ItemGraph,
    OwnEdges,
    co_interaction_graph,
    cut_rows,
    similarity_edges,
)
from tempplug_adapters.recommendation.recipes import DCREC as METHOD

Rows = list[list[int]]


def histories(*rows: list[int]) -> tuple[np.ndarray, Ranges]:
    ends = np.cumsum([len(row) for row in rows])
    starts = ends - [len(row) for row in rows]
    return np.concatenate([np.array(row, np.int64) for row in rows]), Ranges(np.arange(len(rows)), starts, ends)


def dense(graph: ItemGraph) -> Tensor:
    found = torch.zeros(graph.nodes, graph.nodes, dtype=torch.float64)
    found[graph.sources, graph.targets] = graph.weights
    return found


def pairs_of(rows: Rows, nodes: int) -> Tensor:
    """How often an item followed another one, in either direction."""
    counts = torch.zeros(nodes, nodes, dtype=torch.float64)
    for one, other in (pair for row in rows for pair in pairwise(row) if pair[0] != pair[1]):
        counts[one, other] += 1
        counts[other, one] += 1
    return counts


def co_interaction(rows: Rows, nodes: int) -> Tensor:
    counts = 2 * pairs_of(rows, nodes) + torch.eye(nodes)
    return counts / torch.outer(counts.sum(1), counts.sum(1)).sqrt()


def similarity(rows: Rows, nodes: int, neighbours: int) -> Tensor:
    taken = torch.tensor([[row.count(item) for row in rows] for item in range(nodes)], dtype=torch.float64)
    cosines = functional.cosine_similarity(taken[:, None], taken[None], dim=2)
    found = torch.zeros(nodes, nodes, dtype=torch.float64)
    for item in range(nodes):
        alike = [other for other in range(nodes) if cosines[item, other] > 0]
        best = sorted(alike, key=lambda other: (-round(float(cosines[item, other]), 9), other != item, other))
        best = best[: neighbours + 1]
        found[item, best] = cosines[item, best] / cosines[item, best].sum()
    return found


def propagation(edges: Tensor) -> Tensor:
    """One step along edges and a loop a node, each divided by the roots of the numbers of edges of its two ends."""
    sends, receives = ((edges != 0).sum(axis) + 1.0 for axis in (1, 0))
    return ((edges + torch.eye(len(edges))) / torch.outer(sends, receives).sqrt()).T


def encode(embeddings: Tensor, edges: Tensor, norm: nn.LayerNorm) -> Tensor:
    step = propagation(edges)
    mean = (embeddings + step @ embeddings + step @ step @ embeddings) / 3
    return functional.layer_norm(mean + embeddings, mean.shape[1:], norm.weight, norm.bias, 1e-12)


def test_items_that_follow_each_other_are_joined() -> None:
    rows = [[1, 2, 3], [2, 1], [3, 3, 4], [], [4]]
    items, ranges = histories(*rows)
    graph = co_interaction_graph(items, ranges, 6)
    torch.testing.assert_close(dense(graph), co_interaction(rows, 6))
    assert graph.starts.tolist() == [0, 1, 3, 6, 9, 11, 12]
    own = OwnEdges(graph, items, ranges)
    for users in ([1], [0, 1, 1], [2, 3], [3, 4]):
        mask, expected = own(torch.tensor(users)), pairs_of([rows[user] for user in users], 6)
        ends = zip(graph.sources[mask].tolist(), graph.targets[mask].tolist(), strict=True)
        assert set(ends) == set(map(tuple, expected.nonzero().tolist()))


def test_the_most_similar_items_are_those_of_a_brute_force() -> None:
    chance = np.random.default_rng(1)
    rows = [chance.integers(1, 12, chance.integers(0, 7)).tolist() for _ in range(25)]
    sources, targets, weights = similarity_edges(*histories(*rows), 14, 3)
    found = torch.zeros(14, 14, dtype=torch.float64)
    found[sources, targets] = torch.from_numpy(weights)
    torch.testing.assert_close(found, similarity(rows, 14, 3))
    assert len(set(zip(sources, targets, strict=True))) == len(sources)
    assert not found[[0, 13]].any(), "an item of no history has no edges"


def test_the_slicing_fault_puts_rows_under_other_items() -> None:
    """Nine rows in slices of two: at 0, then 2 later, then 4 later than that; what is left is one row."""
    by_hand = [0, 1, 2, 3, 6, 7, 8]
    assert cut_rows(9, 2).tolist() == by_hand
    emulated = cut_rows(20_000)
    assert (len(emulated), int((emulated == np.arange(len(emulated))).sum())) == (3104, 512)
    rows = [[1, 2], [2, 3, 4], [4, 5, 6], [6, 7], [7, 8, 1]]
    sources, targets, weights = similarity_edges(*histories(*rows), 9, 2, faithful=True, block=2)
    found = torch.zeros(9, 9, dtype=torch.float64)
    found[sources, targets] = torch.from_numpy(weights)
    torch.testing.assert_close(found[:7], similarity(rows, 9, 2)[by_hand])
    assert not found[7:].any(), "these have no row at all"


def test_propagation_is_a_dense_matrix_with_its_gradient() -> None:
    torch.manual_seed(0)
    graph = co_interaction_graph(*histories([1, 2, 3, 1, 4], [2, 1], [5]), 7)
    removed = torch.rand(len(graph)) < 0.3
    edges = dense(graph)
    edges[graph.sources[removed], graph.targets[removed]] = 0
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    coefficients = torch.randn(7, 3, dtype=torch.float64)
    found = graph.propagation(torch.float64, removed)(x)
    torch.testing.assert_close(found, propagation(edges) @ x)
    (gradient,) = torch.autograd.grad((found * coefficients).sum(), x)
    torch.testing.assert_close(gradient, propagation(edges).T @ coefficients)
    encoder = GraphEncoder(3, 2, 0.0, 0.0, edge_dropout_at_evaluation=False).double()
    torch.testing.assert_close(encoder(x, graph, removed), encode(x, edges, encoder.norm))


def test_edges_are_dropped_in_training_and_at_evaluation_if_wanted() -> None:
    graph, x = co_interaction_graph(*histories(list(range(1, 40))), 40), torch.randn(40, 4)
    for at_evaluation in (False, True):
        encoder = GraphEncoder(4, dropout=0.0, edge_dropout=0.5, edge_dropout_at_evaluation=at_evaluation)
        assert not torch.equal(encoder(x, graph), encoder(x, graph))
        encoder.eval()
        assert torch.equal(encoder(x, graph), encoder(x, graph)) is not at_evaluation
    torch.manual_seed(0)
    kept = [float((graph.propagation(torch.float32, dropout=0.5).pattern.values() > 0).float().mean()) for _ in range(50)]
    assert np.mean(kept) == pytest.approx(np.exp(-0.5), abs=0.02), "drawn with replacement"


SEQUENCES: Rows = [
    *([1, 2, 3, 4, 5], [2, 3, 6], [5, 1, 2, 7], [3, 4, 1, 6, 2], [7, 6, 5, 4]),
    *([4, 2, 3], [6, 7, 1, 3, 8], [8, 1, 5], [2, 6, 4, 7, 3, 1], [1, 3, 2, 8]),
]
NODES, TAU, MEAN = 9, 0.8, 0.4


def data() -> Interactions:
    return Interactions([np.array(each) for each in SEQUENCES], NODES - 1, 10, 0.2)


def module(strategy: str = "fixed", **changes: Any) -> DCRecModule:
    """In float64, without anything random but the sample of the weights; the numbers are large enough to tell all apart."""
    quiet = {"hidden": 6, "inner": 5, "dropout": 0.0, "attention_dropout": 0.0, "edge_dropout": 0.0, "similar_items": 2}
    recipe, method = METHOD.recipe(**{**quiet, **changes}), DCRecMethod(METHOD)
    torch.manual_seed(1)
    made = method.build(recipe, data(), method.create_loss(recipe, data(), TemperatureArguments(strategy, [], None)))
    for parameter in made.model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made.double()


def batch(index: list[int]) -> dict[str, Any]:
    return DCRecMethod(METHOD).collate(METHOD.recipe(), data(), torch.tensor(index))


def contrast(anchors: Tensor, candidates: Tensor) -> Tensor:
    cosines = functional.cosine_similarity(anchors[:, None], candidates[None], dim=2)
    return -(1e-8 + (cosines / TAU).softmax(1).diagonal()).log()


def test_the_terms_are_those_of_dense_matrices() -> None:
    made, known = module(), data()
    rows = [sequence[: end - start] for sequence, start, end in zip(SEQUENCES, *_ends(known, "train"), strict=True)]
    assert sum(map(len, rows)) < known.histories("validation").ends[-1], "no last target is known"
    # of some users alone, so that others have edges to the same items
    index = np.flatnonzero(np.isin(known.train.users, [0, 2, 5, 8])).tolist()
    given = batch(index)
    assert 1 in given["lengths"]
    torch.manual_seed(7)
    loss = made(**given)
    terms = made._terms
    assert terms is not None
    torch.manual_seed(7)
    sample = torch.normal(MEAN, 0.1, (len(index),)).double()

    items, norm, model = made.model.encoder.items.weight, made.model.graph_encoder.norm, made.model
    edges = co_interaction(rows, NODES)
    own = pairs_of([rows[user] for user in given["users"].tolist()], NODES) > 0
    every, without, alike = (encode(items, each, norm) for each in (edges, edges * ~own, similarity(rows, NODES, 2)))
    last = given["histories"].gather(1, given["lengths"][:, None] - 1)[:, 0]
    from_own, from_others = (
        (each.double() @ every / each.sum(1).clamp(min=1)[:, None])[last] for each in ((edges > 0) & own, (edges > 0) & ~own)
    )
    output, other = every[last], alike[last]
    three = [(output, without[last]), (output, from_others), (from_own, from_others)]
    agreement = (sum(functional.cosine_similarity(*pair) for pair in three) / 3).sigmoid()  # type: ignore[union-attr]
    scaled = (agreement - agreement.min()) / (agreement.max() - agreement.min())
    weights = torch.where(given["lengths"] == 1, 0.5, scaled * MEAN / scaled.mean())
    torch.testing.assert_close(terms.conformity, weights, rtol=0, atol=1e-9)

    state = model.encoder(given["histories"], given["lengths"])
    contrastive = (weights * contrast(state, output) + (weights.max() - weights) * contrast(output, other)).mean()
    torch.testing.assert_close(terms.contrastive, contrastive, rtol=0, atol=1e-9)

    expected = (sample.sort().values.clamp(min=1e-8) + 1e-8).log()
    divergence = (expected.exp() * (expected - weights.sort().values.log_softmax(0))).mean()
    torch.testing.assert_close(terms.divergence, divergence, rtol=0, atol=1e-9)

    views = torch.stack([state, output, other])
    shares = (views @ model.fusion @ model.attention).softmax(0)
    scores = (shares[..., None] * views).sum(0) @ items[1:].T
    next_item = functional.cross_entropy(scores, given["targets"] - 1)
    torch.testing.assert_close(terms.next_item, next_item, rtol=0, atol=1e-9)
    torch.testing.assert_close(loss, next_item + 0.1 * contrastive + 0.01 * divergence, rtol=0, atol=1e-9)


def _ends(known: Interactions, split: str) -> tuple[Any, Any]:
    return known.histories(split).starts, known.histories(split).ends


def test_equal_histories_have_the_mean_weight_and_finite_gradients() -> None:
    for lengths in ([2, 3, 4], [1, 1, 1], [1, 2, 2]):
        rows = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
        weights = conformity_weights(rows, rows, rows, rows, torch.tensor(lengths), 0.4)
        assert weights.tolist() == [0.5 if length == 1 else 0.4 for length in lengths]
        weight_divergence(weights, torch.tensor([-1.0, 0.4, 0.5])).backward()
        assert rows.grad is None or rows.grad.isfinite().all()


def test_a_batch_of_one_has_a_finite_loss_and_the_weights_of_the_recipe() -> None:
    made = module(contrastive_weight=0.0, divergence_weight=3.0)
    with pytest.warns(RuntimeWarning, match="leaves 1 of 1 anchors without a negative"):
        loss = made(**batch([0]))
    loss.backward()
    assert loss.isfinite()
    assert made._terms is not None
    torch.testing.assert_close(loss, made._terms.next_item + 3 * made._terms.divergence)


def test_a_loss_is_bounded_as_the_authors_is() -> None:
    losses = torch.tensor([0.0, 1.0, 10.0, 18.0, 500.0], dtype=torch.float64, requires_grad=True)
    found = bounded(losses)
    torch.testing.assert_close(found[:4], -(1e-8 + (-losses[:4]).exp()).log(), rtol=0, atol=1e-12)
    assert found[4].item() == pytest.approx(-math.log(1e-8))
    (gradient,) = torch.autograd.grad(found.sum(), losses)
    assert gradient.isfinite().all()


def test_two_terms_keep_apart_what_a_strategy_keeps_for_each_anchor() -> None:
    made, size = module("individual:gamma=0.5"), len(data())
    before = {name: value.clone() for name, value in made.loss_fn.state_dict().items()}
    made.train()(**batch([1, 4]))
    after = made.loss_fn.state_dict()
    moved = [
        (after[name] != value).nonzero().flatten().tolist() for name, value in before.items() if value.shape == (2 * size,)
    ]
    assert [1, 4, size + 1, size + 4] in moved
