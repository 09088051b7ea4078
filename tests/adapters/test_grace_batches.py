"""Mini-batches of a graph: neighbourhoods that are true to the graph, fan-out that is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.typing
from torch_geometric.data import Data

from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.node_batches import NodeBatch, NodeSampler
from tempplug_adapters.graph.nodes import LoaderSampler, Nodes


def random_edges(nodes: int = 60, edges: int = 300) -> torch.Tensor:
    pairs = torch.randint(nodes - 4, (2, edges), generator=torch.Generator().manual_seed(0))
    return torch.unique(pairs, dim=1)


def test_with_all_neighbours_the_seeds_are_encoded_as_in_the_whole_graph() -> None:
    edges = random_edges()
    x = torch.rand(60, 20, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    encoder, features = GCN(20), NodeFeatures(x)
    # A layer more than the encoder has: the degrees of the outermost nodes it reads must be whole too.
    batch = NodeSampler(edges, 60).around(torch.tensor([3, 59, 17, 40]), neighbours=1000, layers=3)
    found = encoder.of_views(features, [View(batch.edge_index)], batch.nodes)[0][: batch.seeds]
    torch.testing.assert_close(found, encoder(x, edges)[[3, 59, 17, 40]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("columns", [20, 3000], ids=["sums-first", "products-first"])
def test_a_layer_computes_what_the_next_one_reads_to_the_same_result(layers: int, hops: int, columns: int) -> None:
    edges, chance = random_edges(), torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    encoder, features = GCN(columns, layers=layers), NodeFeatures(torch.rand(60, columns, generator=chance))
    batch = NodeSampler(edges, 60).around(torch.tensor([3, 59, 17, 40]), neighbours=3, layers=hops)
    weight = torch.rand(batch.edge_index.shape[1], generator=chance)
    gradients = []
    for reach in ((), batch.reach):
        encoder.zero_grad()
        view = View(batch.edge_index, None, weight, reach).to(torch.device("cpu"))
        found = encoder.of_views(features, [view], batch.nodes)[0]
        assert not reach or len(found) == 4
        gradients.append([found[:4], *torch.autograd.grad(found[:4].square().sum(), list(encoder.parameters()))])
    for whole, trimmed in zip(*gradients, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-6)


def test_a_batch_knows_how_far_its_nodes_are() -> None:
    path = torch.stack((torch.arange(9), torch.arange(1, 10)))  # 0 → 1 → … → 9
    batch = NodeSampler(path, 10).around(torch.tensor([4, 8]), neighbours=5, layers=3)
    assert batch.nodes.tolist() == [4, 8, 3, 7, 2, 6, 1, 5]
    assert batch.reach == (2, 4, 6, 8)
    assert torch.equal(batch.nodes[batch.edge_index], path[:, batch.edges])


def test_a_part_has_what_its_nodes_and_edges_have() -> None:
    edges = random_edges()
    nodes = Nodes(Data(x=torch.arange(60.0)[:, None], edge_index=edges, edge_weight=edges[0] * 100.0 + edges[1]))
    part = nodes.part(torch.tensor([7, 3]), neighbours=3, steps=2)
    assert part.n_id[:2].tolist() == [7, 3]
    assert torch.equal(part.x[:, 0], part.n_id.float())
    source, target = part.n_id[part.edge_index]
    assert torch.equal(part.edge_weight, source * 100.0 + target)
    assert sum(part.num_sampled_nodes) == part.num_nodes
    assert sum(part.num_sampled_edges) == part.num_edges


def test_a_loader_is_not_asked_for_all_neighbours() -> None:
    edges = random_edges()
    nodes = Nodes(Data(x=torch.ones(60, 1), edge_index=edges))
    expected = nodes.part(torch.tensor([5]), None, 2).n_id
    nodes.sampler = LoaderSampler(None)
    assert torch.equal(nodes.part(torch.tensor([5]), None, 2).n_id, expected)
    with pytest.raises(TypeError):
        nodes.part(torch.tensor([5]), 3, 2)


def test_pyg_lib_samples_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operation stands in here: it follows every edge, or the first ones of each node, and tells counts as pyg-lib does."""
    edges = random_edges()
    own = NodeSampler(edges, 60)
    calls: list[list[int]] = []

    def neighbor_sample(colptr: torch.Tensor, row: torch.Tensor, seed: torch.Tensor, counts: list[int], *more: Any) -> Any:
        calls.append(counts)
        targets = torch.repeat_interleave(torch.arange(60), colptr.diff())
        sampled = NodeSampler(torch.stack((row, targets)), 60)
        with monkeypatch.context() as without:
            without.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
            found = sampled.around(seed, None if counts[0] < 0 else counts[0], len(counts))
        steps = [found.reach[0], *torch.tensor(found.reach).diff().tolist()]
        return (*found.edge_index, found.nodes, found.edges, steps, [])

    expected = own.around(torch.tensor([5, 3]), None, 2)
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops.pyg, "neighbor_sample", neighbor_sample, raising=False)
    found = own.around(torch.tensor([5, 3]), None, 2)
    assert calls == [[-1, -1]]
    assert found.reach == expected.reach
    assert torch.equal(found.nodes, expected.nodes)
    assert pairs_of(found, edges) == pairs_of(expected, edges)
    assert torch.equal(found.nodes[found.edge_index], edges[:, found.edges])
    own.around(torch.tensor([5]), 4, 3)
    assert calls[1:] == [[4, 4, 4]]


def pairs_of(batch: NodeBatch, edges: torch.Tensor) -> list[tuple[int, ...]]:
    return sorted(map(tuple, edges[:, batch.edges].T.tolist()))


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
