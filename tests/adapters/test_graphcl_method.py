"""``tempplug train graphcl``: GIN is PyTorch Geometric's, a step is GraphCL's formula, pools by data set, the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import batch_of, graph, ring, toy_set, write_tu
from method_toys import train_toy
from torch import Tensor
from torch_geometric.nn import GINConv, global_add_pool

from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.graph.augmentation import AUGMENTATIONS
from tempplug_adapters.graph.evaluation import evaluate_svm
from tempplug_adapters.graph.graph_data import GraphBatch, Graphs, GraphSet
from tempplug_adapters.graph.graph_files import load_tu
from tempplug_adapters.graph.graphcl_method import GINEncoder, GraphCL, GraphCLMethod
from tempplug_adapters.graph.recipes import AUGMENTATIONS as NAMES, GRAPHCL as METHOD
from tempplug_adapters.sparse_sums import RowSums

SMALL: dict[str, Any] = {"num_train_epochs": 4, "per_device_train_batch_size": 16, "hidden": 8, "layers": 2}


def reference(encoder: GINEncoder, graphs: GraphBatch) -> Tensor:
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
    rows, columns, x = torch.tensor([2, 0, 2, 2]), torch.tensor([1, 4, 1, 0]), torch.randn(5, 3, requires_grad=True)
    expected = torch.stack([x[4], torch.zeros(3), 2 * x[1] + x[0], torch.zeros(3)])
    found = RowSums.from_pairs(rows, columns, 4, 5)(x)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(4, 3)
    gradients = [torch.autograd.grad((each * weights).sum(), x, retain_graph=True)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients)
    group = torch.tensor([0, 0, 2, 2, 2])
    ours, theirs = RowSums.from_groups(group, 4), RowSums.from_pairs(group, torch.arange(5), 4, 5)
    assert torch.equal(ours.pattern.to_dense(), theirs.pattern.to_dense())
    assert torch.equal(ours.transposed.to_dense(), theirs.transposed.to_dense())


def test_graphs_of_one_node_without_edges_and_without_nodes_are_encoded() -> None:
    model = GraphCL(2).eval()
    alone = model.encoder(batch_of(graph(1, [])))
    beside = batch_of(graph(1, []), graph(6, []), graph(5, ring(5)))
    torch.testing.assert_close(model.encoder(beside)[0], alone[0])
    more = GraphBatch(beside.x, beside.edge_index, beside.batch, 5)
    torch.testing.assert_close(model.encoder(more)[3:], torch.zeros(2, 96))
    assert torch.equal(model(beside), model.projection_head(model.encoder(beside)))
    assert all(not module.bias.any() for module in model.modules() if isinstance(module, torch.nn.Linear))


def run(folder: Path, strategy: str = "fixed", graphs: GraphSet | None = None, **more: Any) -> dict[str, Any]:
    data = Graphs(toy_set(33) if graphs is None else graphs)
    return train_toy(METHOD, folder, data, strategy, **{**SMALL, "evaluate": False, **more})


def losses(results: dict[str, Any]) -> list[float]:
    return [entry["loss"] for entry in results["history"] if "loss" in entry]


@pytest.mark.parametrize("normalised", [None, True])
def test_the_loss_of_a_batch_is_graphcls(normalised: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings: list[Tensor] = []
    forward = GraphCL.forward
    monkeypatch.setattr(GraphCL, "forward", lambda self, graphs: (embeddings.append(forward(self, graphs)), embeddings[-1])[1])
    results = run(tmp_path, num_train_epochs=1, per_device_train_batch_size=33, last_batch_norm=normalised)
    of_graphs, of_views = embeddings
    assert not torch.allclose(of_graphs, of_views)
    assert bool((of_views.mean(0).abs() < 1e-5).all()) == bool(normalised)
    similarity = torch.nn.functional.cosine_similarity(of_graphs[:, None], of_views[None], dim=2).exp() ** (1 / 0.2)
    positive = similarity.diagonal()
    expected = -(positive / (similarity.sum(1) - positive)).log().mean()
    assert results["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_training_tells_graphs_apart_and_moves_temperatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe: dict[str, Any] = {"num_train_epochs": 12, "per_device_train_batch_size": 32, "hidden": 32, "layers": 3}
    results = run(tmp_path, "learnable", graphs=toy_set(60, width=None), evaluate=True, folds=3, **recipe)
    assert losses(results)[-1] < losses(results)[0] - 0.3
    assert results["evaluation"]["accuracy"] > 90
    assert results["history"][-2]["temperature"] != pytest.approx(0.2, abs=1e-4)
    schedule = run(tmp_path / "schedule", "schedule:temperature_min=0.1,temperature_max=0.4,period=8")
    found = [entry["temperature"] for entry in schedule["history"]]
    assert len(set(found)) == 4
    assert 0.1 <= min(found) < max(found) <= 0.4
    method, data = GraphCLMethod(METHOD), Graphs(toy_set(20))
    module = method.build(METHOD.recipe(**SMALL), data, None).eval()
    together = method.representations(module, data)
    monkeypatch.setattr("tempplug_adapters.graph.graphcl_method._AT_ONCE", 7)
    torch.testing.assert_close(method.representations(module, data), together)


def test_batches_are_selected_once_and_views_drawn_anew() -> None:
    data, recipe = Graphs(toy_set(33)), METHOD.recipe(augmentations=("drop-nodes", "subgraph", "drop-edges"))
    first, second = (GraphCLMethod(METHOD).collate(recipe, data, torch.arange(5)) for _ in range(2))
    assert first["graphs"] is second["graphs"]
    assert first["views"].edge_index.shape != second["views"].edge_index.shape
    assert data.batch(torch.tensor([1, 0])).batch.tolist() != data.batch(torch.tensor([0, 1])).batch.tolist()


def test_strange_graphs_train(tmp_path: Path) -> None:
    assert set(NAMES) == set(AUGMENTATIONS)
    strange = [graph(1, []), graph(9, []), graph(12, [(0, 1)]), graph(5, ring(5)), graph(2, [(0, 0)])] * 3
    results = run(tmp_path / "strange", "macl", graphs=GraphSet.from_graphs(strange), augmentations=NAMES, dataset="COLLAB")
    assert all(map(math.isfinite, losses(results)))
    for written in (results, json.loads((tmp_path / "strange" / "settings.json").read_text())):
        assert written["recipe"]["augmentations"] == list(NAMES)
    with pytest.raises(ConfigError, match="1 items are too few"):
        run(tmp_path / "one", graphs=GraphSet.from_graphs(strange[:1]))


@pytest.mark.parametrize(
    ("name", "given", "pool"),
    [
        # random2, random3 and random4 of the code
        ("MUTAG", (), ("drop-nodes", "neighbourhood")),
        ("PROTEINS", (), ("drop-nodes", "neighbourhood", "drop-edges", "mask-attributes")),
        ("COLLAB", (), ("drop-nodes", "neighbourhood", "drop-edges")),
        ("MUTAG", ("subgraph",), ("subgraph",)),
    ],
)
def test_a_data_set_has_its_pool_unless_one_is_given(name: str, given: Any, pool: tuple[str, ...]) -> None:
    assert GraphCLMethod(METHOD).recipe_of(METHOD.recipe(augmentations=given), "fixed", name).augmentations == pool


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tu(tmp_path / "data" / "graph" / "tu", "TOY", toy_set(60))
    return tmp_path / "data"


def words(data: Path, output: Path, *more: str) -> list[str]:
    given = ["--dataset", "TOY", "--data-dir", str(data), "--output-dir", str(output), "--num-train-epochs", "6"]
    return ["train", "graphcl", *given, *more]


def test_a_command_writes_encoder_and_numbers(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    assert main(words(data, output, "--temperature-strategy", "macl", "--folds", "3")) == 0
    results = json.loads((output / "metrics.json").read_text())
    out = capsys.readouterr().out
    assert f"strategy {results['strategy']}\nobjective dcl\nlayout cross-view\nTOY: 60 graphs, " in out
    figures = [[name, f"{value:.4g}"] for name, value in results["evaluation"].items()]
    assert [line.split() for line in out.splitlines()[-3:-1]] == figures
    assert [name for name, _ in figures] == ["accuracy", "validation_accuracy"]
    assert results["evaluation"]["accuracy"] > 80
    assert len(list(output.glob("checkpoint-*"))) == 2
    graphs, method = Graphs(load_tu("TOY", tmp_path / "cache", data)), GraphCLMethod(METHOD)
    module = method.build(METHOD.recipe(), graphs, None).eval()
    module.encoder.load_state_dict(torch.load(output / "encoder.pt", weights_only=True))
    score = evaluate_svm(method.representations(module, graphs), graphs.all.labels, folds=3)  # type: ignore[arg-type]
    assert score.accuracy == pytest.approx(results["evaluation"]["accuracy"])


def test_what_is_not_measured_needs_no_classes(data: Path, tmp_path: Path) -> None:
    assert main(words(data, tmp_path / "run", "--folds", "40", "--no-evaluate")) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["evaluation"] == {}


def test_mutag_is_learnt(tmp_path: Path, data_dir: Path) -> None:
    flags = ["--dataset", "MUTAG", "--data-dir", str(data_dir), "--output-dir", str(tmp_path)]
    assert main(["train", "graphcl", *flags, "--num-train-epochs", "5", "--folds", "3", "--temperature-strategy", "macl"]) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert 80 < results["evaluation"]["accuracy"] < 95, "two thirds of the molecules are of one class"
