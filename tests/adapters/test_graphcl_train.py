"""``tempplug train graphcl``: a step is GraphCL's formula, runs resume bit for bit, recipes fill flags, faults are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graphcl_toys import graph, ring, toy_set, write_tu
from torch import Tensor

import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet, load_tu
from tempplug_adapters.graph.graphcl import GraphCL
from tempplug_adapters.graph.graphcl_command import create_loss, main
from tempplug_adapters.graph.graphcl_recipe import GraphCLSettings, augmentations_for
from tempplug_adapters.graph.graphcl_train import LAYOUT, Batches, represent, train_graphcl
from tempplug_adapters.graph.svm import evaluate_svm
from tempplug_adapters.huggingface import TemperatureArguments

SETTINGS = GraphCLSettings(epochs=4, batch_size=16, hidden=8, layers=2, augmentations=("drop-nodes", "subgraph", "drop-edges"))


def loss_of(strategy: str = "fixed:temperature=0.2", objective: str = "dcl") -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(strategy, objective, LAYOUT)


def test_the_loss_of_a_batch_is_graphcls(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings: list[Tensor] = []
    forward = GraphCL.forward

    def watching(self: GraphCL, graphs: GraphBatch) -> Tensor:
        embeddings.append(forward(self, graphs))
        return embeddings[-1]

    monkeypatch.setattr(GraphCL, "forward", watching)
    _, history = train_graphcl(toy_set(30), loss_of(), GraphCLSettings(epochs=1, batch_size=30))
    of_graphs, of_views = embeddings
    assert not torch.allclose(of_graphs, of_views)
    similarity = torch.nn.functional.cosine_similarity(of_graphs[:, None], of_views[None], dim=2).exp() ** (1 / 0.2)
    positive = similarity.diagonal()
    expected = -(positive / (similarity.sum(1) - positive)).log().mean()
    assert history == [pytest.approx(expected.item(), rel=1e-5)]


def test_training_tells_graphs_apart_and_lowers_the_loss() -> None:
    graphs = toy_set(60, width=None)
    settings = GraphCLSettings(epochs=12, batch_size=32)
    state = torch.get_rng_state()
    model, history = train_graphcl(graphs, loss_of(), settings)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"
    assert history[-1] < history[0] - 0.3
    found = represent(model, graphs, batch_size=7)
    assert found.shape == (60, 96)
    torch.testing.assert_close(found, represent(model, graphs))
    assert graphs.labels is not None
    assert evaluate_svm(found, graphs.labels).accuracy > 90


@pytest.mark.parametrize("strategy", ["macl", "learnable", "schedule:period=2", "temperature-free"])
def test_an_interrupted_run_ends_with_the_same_weights(strategy: str, tmp_path: Path) -> None:
    graphs = toy_set()
    whole, history = train_graphcl(graphs, loss_of(strategy), SETTINGS)
    steps = 0

    class Stopping(tempplug.ContrastiveLoss):
        def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
            nonlocal steps
            steps += 1
            if steps == 2 * 3 + 2:  # in the middle of the third epoch
                raise KeyboardInterrupt
            return super().forward(*args, **kwargs)

    file = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        train_graphcl(graphs, Stopping(strategy, "dcl", LAYOUT), SETTINGS, checkpoint=file)
    loss = loss_of(strategy)
    resumed, rest = train_graphcl(graphs, loss, SETTINGS, checkpoint=file)
    assert rest == history[2:]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    other = SETTINGS.__class__(**{**SETTINGS.values(), "augmentations": ("drop-nodes",)})
    with pytest.raises(ConfigError, match="augmentations=drop-nodes differs from the checkpoint's drop-nodes subgraph"):
        train_graphcl(graphs, loss_of(strategy), other, checkpoint=file)


def test_a_learnable_temperature_learns_and_a_schedule_moves() -> None:
    learnable = loss_of("learnable:initial_temperature=0.2", "infonce")
    before = {name: value.clone() for name, value in learnable.state_dict().items()}
    train_graphcl(toy_set(), learnable, SETTINGS)
    assert any(not torch.equal(value, before[name]) for name, value in learnable.state_dict().items())
    temperatures = []
    schedule = loss_of("schedule:temperature_min=0.1,temperature_max=0.4,period=4")
    train_graphcl(
        toy_set(), schedule, SETTINGS, progress=lambda *_: temperatures.append(schedule.record.temperature_mean.item())
    )
    assert len(set(temperatures)) == 4
    assert 0.1 <= min(temperatures) < max(temperatures) <= 0.4


def test_batches_divide_the_data_and_leave_no_graph_alone() -> None:
    graphs = toy_set(33)
    order = torch.randperm(33)
    batches = Batches(graphs, 16, order)
    assert [len(index) for index, _ in batches] == [16, 17]
    assert len(batches) == 2
    assert torch.equal(torch.cat([index for index, _ in batches]), order)
    for index, batch in batches:
        assert torch.equal(batch.x, graphs.batch(index).x)
    assert [batch.num_graphs for _, batch in Batches(graphs, 40, order)] == [33]


def test_strange_graphs_train() -> None:
    strange = [graph(1, []), graph(9, []), graph(12, [(0, 1)]), graph(5, ring(5)), graph(2, [(0, 0)])] * 3
    settings = GraphCLSettings(
        epochs=2, augmentations=("drop-nodes", "drop-edges", "mask-attributes", "subgraph", "neighbourhood")
    )
    _, history = train_graphcl(GraphSet.from_graphs(strange), loss_of("macl"), settings)
    assert all(torch.tensor(history).isfinite())
    with pytest.raises(ConfigError, match="the data set has one graph: contrastive training needs at least two"):
        train_graphcl(GraphSet.from_graphs(strange[:1]), loss_of(), settings)
    with pytest.raises(UnknownNameError, match="unknown augmentation 'rotate'"):
        train_graphcl(toy_set(), loss_of(), GraphCLSettings(augmentations=("rotate",)))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"batch_size": 1}, "batch_size=1 must be at least 2"),
        ({"seed": -1}, "seed=-1 must be from 0 to"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be from 0 to"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0"),
    ],
)
def test_settings_are_checked(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GraphCLSettings(**setting)  # type: ignore[arg-type]


def test_the_recipe_fills_what_the_flags_leave_out() -> None:
    for given, expected in [
        ("fixed", "fixed:temperature=0.2"),
        ("fixed:temperature=0.1", "fixed:temperature=0.1"),
        ("macl:alpha=1", "macl:base_temperature=0.2,alpha=1,threshold=0,floor_ratio=0.1,strict=false"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.1,temperature_max=0.4,period=4,seed=0"),
    ]:
        loss = create_loss(TemperatureArguments(given, contrastive_objective="dcl"), GraphCLSettings(), 100)
        assert loss.strategy.spec() == expected
    assert augmentations_for("MUTAG") != augmentations_for("PROTEINS") != augmentations_for("COLLAB")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tu(tmp_path / "data" / "graph" / "tu", "TOY", toy_set(60))
    return tmp_path / "data"


def words(data: Path, output: Path, *more: str) -> list[str]:
    return ["--dataset", "TOY", "--data-dir", str(data), "--output-dir", str(output), "--epochs", "6", *more]


def test_a_run_writes_encoder_and_numbers(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    assert main(words(data, output, "--temperature-strategy", "macl")) == 0
    metrics = json.loads((output / "metrics.json").read_text())
    out = capsys.readouterr().out
    assert metrics["strategy"] == "macl:base_temperature=0.2,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false"
    assert metrics["objective"] == "dcl"
    assert f"strategy {metrics['strategy']}\nobjective dcl\nTOY: 60 graphs" in out
    assert f"accuracy   {metrics['accuracy']:.2f}" in out
    assert metrics["accuracy"] > 80
    assert len(metrics["folds"]) == 10
    model = GraphCL(3)
    model.encoder.load_state_dict(torch.load(output / "encoder.pt", weights_only=True))
    graphs = load_tu("TOY", tmp_path / "cache", data)
    assert graphs.labels is not None
    assert evaluate_svm(represent(model, graphs), graphs.labels).accuracy == pytest.approx(metrics["accuracy"])


def test_a_killed_command_goes_on_to_the_same_encoder(data: Path, tmp_path: Path) -> None:
    more = ("--resume-from-checkpoint", "auto", "--no-evaluate", "--temperature-strategy", "macl")
    assert main(words(data, tmp_path / "whole", *more)) == 0
    program = (
        "import os, signal, sys\n"
        "import tempplug_adapters.graph.graphcl_train as train\n"
        "save = train.save_checkpoint\n"
        "def kill(path, epoch, **state):\n"
        "    save(path, epoch, **state)\n"
        "    if epoch == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train.save_checkpoint = kill\n"
        "from tempplug_adapters.graph.graphcl_command import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, *words(data, tmp_path / "killed", *more)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    del environment["PYTEST_CURRENT_TEST"]  # it would silence PyTorch Geometric
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == b"", "PyTorch Geometric's own talk is kept away"
    assert not (tmp_path / "killed" / "encoder.pt").exists()
    assert main(words(data, tmp_path / "killed", *more)) == 0
    whole, killed = (torch.load(tmp_path / run / "encoder.pt", weights_only=True) for run in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert json.loads((tmp_path / "killed" / "metrics.json").read_text())["epochs_now"] == 3


def test_a_new_run_does_not_write_over_an_old_one(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(data, tmp_path / "run", "--no-evaluate")) == 0
    assert main(words(data, tmp_path / "run", "--no-evaluate")) == 2
    assert "holds the checkpoint of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (["--temperature-args", "temperature=-1"], "temperature=-1 of strategy 'fixed' must be greater than 0."),
        (["--contrastive-objective", "dcll"], "unknown objective 'dcll'. Did you mean 'dcl'?"),
        (["--augmentations", "drop-node"], "unknown augmentation 'drop-node'. Did you mean 'drop-nodes'?"),
        (["--dataset", "NONE"], "NONE.tar.xz does not exist"),
        (["--data-dir", "nowhere"], "--data-dir nowhere is not a folder."),
        (["--epochs", "0"], "epochs=0 must be at least 1."),
        (["--device", "abacus"], "device='abacus' must be auto, cpu, cuda or cuda:N."),
        (["--resume-from-checkpoint", "nowhere.pt"], "resume_from_checkpoint='nowhere.pt' does not exist"),
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


def test_mutag_is_learnt(tmp_path: Path, data_dir: Path) -> None:
    flags = ["--dataset", "MUTAG", "--data-dir", str(data_dir), "--output-dir", str(tmp_path), "--temperature-strategy", "macl"]
    assert main(flags) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert 80 < metrics["accuracy"] < 95, "two thirds of the molecules are of one class"
    assert metrics["augmentations"] == "drop-nodes neighbourhood"
