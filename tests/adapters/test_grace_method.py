"""``tempplug train grace`` on generated graphs: a plain loop to the bit, exact after a kill, odd graphs train."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import plain_loop, weights
from torch_geometric.data import Data

import tempplug_adapters.graph.grace_method as module
from tempplug.cli import main
from tempplug_adapters.graph.grace_method import GraceMethod
from tempplug_adapters.graph.grace_recipe import METHOD, PROTOCOLS, GraceRecipe
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node_generated import citation_graph

SCHEDULE = "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=4"
BATCHES: dict[str, Any] = {"per_device_train_batch_size": 250, "neighbours": 2, "activation": "prelu"}


@pytest.fixture(autouse=True)
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = module.evaluate_nodes
    monkeypatch.setattr(module, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=60))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("graphs") / "toy.pt"
    torch.save(citation_graph(0), file)
    return file


def run(graph: Data, folder: Path, strategy: str = "fixed", **settings: Any) -> dict[str, Any]:
    recipe = GraceRecipe(**{"num_train_epochs": 4, **settings})
    return train(GraceMethod(METHOD), recipe, Nodes(graph), TemperatureArguments(strategy, [], None), folder)


def words(saved: Path, output: Path, *more: str) -> list[str]:
    return ["train", "grace", "--dataset", str(saved), "--output-dir", str(output), "--num-train-epochs", "4", *more]


def test_a_run_writes_specs_numbers_and_representations(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--temperature-strategy", "macl:alpha=1", "--contrastive-objective", "dcl", "--edge-removal", "0.2", "0.4"]
    assert main(words(saved, tmp_path, *more)) == 0
    out = capsys.readouterr().out
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["strategy"] == "macl:base_temperature=0.5,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert results["objective"] == "dcl"
    assert "600 nodes, " in out
    assert results["recipe"]["edge_removal"] == [0.2, 0.4]
    kinds = ("micro", "macro", "validation")
    assert results["evaluation"].keys() == {f"f1_{kind} {name}" for kind in kinds for name in PROTOCOLS}
    representations = torch.load(tmp_path / "representations.pt", weights_only=True)
    assert representations.shape == (600, 32)
    assert torch.isfinite(representations).all()
    encoder = torch.load(tmp_path / "encoder.pt", weights_only=True)
    assert {name.split(".")[0] for name in encoder} == {"layers"}


@pytest.mark.parametrize(
    ("strategy", "settings"), [(SCHEDULE, {}), ("learnable", BATCHES)], ids=["whole-schedule", "batches-learnable"]
)
def test_a_training_is_a_plain_loop_to_the_bit(tmp_path: Path, strategy: str, settings: dict[str, Any]) -> None:
    run(citation_graph(0), tmp_path, strategy, **settings)
    recipe = GraceRecipe(num_train_epochs=4, **settings)
    plain = plain_loop(GraceMethod(METHOD), recipe, Nodes(citation_graph(0)), strategy).state_dict()
    found = weights(tmp_path)
    assert all(torch.equal(found[name], value) for name, value in plain.items() if isinstance(value, torch.Tensor))


def test_training_finds_the_classes(tmp_path: Path) -> None:
    few, many = (run(citation_graph(0), tmp_path / str(epochs), num_train_epochs=epochs) for epochs in (1, 40))
    assert many["evaluation"]["f1_micro 10/10/80"] > few["evaluation"]["f1_micro 10/10/80"] + 10
    assert many["loss"] < few["loss"]


def test_views_are_new_and_have_their_own_shares() -> None:
    method, data = GraceMethod(METHOD), Nodes(citation_graph(0))
    recipe = GraceRecipe(edge_removal=(0.1, 0.6), feature_masking=(0.0, 0.9))
    first, second = (method.collate(recipe, data, torch.arange(600)) for _ in range(2))
    edges = data.edge_index.shape[1]
    view_a, view_b = first["views"]
    assert view_a.edge_index.shape[1] / edges == pytest.approx(0.9, abs=0.03)
    assert view_b.edge_index.shape[1] / edges == pytest.approx(0.4, abs=0.05)
    assert bool(view_a.columns.all())
    assert float(view_b.columns.mean()) < 0.4
    assert not torch.equal(view_a.edge_index, second["views"][0].edge_index)
    assert first["nodes"] is None


def test_a_batch_contrasts_its_nodes_alone() -> None:
    method, data = GraceMethod(METHOD), Nodes(citation_graph(0))
    recipe = GraceRecipe(**BATCHES)
    index = torch.tensor([3, 500, 77])
    batch = method.collate(recipe, data, index)
    assert torch.equal(batch["seeds"], index)
    assert torch.equal(batch["nodes"][:3], index)
    assert len(batch["nodes"]) > 3


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 4], ids=["whole", "batches"])
@pytest.mark.parametrize("edges", [0, 12], ids=["no-edges", "isolated-nodes"])
def test_graphs_with_isolated_nodes_and_empty_features_train(tmp_path: Path, batch_size: int | None, edges: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(14, 8, generator=generator)
    x[3] = 0
    graph = Data(x=x, edge_index=torch.randint(6, (2, edges), generator=generator), y=torch.arange(14) % 2)
    results = run(graph, tmp_path, "temperature-free", per_device_train_batch_size=batch_size)
    assert math.isfinite(results["loss"])
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


def test_the_smallest_graph_trains_without_classes(tmp_path: Path) -> None:
    results = run(Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]])), tmp_path)
    assert results["evaluation"] == {}
    assert math.isfinite(results["loss"])


def test_the_recipe_is_that_of_the_papers_table() -> None:
    """Temperature-Free Loss Function for Contrastive Learning, table 3: PyGCL's example of GRACE, 1,000 epochs."""
    recipe = METHOD.recipe()
    assert (recipe.num_train_epochs, recipe.learning_rate, recipe.weight_decay, recipe.optimizer) == (1000, 0.01, 0, "adam")
    assert (recipe.hidden, recipe.projection, recipe.layers, recipe.activation) == (32, 32, 2, "relu")
    assert (recipe.edge_removal, recipe.feature_masking) == ((0.3,), (0.3,))
    method, data = GraceMethod(METHOD), Nodes(citation_graph(0))
    for given, strategy, objective in [
        ("fixed", "fixed:temperature=0.5", "infonce"),
        ("fixed:temperature=0.1", "fixed:temperature=0.1", "infonce"),
        ("macl", "macl:base_temperature=0.5,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false", "reweighted"),
        ("dystress:temperature_max=0.8", "dystress:temperature_min=0.25,temperature_max=0.8,profile=cosine", "infonce"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.25,temperature_max=1,period=200", "infonce"),
        ("individual", "individual:size=600,temperature_init=0.5", "infonce"),
        ("amcl", "amcl:dimension=32", "dcl"),
    ]:
        loss = method.create_loss(recipe, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert loss.objective.spec() == objective


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--dataset", "Coro"], "no data set 'Coro'. Did you mean 'Cora'?"),
        (["--edge-removal", "1"], "item 1 of edge_removal=1 must be at least 0 and less than 1."),
        (["--feature-masking", "0.1", "0.2", "0.3"], "feature_masking=0.1 0.2 0.3 must be a list of 1 to 2 numbers"),
        (["--per-device-train-batch-size", "1"], "per_device_train_batch_size=1 must be an integer, at least 2."),
    ],
)
def test_faults_end_with_one_line(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(saved, tmp_path, *extra)) == 2
    err = capsys.readouterr().err
    assert f"error: {message}" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_command_reads_public_graphs(data_dir: Path, tmp_path: Path) -> None:
    more = ["--dataset", "CiteSeer", "--data-dir", str(data_dir), "--num-train-epochs", "20"]
    assert main(["train", "grace", "--output-dir", str(tmp_path), "--temperature-strategy", "temperature-free", *more]) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["items"] == 3327
    assert 35 < results["evaluation"]["f1_micro 10/10/80"] < 80
