"""GRACE's model against PyTorch Geometric's layers on the corrupted graph written out, and its batches against the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.typing
from covering import every_pair
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCNConv

from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.grace_method import GRACE, corrupt, corrupted
from tempplug_adapters.graph.nodes import LoaderSampler, Nodes, NodeSampler

NODES, COLUMNS = 40, 90
DENSITIES = (0.02, 0.7)  # of which one is multiplied as a sparse matrix, the other as a dense one


def graph(density: float) -> tuple[Tensor, Tensor]:
    """Returns features and edges; the last five nodes are isolated."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(NODES, COLUMNS, generator=generator)
    x = torch.where(torch.rand(x.shape, generator=generator) < density, x, 0.0)
    return x, torch.randint(NODES - 5, (2, 120), generator=generator)


def written_out(model: GRACE, x: Tensor, view: View) -> Tensor:
    """The representations by the framework's own layers, normalising by themselves, on features that are really masked."""
    hidden = x if view.columns is None else x * view.columns
    for layer in model.encoder.layers:
        plain = GCNConv(hidden.shape[1], 32)
        plain.load_state_dict(layer.state_dict())
        hidden = functional.relu(plain(hidden, view.edge_index, view.edge_weight))
    return hidden


@pytest.mark.parametrize(("density", "weighted", "layers"), every_pair(DENSITIES, (False, True), (2, 3)))
def test_representations_are_those_of_the_plain_layers(
    density: float, weighted: bool, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempplug_adapters.graph.gcn._AT_ONCE", 7)
    x, edges = graph(density)
    weight = torch.rand(120) if weighted else None
    torch.manual_seed(0)
    model, features = GRACE(GCN(COLUMNS, layers=layers)), NodeFeatures(x)
    for layer in model.encoder.layers:
        torch.nn.init.normal_(layer.bias)
    views = [corrupt(edges, COLUMNS, 0.3, 0.3, weight), corrupt(edges, COLUMNS, 0.5, 0.1, weight), View(edges, None, weight)]
    for view, found in zip(views, model.encoder.of_views(features, views), strict=True):
        torch.testing.assert_close(found, written_out(model, x, view), rtol=1e-5, atol=1e-6)
    for found in (
        model.encoder.of_graph(features, edges, weight),
        model.encoder(x, edges, weight),
        model.encoder(Batch.from_data_list([Data(x=x, edge_index=edges, edge_weight=weight)])),
    ):
        torch.testing.assert_close(found, written_out(model, x, views[2]), rtol=1e-5, atol=1e-6)
    assert not weighted or not torch.allclose(found, written_out(model, x, View(edges)))
    torch.testing.assert_close(model(views, features, None, 7)[0], model(views, features)[0][:7])


def test_a_head_may_end_with_batch_normalisation_of_each_view() -> None:
    x, edges = graph(0.02)
    torch.manual_seed(0)
    model, views = GRACE(GCN(COLUMNS), last_batch_norm=True), [corrupt(edges, COLUMNS, 0.3, 0.3), View(edges)]
    for view, found in zip(views, model(views, NodeFeatures(x)), strict=True):
        plain = model.projection_head[:3](written_out(model, x, view))
        spread = (plain.var(0, unbiased=False) + 1e-5).sqrt()
        torch.testing.assert_close(found, (plain - plain.mean(0)) / spread, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("density", DENSITIES)
def test_products_and_their_gradient_do_not_depend_on_the_layout(density: float) -> None:
    x, _ = graph(density)
    weight = torch.randn(6, COLUMNS, generator=torch.Generator().manual_seed(1), requires_grad=True)
    for nodes in (None, torch.tensor([5, 0, 39, 7])):
        expected = (x if nodes is None else x[nodes]) @ weight.T
        outer = torch.randn(expected.shape)
        (gradient,) = torch.autograd.grad((expected * outer).sum(), weight)
        for given in (x, x.to_sparse_coo()):
            product = NodeFeatures(given).product(weight, nodes)
            torch.testing.assert_close(product, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(torch.autograd.grad((product * outer).sum(), weight)[0], gradient, rtol=1e-5, atol=1e-5)


def test_a_view_loses_edges_and_whole_columns() -> None:
    torch.manual_seed(0)
    edges = torch.randint(50, (2, 4000))
    weight = (edges[0] * 50 + edges[1]).float()
    view = corrupt(edges, 3000, 0.3, 0.2, weight)
    assert 0.66 < view.edge_index.shape[1] / 4000 < 0.74
    assert 0.77 < view.columns.mean() < 0.83  # type: ignore[union-attr]
    assert set(view.columns.tolist()) == {0.0, 1.0}  # type: ignore[union-attr]
    assert set(map(tuple, view.edge_index.T.tolist())) <= set(map(tuple, edges.T.tolist()))
    assert torch.equal(view.edge_weight, (view.edge_index[0] * 50 + view.edge_index[1]).float())  # type: ignore[arg-type]
    assert not torch.equal(corrupt(edges, 3000, 0.3, 0.2).columns, view.columns)  # type: ignore[arg-type]
    whole = corrupt(edges, 3000, 0.0, 0.0)
    assert torch.equal(whole.edge_index, edges)
    assert torch.equal(whole.columns, torch.ones(3000))  # type: ignore[arg-type]


def test_a_graph_that_is_written_out_keeps_what_its_edges_have() -> None:
    edges, number = torch.randint(50, (2, 400)), torch.arange(400)
    given = Data(x=torch.ones(50, 30), edge_index=edges, edge_attr=number[:, None], num_sampled_edges=[100, 300])
    view = corrupted(given, 0.5, 0.4)
    left = view.edge_attr[:, 0]
    assert len(left) < 300
    assert torch.equal(view.edge_index, edges[:, left])
    assert view.num_sampled_edges == [int((left < 100).sum()), int((left >= 100).sum())]
    assert torch.equal(view.x, view.x[:1].expand(50, 30))
    assert 0 < int(view.x[0].sum()) < 30
    assert given.x.all()


SEEDS = torch.tensor([3, 59, 17, 40])


def random_edges() -> Tensor:
    return torch.unique(torch.randint(56, (2, 300), generator=torch.Generator().manual_seed(0)), dim=1)


@pytest.mark.parametrize(("layers", "hops", "columns", "neighbours"), every_pair((1, 2, 3), (1, 2, 3), (20, 3000), (3, 1000)))
def test_a_batch_is_encoded_as_the_graph_is(layers: int, hops: int, columns: int, neighbours: int) -> None:
    """Trimmed layers compute what the next one reads; with all neighbours a hop further, as in the whole graph."""
    edges, chance = random_edges(), torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    x = torch.rand(60, columns, generator=chance)  # sums or products come first
    encoder, features = GCN(columns, layers=layers), NodeFeatures(x)
    batch = NodeSampler(edges, 60).around(SEEDS, neighbours, hops)
    weight = torch.rand(batch.edge_index.shape[1], generator=chance)
    results = []
    for reach in ((), batch.reach):
        view = View(batch.edge_index, None, weight, reach).to(torch.device("cpu"))
        found = encoder.of_views(features, [view], batch.nodes)[0]
        assert not reach or len(found) == 4
        results.append([found[:4], *torch.autograd.grad(found[:4].square().sum(), list(encoder.parameters()))])
    for whole, trimmed in zip(*results, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-5, atol=1e-6)
    if neighbours == 1000 and hops > layers:
        found = encoder.of_views(features, [View(batch.edge_index)], batch.nodes)[0][:4]
        torch.testing.assert_close(found, encoder(x, edges)[SEEDS], rtol=1e-5, atol=1e-6)


def test_nodes_of_a_batch_are_ordered_by_their_distance() -> None:
    path = torch.stack((torch.arange(9), torch.arange(1, 10)))  # 0 → 1 → … → 9
    batch = NodeSampler(path, 10).around(torch.tensor([4, 8]), neighbours=5, layers=3)
    assert batch.nodes.tolist() == [4, 8, 3, 7, 2, 6, 1, 5]
    assert batch.reach == (2, 4, 6, 8)
    assert torch.equal(batch.nodes[batch.edge_index], path[:, batch.edges])
    alone = NodeSampler(torch.zeros(2, 0, dtype=torch.long), 4).around(torch.arange(4), neighbours=3, layers=2)
    assert (alone.edge_index.shape, len(alone.nodes), alone.seeds) == ((2, 0), 4, 4)


def test_sampled_edges_are_edges_and_no_more_than_wanted() -> None:
    edges = random_edges()
    known, degrees, sampler = set(map(tuple, edges.T.tolist())), torch.bincount(edges[1], minlength=60), NodeSampler(edges, 60)
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
    assert {pair for pair in known if pair[1] % 3 == 0} <= followed, "every neighbour has its chance"


def test_a_part_has_what_its_nodes_and_edges_have() -> None:
    edges = random_edges()
    nodes = Nodes(Data(x=torch.arange(60.0)[:, None], edge_index=edges, edge_weight=edges[0] * 100.0 + edges[1]))
    part = nodes.part(torch.tensor([7, 3]), neighbours=3, steps=2)
    assert part.n_id[:2].tolist() == [7, 3]
    assert torch.equal(part.x[:, 0], part.n_id.float())
    source, target = part.n_id[part.edge_index]
    assert torch.equal(part.edge_weight, source * 100.0 + target)
    assert (sum(part.num_sampled_nodes), sum(part.num_sampled_edges)) == (part.num_nodes, part.num_edges)
    expected = nodes.part(torch.tensor([5]), None, 2).n_id
    nodes.sampler = LoaderSampler(None)
    assert torch.equal(nodes.part(torch.tensor([5]), None, 2).n_id, expected), "a loader cannot be given all neighbours"
    with pytest.raises(TypeError):
        nodes.part(torch.tensor([5]), 3, 2)


def test_pyg_lib_samples_where_it_is_installed_also_for_a_neighbour_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operation stands in here: it follows every edge, or the first ones of each node, and counts as pyg-lib does."""
    edges, calls = random_edges(), []
    own = NodeSampler(edges, 60)
    expected = own.around(torch.tensor([5, 3]), None, 2)

    def neighbor_sample(colptr: Tensor, row: Tensor, seed: Tensor, counts: list[int], *more: Any) -> Any:
        calls.append(counts)
        targets = torch.repeat_interleave(torch.arange(60), colptr.diff())
        with monkeypatch.context() as without:
            without.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
            sampler = NodeSampler(torch.stack((row, targets)), 60)
            found = sampler.around(seed, None if counts[0] < 0 else counts[0], len(counts))
        steps = [found.reach[0], *torch.tensor(found.reach).diff().tolist()]
        return (*found.edge_index, found.nodes, found.edges, steps, [])

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops.pyg, "neighbor_sample", neighbor_sample, raising=False)
    found = own.around(torch.tensor([5, 3]), None, 2)
    assert found.reach == expected.reach
    assert torch.equal(found.nodes, expected.nodes)
    assert sorted(found.edges.tolist()) == sorted(expected.edges.tolist())
    assert torch.equal(found.nodes[found.edge_index], edges[:, found.edges])
    own.around(torch.tensor([5]), 4, 3)
    loader = NeighborLoader(Data(x=torch.eye(60), edge_index=edges), [7, 4], batch_size=50)
    part = Nodes(loader).part(torch.tensor([5, 9]), 15, 2)
    assert (calls, part.n_id[:2].tolist()) == ([[-1, -1], [4, 4, 4], [7, 4]], [5, 9])
