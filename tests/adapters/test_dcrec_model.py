"""DCRec's terms beside loops over plain numbers, written from the formulas, for ten users; edge cases of the weights."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.dcrec import bounded, conformity_weights, weight_divergence
from tempplug_adapters.recommendation.dcrec_method import DCRecMethod, DCRecModule
from tempplug_adapters.recommendation.dcrec_recipe import METHOD
from tempplug_adapters.recommendation.interactions import Interactions

SEQUENCES = [
    [1, 2, 3, 4, 5],
    [2, 3, 6],
    [5, 1, 2, 7],
    [3, 4, 1, 6, 2],
    [7, 6, 5, 4],
    [4, 2, 3],
    [6, 7, 1, 3, 8],
    [8, 1, 5],
    [2, 6, 4, 7, 3, 1],
    [1, 3, 2, 8],
]
NODES, TAU, MEAN = 9, 0.8, 0.4


def data() -> Interactions:
    return Interactions([torch.tensor(each).numpy() for each in SEQUENCES], NODES - 1, 10, 0.2)


def module(strategy: str = "fixed", **changes: Any) -> DCRecModule:
    """In float64, without anything random but the sample of the weights; the numbers are large enough to tell all apart."""
    quiet = {"hidden": 6, "inner": 5, "dropout": 0.0, "attention_dropout": 0.0, "edge_dropout": 0.0, "similar_items": 2}
    recipe = METHOD.recipe(**{**quiet, **changes})
    method = DCRecMethod(METHOD)
    torch.manual_seed(1)
    loss = method.create_loss(recipe, data(), TemperatureArguments(strategy, [], None))
    made = method.build(recipe, data(), loss)
    for parameter in made.model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made.double()


def batch(index: list[int]) -> dict[str, Any]:
    return DCRecMethod(METHOD).collate(METHOD.recipe(), data(), torch.tensor(index))


def cosine(one: list[float], other: list[float]) -> float:
    norms = [math.sqrt(sum(x * x for x in each)) for each in (one, other)]
    return sum(x * y for x, y in zip(one, other, strict=True)) / (norms[0] * norms[1]) if all(norms) else 0.0


def encode(embeddings: list[list[float]], edges: dict[tuple[int, int], float], norm: nn.LayerNorm) -> list[list[float]]:
    """Two layers of messages over all edges and a loop a node, averaged with the input; LN(mean + input)."""
    every = [*edges.items(), *(((node, node), 1.0) for node in range(NODES))]
    sends = [sum(source == node for (source, _), _ in every) for node in range(NODES)]
    receives = [sum(target == node for (_, target), _ in every) for node in range(NODES)]
    layers = [embeddings]
    for _ in range(2):
        arrived = [[0.0] * 6 for _ in range(NODES)]
        for (source, target), weight in every:
            for place in range(6):
                arrived[target][place] += weight / math.sqrt(sends[source] * receives[target]) * layers[-1][source][place]
        layers.append(arrived)
    found = []
    for node in range(NODES):
        row = [sum(layer[node][place] for layer in layers) / 3 + embeddings[node][place] for place in range(6)]
        mean = sum(row) / 6
        deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / 6 + 1e-12)
        scaled = zip(row, norm.weight.tolist(), norm.bias.tolist(), strict=True)
        found.append([(x - mean) / deviation * w + b for x, w, b in scaled])
    return found


def co_interaction(histories: list[list[int]]) -> dict[tuple[int, int], float]:
    counts = {(node, node): 1.0 for node in range(NODES)}
    for history in histories:
        for one, other in pairwise(history):
            for pair in ((one, other), (other, one)):
                counts[pair] = counts.get(pair, 0.0) + 2
    sums = [sum(count for (one, _), count in counts.items() if one == node) for node in range(NODES)]
    return {(one, other): count / math.sqrt(sums[one] * sums[other]) for (one, other), count in counts.items()}


def similarity(histories: list[list[int]]) -> dict[tuple[int, int], float]:
    found = {}
    for item in range(NODES):
        takers = {node: {user for user, history in enumerate(histories) if node in history} for node in range(NODES)}
        alike = {
            node: len(takers[item] & takers[node]) / math.sqrt(len(takers[item]) * len(takers[node]))
            for node in range(NODES)
            if takers[item] & takers[node]
        }
        best = sorted(alike, key=lambda node: (-round(alike[node], 9), node != item, node))[:3]
        found |= {(item, node): alike[node] / sum(alike[each] for each in best) for node in best}
    return found


def contrast(anchors: list[list[float]], candidates: list[list[float]]) -> list[float]:
    found = []
    for place, anchor in enumerate(anchors):
        powers = [math.exp(cosine(anchor, candidate) / TAU) for candidate in candidates]
        found.append(-math.log(1e-8 + powers[place] / sum(powers)))
    return found


def test_the_terms_are_those_of_loops_over_ten_users() -> None:
    made, known = module(), data()
    histories = [
        known.items[start:end].tolist()
        for start, end in zip(known.histories("train").starts, known.histories("train").ends, strict=True)
    ]
    assert sum(map(len, histories)) < known.histories("validation").ends[-1], "no last target is known"
    # of some users alone, so that others have edges to the same items
    index = np.flatnonzero(np.isin(known.train.users, [0, 2, 5, 8])).tolist()
    given = batch(index)
    lengths = given["lengths"].tolist()
    assert 1 in lengths
    torch.manual_seed(7)
    loss = made(**given)
    terms = made._terms
    assert terms is not None
    torch.manual_seed(7)
    sample = torch.normal(MEAN, 0.1, (len(index),)).double().tolist()

    embeddings = made.model.encoder.items.weight.tolist()
    norm = made.model.graph_encoder.norm
    edges = co_interaction(histories)
    own = set()
    for user in given["users"].tolist():
        for one, other in pairwise(histories[user]):
            own |= {(one, other), (other, one)}
    every = encode(embeddings, edges, norm)
    without = encode(embeddings, {pair: weight for pair, weight in edges.items() if pair not in own}, norm)
    alike = encode(embeddings, similarity(histories), norm)
    last = [row[length - 1] for row, length in zip(given["histories"].tolist(), lengths, strict=True)]

    def mean_of(nodes: list[int]) -> list[float]:
        return [sum(every[node][place] for node in nodes) / max(1, len(nodes)) for place in range(6)]

    agreement = []
    for node in last:
        from_own = mean_of([other for one, other in edges if one == node and (one, other) in own])
        from_others = mean_of([other for one, other in edges if one == node and (one, other) not in own])
        three = (cosine(every[node], without[node]), cosine(every[node], from_others), cosine(from_own, from_others))
        agreement.append(1 / (1 + math.exp(-sum(three) / 3)))
    scaled = [(each - min(agreement)) / (max(agreement) - min(agreement)) for each in agreement]
    weights = [each * MEAN / (sum(scaled) / len(scaled)) for each in scaled]
    weights = [0.5 if length == 1 else each for each, length in zip(weights, lengths, strict=True)]
    assert terms.conformity.tolist() == pytest.approx(weights, abs=1e-9)

    states = made.model.encoder(given["histories"], given["lengths"]).tolist()
    outputs, others = [every[node] for node in last], [alike[node] for node in last]
    first, second = contrast(states, outputs), contrast(outputs, others)
    both = [w * one + (max(weights) - w) * two for w, one, two in zip(weights, first, second, strict=True)]
    contrastive = sum(both) / len(both)
    assert terms.contrastive.item() == pytest.approx(contrastive, abs=1e-9)

    normaliser = math.log(sum(math.exp(w) for w in weights))
    expected = [math.log(max(each, 1e-8) + 1e-8) for each in sorted(sample)]
    divergence = sum(math.exp(p) * (p - (w - normaliser)) for p, w in zip(expected, sorted(weights), strict=True)) / len(
        weights
    )
    assert terms.divergence.item() == pytest.approx(divergence, abs=1e-9)

    matrix, attention = made.model.fusion.tolist(), made.model.attention.tolist()
    cross_entropy = 0.0
    for state, output, other, target in zip(states, outputs, others, given["targets"].tolist(), strict=True):
        shares = []
        for view in (state, output, other):
            mapped = [sum(view[row] * matrix[row][column] for row in range(6)) for column in range(6)]
            shares.append(math.exp(sum(x * a for x, a in zip(mapped, attention, strict=True))))
        views = zip(state, output, other, strict=True)
        fused = [sum(share * x for share, x in zip(shares, each, strict=True)) / sum(shares) for each in views]
        scores = [sum(x * y for x, y in zip(fused, item, strict=True)) for item in embeddings[1:]]
        cross_entropy += math.log(sum(math.exp(score) for score in scores)) - scores[target - 1]
    cross_entropy /= len(states)
    assert terms.next_item.item() == pytest.approx(cross_entropy, abs=1e-9)
    assert loss.item() == pytest.approx(cross_entropy + 0.1 * contrastive + 0.01 * divergence, abs=1e-9)


@pytest.mark.parametrize("lengths", [[2, 3, 4], [1, 1, 1], [1, 2, 2]])
def test_equal_histories_have_the_mean_weight_and_finite_gradients(lengths: list[int]) -> None:
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
    found.sum().backward()
    assert losses.grad is not None
    assert losses.grad.isfinite().all()


def test_two_terms_keep_apart_what_a_strategy_keeps_for_each_anchor() -> None:
    made = module("individual:gamma=0.5")
    size = len(data())
    assert made.loss_fn.strategy.options["size"] == 2 * size
    before = {name: value.clone() for name, value in made.loss_fn.state_dict().items()}
    made.train()(**batch([1, 4]))
    moved = [
        (value != before[name]).nonzero().flatten().tolist()
        for name, value in made.loss_fn.state_dict().items()
        if value.shape == (2 * size,)
    ]
    assert [1, 4, size + 1, size + 4] in moved
