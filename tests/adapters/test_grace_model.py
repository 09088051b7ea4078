"""GRACE's model against PyTorch Geometric's layers on the corrupted graph written out, and its loss against the formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.grace_method import GRACE, corrupt, corrupted

NODES, COLUMNS = 40, 90


def graph(density: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns features and edges; the last five nodes are isolated."""
    generator = torch.Generator().manual_seed(seed)
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


@pytest.mark.parametrize("density", [0.02, 0.7], ids=["sparse", "dense"])
def test_both_views_at_once_are_what_each_is_by_itself(density: float) -> None:
    x, edges = graph(density)
    torch.manual_seed(0)
    model, features = GRACE(GCN(COLUMNS)), NodeFeatures(x)
    for layer in model.encoder.layers:
        torch.nn.init.normal_(layer.bias)
    views = [corrupt(edges, COLUMNS, 0.3, 0.3), corrupt(edges, COLUMNS, 0.5, 0.1), View(edges)]
    for view, found in zip(views, model.encoder.of_views(features, views), strict=True):
        torch.testing.assert_close(found, written_out(model, x, view), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("density", [0.02, 0.7], ids=["sparse", "dense"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_representations_are_those_of_the_plain_layers(
    density: float, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, edges = graph(density)
    weight = torch.rand(120) if weighted else None
    torch.manual_seed(0)
    model = GRACE(GCN(COLUMNS, layers=3))
    for layer in model.encoder.layers:
        torch.nn.init.normal_(layer.bias)
    monkeypatch.setattr("tempplug_adapters.graph.gcn._AT_ONCE", 7)
    expected = written_out(model, x, View(edges, None, weight))
    for found in (
        model.encoder.of_graph(NodeFeatures(x), edges, weight),
        model.encoder(x, edges, weight),
        model.encoder(Batch.from_data_list([Data(x=x, edge_index=edges, edge_weight=weight)])),
        model.encoder.of_views(NodeFeatures(x), [View(edges, None, weight)])[0],
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert weight is None or not torch.allclose(expected, written_out(model, x, View(edges)))


@pytest.mark.parametrize("density", [0.02, 0.7], ids=["sparse", "dense"])
@pytest.mark.parametrize("nodes", [None, torch.tensor([5, 0, 39, 7])], ids=["all", "some"])
def test_products_and_their_gradient_do_not_depend_on_the_layout(density: float, nodes: Tensor | None) -> None:
    x, _ = graph(density)
    weight = torch.randn(6, COLUMNS, generator=torch.Generator().manual_seed(1), requires_grad=True)
    outer = torch.randn(NODES if nodes is None else 4, 6)
    (plain,) = torch.autograd.grad(((x if nodes is None else x[nodes]) @ weight.T * outer).sum(), weight)
    for given in (x, x.to_sparse_coo()):
        product = NodeFeatures(given).product(weight, nodes)
        torch.testing.assert_close(product, (x if nodes is None else x[nodes]) @ weight.T, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.autograd.grad((product * outer).sum(), weight)[0], plain, rtol=1e-5, atol=1e-5)


def test_a_view_loses_edges_and_whole_columns() -> None:
    torch.manual_seed(0)
    edges = torch.randint(50, (2, 4000))
    view = corrupt(edges, 3000, 0.3, 0.2)
    assert view.columns is not None
    assert 0.66 < view.edge_index.shape[1] / 4000 < 0.74
    assert 0.77 < view.columns.mean() < 0.83
    assert set(view.columns.tolist()) == {0.0, 1.0}
    known = set(map(tuple, edges.T.tolist()))
    assert set(map(tuple, view.edge_index.T.tolist())) <= known
    assert not torch.equal(corrupt(edges, 3000, 0.3, 0.2).columns, view.columns)
    whole = corrupt(edges, 3000, 0.0, 0.0)
    assert torch.equal(whole.edge_index, edges)
    assert torch.equal(whole.columns, torch.ones(3000))  # type: ignore[arg-type]


def test_the_loss_is_the_mean_of_both_directions_with_same_view_negatives() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(12, 5), torch.randn(12, 5)
    u, v = functional.normalize(a), functional.normalize(b)

    def direction(own: Tensor, other: Tensor) -> Tensor:
        across, within = (own @ other.T / 0.4).exp(), (own @ own.T / 0.4).exp()
        return -(across.diag() / (across.sum(1) + within.sum(1) - within.diag())).log()

    expected = ((direction(u, v) + direction(v, u)) / 2).mean()
    torch.testing.assert_close(tempplug.ContrastiveLoss("fixed:temperature=0.4")(a, b), expected)


def test_a_view_keeps_the_weights_of_its_edges() -> None:
    edges = torch.randint(50, (2, 400))
    weight = (edges[0] * 50 + edges[1]).float()
    view = corrupt(edges, 3, 0.5, 0.0, weight)
    assert view.edge_index.shape[1] < 300
    assert torch.equal(view.edge_weight, (view.edge_index[0] * 50 + view.edge_index[1]).float())  # type: ignore[arg-type]


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


def test_only_the_first_nodes_are_embedded_where_asked() -> None:
    x, edges = graph(0.5)
    model, features = GRACE(GCN(COLUMNS, activation="prelu")), NodeFeatures(x)
    whole, some = model([View(edges)], features)[0], model([View(edges)], features, None, 7)[0]
    assert some.shape == (7, 32)
    torch.testing.assert_close(some, whole[:7])


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match="activation='gelu' must be one of relu, prelu, elu"):
        GCN(4, activation="gelu")
