"""GraphCL with encoders, augmentations, data sets and loaders of the user's own, from Python and by the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import OWN, Data, Embedded, graph, ring, toy_set, write_tu
from method_toys import train_toy
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, GIN, GINEConv, global_mean_pool
from torch_geometric.transforms import AddSelfLoops, Compose, RandomJitter
from torch_geometric.utils import dropout_edge

import tempplug
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.graph.augmentation import AUGMENTATIONS, user_views
from tempplug_adapters.graph.graph_data import Graphs
from tempplug_adapters.graph.graphcl_method import GINEncoder, GraphCLMethod
from tempplug_adapters.graph.recipes import GRAPHCL as METHOD
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.method import Run

SMALL: dict[str, Any] = {"num_train_epochs": 3, "per_device_train_batch_size": 16, "hidden": 8, "layers": 2}


class Pooled(nn.Module):
    """A user's encoder that takes a batch and returns a row a graph."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = GCN(width, 8, 2)

    def forward(self, batch: Batch) -> Tensor:
        return global_mean_pool(self.inner(batch.x, batch.edge_index), batch.batch, batch.num_graphs)


def fewer_edges(data: Data) -> Data:
    data.edge_index, _ = dropout_edge(data.edge_index, p=0.4)
    return data


def of_batches(batch: Batch) -> Batch:
    assert batch.num_graphs > 1
    return fewer_edges(batch)


def run(folder: Path, method: GraphCLMethod, graphs: Any = None) -> dict[str, Any]:
    data = Graphs(toy_set(33).graphs() if graphs is None else graphs)
    results = train_toy(METHOD, folder, data, "macl", method, evaluate=False, **SMALL)
    assert math.isfinite(results["loss"])
    return results


def test_our_encoder_runs_on_a_plain_batch_and_sees_the_same_views_as_a_users() -> None:
    graphs, encoder = toy_set(12), GINEncoder(2, 8, 3).eval()
    expected = encoder(graphs.batch(torch.arange(12)))
    torch.testing.assert_close(encoder(next(iter(DataLoader(graphs.graphs(), batch_size=12)))), expected)
    torch.testing.assert_close(encoder(graphs.graphs()[3]), expected[3:4])
    bare = GINEncoder(1, 8, 3).eval()
    assert bare(Batch.from_data_list([graph(3, ring(3), width=None), graph(2, [], width=None)])).shape == (2, 24)
    losses = []
    for method in (GraphCLMethod(METHOD), GraphCLMethod(METHOD, GINEncoder(2, 8, 2))):
        recipe, data = METHOD.recipe(**SMALL, augmentations=tuple(AUGMENTATIONS)), Graphs(toy_set(33))
        made = method.build(recipe, data, method.create_loss(recipe, data, TemperatureArguments("fixed", [], None)))
        for parameter in made.parameters():
            if parameter.ndim:
                nn.init.uniform_(parameter, -0.3, 0.3, torch.Generator().manual_seed(parameter.numel()))
        torch.manual_seed(5)
        losses.append(made(**method.collate(recipe, data, torch.arange(20))))
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("encoder", [Pooled, GIN, GCN], ids=["takes-batch", "pygs-gin", "pygs-gcn"])
def test_encoders_of_ones_own_train(tmp_path: Path, encoder: Any) -> None:
    results = run(tmp_path, GraphCLMethod(METHOD, encoder))
    assert results["own_encoder"] == [f"{encoder.__module__}:{encoder.__qualname__}"]
    state = torch.load(tmp_path / "encoder.pt", weights_only=True)
    method, data, whole = GraphCLMethod(METHOD, encoder), Graphs(toy_set(33)), Batch.from_data_list(toy_set(33).graphs())
    module = method.build(METHOD.recipe(**SMALL), data, None).eval()
    module.encoder.load_state_dict(state)
    if encoder is Pooled:
        expected = module.encoder(whole)
    else:
        encoder(2, 8, 2).load_state_dict(state)
        nodes = module.encoder(whole.x, whole.edge_index)
        expected = torch.stack([nodes[whole.batch == number].sum(0) for number in range(33)])
    torch.testing.assert_close(method.representations(module, data), expected, rtol=1e-4, atol=1e-4)


def test_augmentations_of_the_user_do_not_change_the_graphs(tmp_path: Path) -> None:
    graphs = toy_set(33).graphs()
    for each in graphs:
        each.pos = torch.zeros(each.num_nodes, 2)
    before = [each.edge_index.clone() for each in graphs]
    run(tmp_path, GraphCLMethod(METHOD, augmentations=[fewer_edges, Compose([AddSelfLoops(), RandomJitter(0)])]), graphs)
    assert all(torch.equal(each.edge_index, kept) for each, kept in zip(graphs, before, strict=True))


def test_a_view_is_drawn_of_each_graph_from_the_whole_pool() -> None:
    torch.manual_seed(0)
    batch = user_views([graph(40, ring(40)) for _ in range(60)], ["drop-nodes", fewer_edges, AddSelfLoops()])
    nodes = torch.bincount(batch.batch, minlength=60)
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=60)
    kinds = [int(each.sum()) for each in (nodes == 36, edges == 120, (nodes == 40) & (edges < 80))]
    assert (sum(kinds), batch.num_graphs) == (60, 60)
    assert min(kinds) > 8


def test_augmentations_that_return_something_else_are_named() -> None:
    graphs = toy_set(9).graphs()
    assert user_views(graphs, [of_batches]).num_graphs == 9

    def fewer_graphs(batch: Batch) -> Batch:
        return Batch.from_data_list(batch.to_data_list()[1:])

    for pool, message in [
        ([of_batches, fewer_edges], "takes a whole batch, and so must be the only one"),
        ([fewer_graphs], "must return a Batch of 9 graphs"),
        ([lambda data: (data, data)], "must return a Data, not tuple"),
    ]:
        with pytest.raises(ConfigError, match=message):
            user_views(graphs, pool)


def test_edges_keep_what_they_have_in_our_augmentations(tmp_path: Path) -> None:
    graphs = toy_set(33).graphs()
    for each in graphs:
        each.edge_attr = each.edge_index.T.float()
    torch.manual_seed(0)
    views = user_views(graphs, ["subgraph", "drop-nodes", "drop-edges"])
    assert views.edge_attr.shape == (views.num_edges, 2)
    assert views.num_edges < sum(each.num_edges for each in graphs)

    class Attributes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = GINEConv(nn.Linear(2, 8), edge_dim=2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
            return self.layer(x, edge_index, edge_attr)

    run(tmp_path / "own", GraphCLMethod(METHOD, Attributes()), graphs)
    with pytest.warns(UserWarning, match="edge_attr of the data is not used: the encoder GIN does not take it"):
        run(tmp_path / "ours", GraphCLMethod(METHOD), graphs)
    for each in graphs:
        each.x = each.x.long()
    with pytest.raises(ConfigError, match="'mask-attributes' puts noise in place of features, which must be floating"):
        user_views(graphs, ["mask-attributes"])


def test_data_sets_and_loaders_are_graphs_also_of_one_node_and_without_features(tmp_path: Path) -> None:
    bare = [graph(1, [], width=None), Data(num_nodes=3), graph(5, ring(5), width=None)] * 6
    run(tmp_path, GraphCLMethod(METHOD, Pooled), bare)
    graphs = toy_set(9).graphs()
    assert len(Graphs(graphs)) == len(Graphs(DataLoader(graphs, batch_size=2))) == 9
    for wrong in (3, graphs[0]):
        with pytest.raises(DataError, match="graphs must be a data set, a list or a loader of graphs"):
            Graphs(wrong)


def test_graphs_without_a_class_are_not_measured_by() -> None:
    graphs = toy_set(60).graphs()
    for number, each in enumerate(graphs):
        each.y = torch.tensor([[float("nan")]]) if number % 5 == 0 else torch.tensor([-1]) if number % 5 == 1 else each.y
    method, recipe, data = GraphCLMethod(METHOD), METHOD.recipe(**SMALL, folds=2), Graphs(graphs)
    module = method.build(recipe, data, None).eval()
    kept = Graphs([each for number, each in enumerate(graphs) if number % 5 > 1])
    assert method.evaluate(recipe, module, data, Run(Path())) == method.evaluate(recipe, module, kept, Run(Path()))


@pytest.mark.parametrize("encoder", [Embedded(), GCN])
def test_whole_numbers_are_features_of_encoders_with_and_without_embeddings(encoder: Any) -> None:
    graphs = toy_set(12).graphs()
    for each in graphs:
        each.x = each.x.long()
    data, index, method = Graphs(graphs), torch.arange(12), GraphCLMethod(METHOD, encoder, ["drop-nodes"])
    module = method.build(METHOD.recipe(), data, tempplug.ContrastiveLoss(layout="cross-view"))
    assert module(**method.collate(METHOD.recipe(), data, index)).isfinite()
    assert not data.pyg_batch(index).x.is_floating_point(), "the user's graphs stay as they are"


def test_an_encoder_that_does_not_fit_is_named() -> None:
    class One(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:1]

    wanted = r"encoder GCN cannot run \(mat1 and mat2 .*; wanted is forward\(x \[N, F\], edge_index"
    for encoder, error, message in [
        (One(), ShapeError, "encoder One returned 1 representations of 2 graphs with 6 nodes each"),
        (GCN(3, 4, 1), ConfigError, wanted),
    ]:
        with pytest.raises(error, match=message):
            GraphCLMethod(METHOD, encoder).build(METHOD.recipe(), Graphs([graph(6, ring(6))] * 3), None)


def test_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_of_graphcl.py").write_text(OWN)
    write_tu(tmp_path / "data" / "graph" / "tu", "TOY", toy_set(60))
    words = ["train", "graphcl", "--dataset", "TOY", "--data-dir", "data", "--num-train-epochs", "2", "--folds", "2"]
    own = ["--encoder", "torch_geometric.nn:GCN", "--augmentations", "mine_of_graphcl:fewer_edges", "drop-nodes"]
    assert main([*words, "--output-dir", "out", *own]) == 0
    results = json.loads(Path("out/metrics.json").read_text())
    assert results["recipe"]["augmentations"] == ["mine_of_graphcl:fewer_edges", "drop-nodes"]
    assert results["evaluation"]["accuracy"] > 50
