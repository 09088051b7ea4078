"""Mini-batches of a graph: neighbourhoods that are true to the graph, fan-out that is kept."""

from __future__ import annotations

import torch

from tempplug_adapters.graph.grace import GRACE, NodeFeatures, View
from tempplug_adapters.graph.node_batches import NodeSampler


def random_edges(nodes: int = 60, edges: int = 300) -> torch.Tensor:
    pairs = torch.randint(nodes - 4, (2, edges), generator=torch.Generator().manual_seed(0))
    return torch.unique(pairs, dim=1)


def test_with_all_neighbours_the_seeds_are_encoded_as_in_the_whole_graph() -> None:
    edges = random_edges()
    x = torch.rand(60, 20, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model, features = GRACE(20), NodeFeatures(x)
    # A layer more than the encoder has: the degrees of the outermost nodes it reads must be whole too.
    batch = NodeSampler(edges, 60).around(torch.tensor([3, 59, 17, 40]), neighbours=1000, layers=3)
    found = model.encoder(features, [View(batch.edge_index)], batch.nodes)[0][: batch.seeds]
    torch.testing.assert_close(found, model.representations(features, edges)[[3, 59, 17, 40]], rtol=1e-5, atol=1e-6)


def test_sampled_edges_are_edges_and_no_more_than_asked() -> None:
    edges = random_edges()
    known = set(map(tuple, edges.T.tolist()))
    degrees = torch.bincount(edges[1], minlength=60)
    sampler = NodeSampler(edges, 60)
    torch.manual_seed(0)
    followed: set[tuple[int, int]] = set()
    for _ in range(30):
        batch = sampler.around(torch.arange(0, 60, 3), neighbours=3, layers=2)
        pairs = list(map(tuple, batch.nodes[batch.edge_index].T.tolist()))
        assert len(set(pairs)) == len(pairs), "no edge is followed twice"
        assert set(pairs) <= known
        incoming = torch.bincount(batch.nodes[batch.edge_index[1]], minlength=60)
        seeds = batch.nodes[: batch.seeds]
        assert torch.equal(incoming[seeds], degrees[seeds].clamp(max=3))
        assert int(incoming.max()) <= 3
        assert len(torch.unique(batch.nodes)) == len(batch.nodes)
        followed.update(pairs)
    into_seeds = {pair for pair in known if pair[1] % 3 == 0}
    assert into_seeds <= followed, "every neighbour has its chance"


def test_a_graph_without_edges_has_batches_without_edges() -> None:
    batch = NodeSampler(torch.zeros(2, 0, dtype=torch.long), 4).around(torch.arange(4), neighbours=3, layers=2)
    assert batch.edge_index.shape == (2, 0)
    assert len(batch.nodes) == batch.seeds == 4
