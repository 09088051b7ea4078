"""The encoder against PyTorch Geometric's own layers, and the sparse sums against loops, gradients included."""

from __future__ import annotations

import pytest
import torch
from graphcl_toys import batch_of, graph, ring, toy_set
from torch_geometric.nn import GINConv, global_add_pool

from tempplug.errors import ConfigError
from tempplug_adapters.graph.graph_data import GraphBatch
from tempplug_adapters.graph.graphcl_method import GINEncoder, GraphCL
from tempplug_adapters.sparse_sums import RowSums


def reference(encoder: GINEncoder, graphs: GraphBatch) -> torch.Tensor:
    x, pooled = graphs.x, []
    for update, norm in zip(encoder.updates, encoder.norms, strict=True):
        convolution = GINConv(torch.nn.Identity())
        convolution.nn = update  # given at once, its weights would be drawn anew
        x = norm(convolution(x, graphs.edge_index).relu())
        pooled.append(global_add_pool(x, graphs.batch, graphs.num_graphs))
    return torch.cat(pooled, 1)


@pytest.mark.parametrize("training", [True, False])
def test_the_encoder_is_gin(training: bool) -> None:
    torch.manual_seed(0)
    graphs = toy_set(20).batch(torch.arange(20))
    encoder = GINEncoder(2, hidden=8, layers=3).train(training)
    results = []
    for forward in (encoder, lambda each: reference(encoder, each)):
        encoder.zero_grad()
        found = forward(graphs)
        (found * torch.linspace(-1, 1, 24)).sum().backward()
        results.append([found.detach(), *(parameter.grad.clone() for parameter in encoder.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_sums_and_their_gradients_count_repeated_pairs_twice() -> None:
    rows, columns = torch.tensor([2, 0, 2, 2]), torch.tensor([1, 4, 1, 0])
    x = torch.randn(5, 3, requires_grad=True)
    found = RowSums.from_pairs(rows, columns, 4, 5)(x)
    expected = torch.stack([x[4], torch.zeros(3), 2 * x[1] + x[0], torch.zeros(3)])
    weights = torch.randn(4, 3)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((each * weights).sum(), x, retain_graph=True)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_groups_are_pairs_in_order() -> None:
    group = torch.tensor([0, 0, 2, 2, 2])
    x = torch.randn(5, 3)
    for ours, theirs in zip(
        (RowSums.from_groups(group, 4).pattern, RowSums.from_groups(group, 4).transposed),
        (RowSums.from_pairs(group, torch.arange(5), 4, 5).pattern, RowSums.from_pairs(group, torch.arange(5), 4, 5).transposed),
        strict=True,
    ):
        assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert RowSums.from_groups(group, 4)(x).shape == (4, 3)


def test_graphs_of_one_node_without_edges_and_without_nodes_are_encoded() -> None:
    encoder = GINEncoder(2).eval()
    alone = encoder(batch_of(graph(1, [])))
    assert alone.shape == (1, 96)
    beside = batch_of(graph(1, []), graph(6, []), graph(5, ring(5)))
    torch.testing.assert_close(encoder(beside)[0], alone[0])
    torch.testing.assert_close(encoder(GraphBatch(beside.x, beside.edge_index, beside.batch, 5))[3:], torch.zeros(2, 96))


def test_the_head_is_for_training_alone() -> None:
    model = GraphCL(2, hidden=4, layers=2)
    graphs = batch_of(graph(5, ring(5)), graph(3, [(0, 1)]))
    assert torch.equal(model.eval()(graphs), model.projection_head(model.encoder(graphs)))
    assert all(not module.bias.any() for module in model.modules() if isinstance(module, torch.nn.Linear))


@pytest.mark.parametrize("size", ["features", "hidden", "layers"])
def test_sizes_are_checked(size: str) -> None:
    with pytest.raises(ConfigError, match=f"{size}=0 of the encoder must be at least 1"):
        GINEncoder(**{"features": 2, size: 0})
