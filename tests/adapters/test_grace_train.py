"""``tempplug train grace`` on generated graphs: runs resume exactly, odd graphs train, what is at fault is named."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import tempplug_adapters.graph.grace_train as module
from tempplug_adapters.graph.grace_command import main
from tempplug_adapters.graph.grace_recipe import GraceSettings
from tempplug_adapters.graph.grace_train import create_loss, train_grace
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoint import CHECKPOINT
from tempplug_benchmarks.tasks.node_generated import citation_graph

SHORT = GraceSettings(epochs=6)
SCHEDULE = "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=4"


@pytest.fixture(autouse=True)
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = module.evaluate_nodes
    monkeypatch.setattr(module, "evaluate_nodes", lambda *given: original(*given, steps=60))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("graphs") / "toy.pt"
    torch.save(citation_graph(0), file)
    return file


def words(saved: Path, output: Path, *more: str) -> list[str]:
    return ["--dataset", str(saved), "--output-dir", str(output), "--epochs", "6", "--device", "cpu", *more]


def weights(output: Path) -> dict[str, torch.Tensor]:
    state = torch.load(output / CHECKPOINT, weights_only=True)
    of_loss = {f"loss.{name}": value for name, value in state["loss"].items() if isinstance(value, torch.Tensor)}
    return {**state["model"], **of_loss}


def test_a_run_writes_specs_numbers_and_representations(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--temperature-strategy", "macl:alpha=1", "--contrastive-objective", "dcl", "--edge-removal", "0.2", "0.4"]
    assert main(words(saved, tmp_path, *more)) == 0
    out = capsys.readouterr().out
    results = json.loads((tmp_path / "metrics.json").read_text())
    spec = "macl:base_temperature=0.5,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert results["strategy"] == spec
    assert f"strategy {spec}\nobjective dcl" in out
    assert results["settings"]["edge_removal"] == [0.2, 0.4]
    assert results["settings"]["feature_masking"] == [0.3, 0.3]
    assert set(results["evaluation"]) == {"10/80/10", "10/10/80"}
    assert f"10/10/80  F1-micro {results['evaluation']['10/10/80']['micro']:6.2f}" in out
    assert results["seconds_per_epoch"] > 0
    representations = torch.load(tmp_path / "representations.pt", weights_only=True)
    assert representations.shape == (600, 32)
    assert torch.isfinite(representations).all()


def test_training_finds_the_classes(tmp_path: Path) -> None:
    few, many = (
        train_grace(citation_graph(0), TemperatureArguments(), GraceSettings(epochs=epochs), tmp_path / str(epochs))
        for epochs in (1, 40)
    )
    assert many["evaluation"]["10/10/80"]["micro"] > few["evaluation"]["10/10/80"]["micro"] + 10
    assert many["loss"] < few["loss"]


def test_each_epoch_has_new_views_of_both_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[float, ...], int]] = []
    original = module.corrupt

    def watch(edge_index: torch.Tensor, columns: int, *shares: float) -> Any:
        view = original(edge_index, columns, *shares)
        seen.append((shares, hash(str(view.edge_index.tolist()))))
        return view

    monkeypatch.setattr(module, "corrupt", watch)
    settings = GraceSettings(epochs=3, edge_removal=(0.1, 0.2), feature_masking=(0.3, 0.4))
    train_grace(citation_graph(0), TemperatureArguments(), settings, tmp_path)
    assert [shares for shares, _ in seen] == [(0.1, 0.3), (0.2, 0.4)] * 3
    assert len({edges for _, edges in seen}) == 6


def test_the_loss_is_told_the_epoch_and_which_nodes_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = [], []
    original = module.create_loss

    def watched(*given: Any) -> Any:
        loss = original(*given)
        loss.register_forward_pre_hook(lambda _, __, named: seen.append(named["index"]), with_kwargs=True)
        made.append(loss)
        return loss

    monkeypatch.setattr(module, "create_loss", watched)
    train_grace(citation_graph(0), TemperatureArguments(SCHEDULE), GraceSettings(epochs=6, batch_size=300), tmp_path)
    # The last epoch is number 5, a quarter into the second period: halfway from 0.9 down to 0.2.
    assert made[0].record.temperature_mean.item() == pytest.approx(0.55)
    assert [len(index) for index in seen] == [300] * 12
    assert torch.equal(torch.cat(seen[-2:]).sort().values, torch.arange(600))


class Killed(Exception):
    """Stands for a run that ends in the middle."""


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [(SCHEDULE, SHORT), ("learnable", GraceSettings(epochs=6, batch_size=250, neighbours=2, activation="prelu"))],
    ids=["whole-schedule", "batches-learnable"],
)
def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path: Path, strategy: str, settings: GraceSettings) -> None:
    graph, temperature = citation_graph(0), TemperatureArguments(strategy)
    whole = train_grace(graph, temperature, settings, tmp_path / "whole", save_epochs=2)

    def die(done: int, loss: float) -> None:
        if done == 5:
            raise Killed

    with pytest.raises(Killed):
        train_grace(graph, temperature, settings, tmp_path / "killed", save_epochs=2, progress=die)
    assert torch.load(tmp_path / "killed" / CHECKPOINT, weights_only=True)["epoch"] == 4
    torch.manual_seed(99)
    resumed: list[int] = []
    again = train_grace(
        graph,
        temperature,
        settings,
        tmp_path / "killed",
        save_epochs=2,
        resume_from_checkpoint="auto",
        progress=lambda done, _: resumed.append(done),
    )
    assert resumed == [5, 6]
    assert (again["loss"], again["evaluation"]) == (whole["loss"], whole["evaluation"])
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_killed_command_resumes_to_the_same_bits(saved: Path, tmp_path: Path) -> None:
    more = ["--epochs", "60", "--save-epochs", "3", "--resume-from-checkpoint", "auto"]
    command = [sys.executable, "-m", "tempplug.cli", "train", "grace", *words(saved, tmp_path / "killed", *more)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "killed" / CHECKPOINT).is_file() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert torch.load(tmp_path / "killed" / CHECKPOINT, weights_only=True)["epoch"] < 60
    for name in ("killed", "whole"):
        assert main(words(saved, tmp_path / name, *more)) == 0
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_finished_run_only_evaluates_again(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(saved, tmp_path)) == 0
    first = json.loads((tmp_path / "metrics.json").read_text())
    assert main(words(saved, tmp_path, "--resume-from-checkpoint", "auto")) == 0
    again = json.loads((tmp_path / "metrics.json").read_text())
    assert again["evaluation"] == first["evaluation"]
    assert again["seconds_per_epoch"] is None
    capsys.readouterr()
    assert main(words(saved, tmp_path)) == 2
    assert "holds the checkpoint of an earlier run" in capsys.readouterr().err
    assert main(words(saved, tmp_path, "--resume-from-checkpoint", "auto", "--hidden", "16")) == 2
    assert "hidden=16 differs from the checkpoint's 32" in capsys.readouterr().err


@pytest.mark.parametrize("batch_size", [None, 4], ids=["whole", "batches"])
@pytest.mark.parametrize("edges", [0, 12], ids=["no-edges", "isolated-nodes"])
def test_graphs_with_isolated_nodes_and_empty_features_train(tmp_path: Path, batch_size: int | None, edges: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(14, 8, generator=generator)
    x[3] = 0
    graph = Data(x=x, edge_index=torch.randint(6, (2, edges), generator=generator), y=torch.arange(14) % 2)
    settings = GraceSettings(epochs=3, batch_size=batch_size)
    results = train_grace(graph, TemperatureArguments("temperature-free"), settings, tmp_path)
    assert math.isfinite(results["loss"])
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


def test_the_smallest_graph_trains_without_classes(tmp_path: Path) -> None:
    graph = Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))
    results = train_grace(graph, TemperatureArguments(), SHORT, tmp_path)
    assert results["evaluation"] == {}
    assert math.isfinite(results["loss"])


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_grace(citation_graph(0), TemperatureArguments(), GraceSettings(epochs=2, seed=seed), tmp_path / name)
    first, same, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_recipe_fills_what_the_flags_leave_out() -> None:
    for given, expected in [
        ("fixed", "fixed:temperature=0.5"),
        ("fixed:temperature=0.1", "fixed:temperature=0.1"),
        ("temperature-free", "temperature-free:eps=0.0001"),
        ("dystress:temperature_max=0.8", "dystress:temperature_min=0.25,temperature_max=0.8,profile=cosine"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.25,temperature_max=1,period=1.2,seed=0"),
    ]:
        assert create_loss(TemperatureArguments(given), SHORT, nodes=5).strategy.spec().startswith(expected)


def test_learned_temperatures_move_and_are_spared_weight_decay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[dict[str, Any]] = []

    class Watching(torch.optim.Adam):
        def __init__(self, given: Iterable[Any], **options: Any) -> None:
            parameters = list(given)
            groups.extend(each for each in parameters if isinstance(each, dict))
            super().__init__(parameters, **options)

    monkeypatch.setattr(torch.optim, "Adam", Watching)
    settings = GraceSettings(epochs=3, weight_decay=0.1)
    train_grace(citation_graph(0), TemperatureArguments("learnable"), settings, tmp_path)
    decayed = {id(each): group["weight_decay"] for group in groups for each in group["params"]}
    assert sorted(set(decayed.values())) == [0.0, 0.1]
    assert list(decayed.values()).count(0.0) == 1
    assert weights(tmp_path)["loss.strategy.log_scale"].item() != pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (["--dataset", "Coro"], "no data set 'Coro'. Did you mean 'Cora'?"),
        (["--epochs", "0"], "epochs=0 must be at least 1."),
        (["--learning-rate", "0"], "learning_rate=0.0 must be greater than 0."),
        (["--edge-removal", "1"], "edge_removal=(1.0, 1.0) must be two numbers, each at least 0 and less than 1."),
        (["--feature-masking", "0.1", "0.2", "0.3"], "feature_masking takes one number for both views or two, not 3."),
        (["--batch-size", "1"], "batch_size=1 must be at least 2."),
        (["--save-epochs", "0"], "save_epochs=0 must be at least 1."),
        (["--resume-from-checkpoint", "nowhere"], "resume_from_checkpoint='nowhere' does not exist"),
        (["--temperature-strategy", "uncertainty"], "uncertainty"),
    ],
)
def test_faults_end_with_one_line(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(saved, tmp_path, *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "error: " in err
    assert "Traceback" not in err


def test_the_command_reads_public_graphs(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--dataset", "CiteSeer", "--data-dir", str(data_dir), "--epochs", "20"]
    assert main(["--output-dir", str(tmp_path), "--device", "cpu", "--temperature-strategy", "temperature-free", *more]) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["nodes"] == 3327
    assert 35 < results["evaluation"]["10/10/80"]["micro"] < 80
