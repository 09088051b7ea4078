"""``tempplug train graphcl``: a step is GraphCL's formula, a plain loop to the bit, exact after a kill, pools by data set."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import graph, ring, toy_set, write_tu
from method_toys import Kill, Killed, plain_loop, weights, without_seconds
from torch import Tensor

from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.graph.augmentation import AUGMENTATIONS
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet
from tempplug_adapters.graph.graphcl_method import GraphCL, GraphCLMethod
from tempplug_adapters.graph.graphcl_recipe import AUGMENTATIONS as NAMES
from tempplug_adapters.graph.graphcl_recipe import METHOD, GraphCLRecipe
from tempplug_adapters.graph.graphs import Graphs
from tempplug_adapters.graph.svm import evaluate_svm
from tempplug_adapters.graph.tu_files import load_tu
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train

SMALL: dict[str, Any] = {"num_train_epochs": 4, "per_device_train_batch_size": 16, "hidden": 8, "layers": 2}
POOL = ("drop-nodes", "subgraph", "drop-edges")


def run(
    folder: Path, strategy: str = "fixed", objective: str | None = None, graphs: GraphSet | None = None, **more: Any
) -> dict[str, Any]:
    settings = {**SMALL, **{name: more.pop(name) for name in list(more) if name in GraphCLRecipe.kinds()}}
    flags = TemperatureArguments(strategy, [], objective)
    data = Graphs(toy_set(33) if graphs is None else graphs)
    return train(METHOD.load(), METHOD.recipe(**settings), data, flags, folder, **{"evaluate": False, **more})


def losses(results: dict[str, Any]) -> list[float]:
    return [entry["loss"] for entry in results["history"] if "loss" in entry]


def test_the_loss_of_a_batch_is_graphcls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings: list[Tensor] = []
    forward = GraphCL.forward

    def watching(self: GraphCL, graphs: GraphBatch) -> Tensor:
        embeddings.append(forward(self, graphs))
        return embeddings[-1]

    monkeypatch.setattr(GraphCL, "forward", watching)
    results = run(tmp_path, num_train_epochs=1, per_device_train_batch_size=33)
    of_graphs, of_views = embeddings
    assert not torch.allclose(of_graphs, of_views)
    similarity = torch.nn.functional.cosine_similarity(of_graphs[:, None], of_views[None], dim=2).exp() ** (1 / 0.2)
    positive = similarity.diagonal()
    expected = -(positive / (similarity.sum(1) - positive)).log().mean()
    assert results["loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("strategy", ["learnable", "schedule:temperature_min=0.1,temperature_max=0.4,period=3"])
def test_a_training_is_a_plain_loop_to_the_bit(tmp_path: Path, strategy: str) -> None:
    run(tmp_path, strategy, augmentations=POOL)
    recipe = GraphCLRecipe(**SMALL, augmentations=POOL)
    plain = plain_loop(GraphCLMethod(METHOD), recipe, Graphs(toy_set(33)), strategy).state_dict()
    found = weights(tmp_path)
    assert all(torch.equal(found[name], value) for name, value in plain.items() if isinstance(value, Tensor))


@pytest.mark.parametrize("strategy", ["macl", "learnable", "schedule:period=2", "individual"])
def test_a_killed_run_ends_as_if_it_had_not_been(strategy: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", strategy, evaluate=True, folds=2)
    with pytest.raises(Killed):
        run(tmp_path / "killed", strategy, callbacks=[Kill(5)], folds=2)
    torch.manual_seed(99)
    again = run(tmp_path / "killed", strategy, resume_from_checkpoint="auto", evaluate=True, folds=2)
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert without_seconds(again) == without_seconds(whole)


def test_training_tells_graphs_apart_and_lowers_the_loss(tmp_path: Path) -> None:
    graphs = toy_set(60, width=None)
    recipe = {"num_train_epochs": 12, "per_device_train_batch_size": 32, "hidden": 32, "layers": 3}
    results = run(tmp_path, graphs=graphs, evaluate=True, **recipe)
    assert losses(results)[-1] < losses(results)[0] - 0.3
    assert results["evaluation"]["accuracy"] > 90


def test_representations_do_not_depend_on_what_is_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    method, data = GraphCLMethod(METHOD), Graphs(toy_set(20))
    module = method.build(METHOD.recipe(**SMALL), data, None).eval()
    together = method.representations(module, data)
    assert together.shape == (20, 16)
    monkeypatch.setattr("tempplug_adapters.graph.graphcl_method._AT_ONCE", 7)
    torch.testing.assert_close(method.representations(module, data), together)


def test_batches_are_cut_once_and_views_drawn_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []
    original = GraphSet.batch
    monkeypatch.setattr(GraphSet, "batch", lambda self, index: cut.append(len(index)) or original(self, index))
    run(tmp_path, graphs=toy_set(33))
    assert cut == [16, 17], "four epochs have the same two batches, of which none is a graph alone"
    data, recipe = Graphs(toy_set(33)), METHOD.recipe(augmentations=POOL)
    first, second = (GraphCLMethod(METHOD).collate(recipe, data, torch.arange(5)) for _ in range(2))
    assert first["graphs"] is second["graphs"]
    assert first["views"].edge_index.shape != second["views"].edge_index.shape
    assert data.batch(torch.tensor([1, 0])).batch.tolist() != data.batch(torch.tensor([0, 1])).batch.tolist()


def test_a_learnable_temperature_learns_and_a_schedule_moves(tmp_path: Path) -> None:
    learnable = run(tmp_path / "learnable", "learnable")
    assert learnable["objective"] == "infonce"
    assert learnable["history"][-1]["temperature"] != pytest.approx(0.2, abs=1e-4)
    schedule = run(tmp_path / "schedule", "schedule:temperature_min=0.1,temperature_max=0.4,period=8")
    found = [entry["temperature"] for entry in schedule["history"]]
    assert len(set(found)) == 4
    assert 0.1 <= min(found) < max(found) <= 0.4


def test_bfloat16_trains(tmp_path: Path) -> None:
    half, full = (run(tmp_path / str(bf16), bf16=bf16) for bf16 in (True, False))
    assert half["loss"] == pytest.approx(full["loss"], rel=0.05)
    assert half["loss"] != full["loss"]


def test_strange_graphs_train(tmp_path: Path) -> None:
    strange = [graph(1, []), graph(9, []), graph(12, [(0, 1)]), graph(5, ring(5)), graph(2, [(0, 0)])] * 3
    results = run(tmp_path / "strange", "macl", graphs=GraphSet.from_graphs(strange), augmentations=NAMES)
    assert all(map(math.isfinite, losses(results)))
    with pytest.raises(ConfigError, match="1 items are too few"):
        run(tmp_path / "one", graphs=GraphSet.from_graphs(strange[:1]))


def test_the_recipe_is_that_of_graphcls_code() -> None:
    """You et al. 2020, unsupervised learning on TU data sets: Adam 0.01, 128 graphs a step, 20 epochs, 3 layers of 32."""
    recipe = METHOD.recipe()
    assert (recipe.num_train_epochs, recipe.per_device_train_batch_size) == (20, 128)
    assert (recipe.learning_rate, recipe.optimizer, recipe.weight_decay) == (0.01, "adam", 0)
    settings = recipe.values()
    assert (settings["hidden"], settings["layers"], settings["folds"]) == (32, 3, 10)
    assert set(NAMES) == set(AUGMENTATIONS)
    method, data = GraphCLMethod(METHOD), Graphs(toy_set(30))
    for given, strategy, objective in [
        ("fixed", "fixed:temperature=0.2", "dcl"),
        ("fixed:temperature=0.1", "fixed:temperature=0.1", "dcl"),
        # Huang et al. 2023, appendix B.5
        ("macl:alpha=1", "macl:base_temperature=0.2,alpha=1,threshold=0,floor_ratio=0.1,strict=false", "dcl"),
        ("dystress", "dystress:temperature_min=0.1,temperature_max=0.2", "dcl"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.1,temperature_max=0.4,period=4,seed=0", "dcl"),
        ("learnable", "learnable:initial_temperature=0.2", "infonce"),
        ("individual", "individual:size=30,temperature_init=0.2", "dcl"),
        ("amcl", "amcl:dimension=96", "dcl"),
    ]:
        loss = method.create_loss(recipe, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert (loss.objective.name, loss.layout.name) == (objective, "cross-view")


def test_a_data_set_has_its_pool_unless_one_is_given(tmp_path: Path) -> None:
    """random2, random3 and random4 of the code: no edges of molecules are dropped, attributes masked where there are some."""
    pools = {
        "MUTAG": ["drop-nodes", "neighbourhood"],
        "PROTEINS": ["drop-nodes", "neighbourhood", "drop-edges", "mask-attributes"],
        "COLLAB": ["drop-nodes", "neighbourhood", "drop-edges"],
    }
    for name, pool in pools.items():
        assert run(tmp_path / name, dataset=name, num_train_epochs=0)["recipe"]["augmentations"] == pool
    given = run(tmp_path / "given", dataset="MUTAG", augmentations=("subgraph",), num_train_epochs=1)
    assert given["recipe"]["augmentations"] == ["subgraph"]
    assert json.loads((tmp_path / "given" / "settings.json").read_text())["recipe"]["augmentations"] == ["subgraph"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tu(tmp_path / "data" / "graph" / "tu", "TOY", toy_set(60))
    return tmp_path / "data"


def words(data: Path, output: Path, *more: str) -> list[str]:
    given = ["--dataset", "TOY", "--data-dir", str(data), "--output-dir", str(output), "--num-train-epochs", "6"]
    return ["train", "graphcl", *given, *more]


def test_a_command_writes_encoder_and_numbers(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    assert main(words(data, output, "--temperature-strategy", "macl")) == 0
    results = json.loads((output / "metrics.json").read_text())
    out = capsys.readouterr().out
    assert results["strategy"] == "macl:base_temperature=0.2,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false"
    assert f"strategy {results['strategy']}\nobjective dcl\nlayout cross-view\nTOY: 60 graphs, " in out
    figures = [[name, f"{value:.2f}"] for name, value in results["evaluation"].items()]
    assert [line.split() for line in out.splitlines()[-2:]] == figures
    assert [name for name, _ in figures] == ["accuracy", "validation_accuracy"]
    assert results["evaluation"]["accuracy"] > 80
    assert len(list(output.glob("checkpoint-*"))) == 2
    module = GraphCLMethod(METHOD).build(METHOD.recipe(), Graphs(load_tu("TOY", tmp_path / "cache", data)), None)
    module.encoder.load_state_dict(torch.load(output / "encoder.pt", weights_only=True))
    graphs = Graphs(load_tu("TOY", tmp_path / "cache", data))
    assert graphs.all.labels is not None
    score = evaluate_svm(GraphCLMethod(METHOD).representations(module.eval(), graphs), graphs.all.labels)
    assert score.accuracy == pytest.approx(results["evaluation"]["accuracy"])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ["--augmentations", "drop-node"],
            "unknown augmentation 'drop-node'. Did you mean 'drop-nodes'?",
        ),
        (["--temperature-args", "temperature=-1"], "temperature=-1 of strategy 'fixed' must be greater than 0."),
        (["--dataset", "NONE"], "NONE.tar.xz does not exist"),
        (["--hidden", "0"], "hidden=0 must be an integer, at least 1."),
        (["--folds", "40"], "a class has 30 members, too few for 40 folds"),
    ],
)
def test_faults_end_with_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(data, tmp_path / "run", *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert not list((tmp_path / "run").glob("checkpoint-*")), "said before the training"


def test_what_is_not_measured_needs_no_classes(data: Path, tmp_path: Path) -> None:
    assert main(words(data, tmp_path / "run", "--folds", "40", "--no-evaluate")) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["evaluation"] == {}


def test_mutag_is_learnt(tmp_path: Path, data_dir: Path) -> None:
    flags = ["--dataset", "MUTAG", "--data-dir", str(data_dir), "--output-dir", str(tmp_path)]
    assert main(["train", "graphcl", *flags, "--temperature-strategy", "macl"]) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert 80 < results["evaluation"]["accuracy"] < 95, "two thirds of the molecules are of one class"
    assert results["recipe"]["augmentations"] == ["drop-nodes", "neighbourhood"]
