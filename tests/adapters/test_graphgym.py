"""GraphGym with the network, loss and metrics of ours: its own training from a configuration, and the example on Cora."""

# ruff: noqa: E402 - what is imported last warns without yacs
from __future__ import annotations

import json
import logging
import math
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset

pytest.importorskip("yacs", reason="GraphGym needs yacs: pip install -c constraints.txt -e '.[graphgym]'")
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:.*(many workers|logging interval|pin_memory|litlogger|treespec|configure_callbacks|storage format)"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
]

from torch_geometric.graphgym import model_builder, register
from torch_geometric.graphgym.config import assert_cfg, cfg, set_run_dir
from torch_geometric.graphgym.train import GraphGymDataModule, train

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.graph import graphgym
from tempplug_adapters.graph.graphgym import METRICS, create_model, view

EXAMPLES = Path(__file__).parents[2] / "adapters" / "examples"
EPOCHS = 4
QUIET = {"enable_progress_bar": False, "enable_model_summary": False}


class Ring(InMemoryDataset):
    """Rings of 24 nodes, as graphs of three splits; or one whose nodes have masks."""

    def __init__(self, graphs: int) -> None:
        super().__init__()
        made = [self._ring(seed) for seed in range(graphs)]
        if graphs == 1:
            part = torch.arange(24) % 3
            made[0].y = part
            made[0].train_mask, made[0].val_mask, made[0].test_mask = part == 0, part == 1, part == 2
        self._data, self.slices = self.collate(made)
        for number, split in enumerate(("train", "val", "test")):
            if graphs > 1:
                self._data[f"{split}_graph_index"] = torch.arange(number, graphs, 3)

    @staticmethod
    def _ring(seed: int) -> Data:
        generator = torch.Generator().manual_seed(seed)
        here = torch.arange(24)
        edges = torch.stack([torch.cat([here, here.roll(1)]), torch.cat([here.roll(1), here])])
        return Data(torch.randn(24, 6, generator=generator), edges, y=torch.tensor([seed % 3]))


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    """GraphGym has one configuration, and takes over the root logger."""
    before, handlers, level = cfg.clone(), list(logging.root.handlers), logging.root.level
    yield
    cfg.clear()
    cfg.update(before)
    for each in set(logging.root.handlers) - set(handlers):
        each.close()
    logging.root.handlers, logging.root.level = handlers, level
    register.loader_dict.pop("rings", None)


def configure(folder: Path, strategy: str, *options: str, graphs: int = 1, **more: Any) -> None:
    register.loader_dict["rings"] = lambda *names: Ring(graphs)
    settings = {
        "out_dir": str(folder),
        "accelerator": "cpu",
        "num_threads": 1,
        "dataset.task": "node" if graphs == 1 else "graph",
        "model.type": "contrastive",
        "contrastive.temperature_strategy": strategy,
        "contrastive.temperature_args": list(options),
        "contrastive.dimension": 8,
        "gnn.layer_type": "gcnconv",
        "optim.max_epoch": EPOCHS,
        "optim.base_lr": 0.02,
        "train.enable_ckpt": False,
        **more,
    }
    cfg.merge_from_list([each for pair in settings.items() for each in pair])
    assert_cfg(cfg)
    set_run_dir(cfg.out_dir)
    cfg.params = 0


def rows(folder: Path, split: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "0" / split / "stats.json").read_text().splitlines()]


def trained(folder: Path, create: Callable[[], Any] = create_model) -> list[dict[str, float]]:
    """Trains what is configured, and returns the rows of the training split."""
    torch.manual_seed(0)
    data = GraphGymDataModule()
    train(create(), data, trainer_config=QUIET)
    return rows(folder, "train")


@pytest.mark.parametrize("graphs", [1, 9])
def test_a_configuration_trains_with_a_schedule_that_follows_the_progress(tmp_path: Path, graphs: int) -> None:
    configure(tmp_path, "schedule", graphs=graphs)
    seen = trained(tmp_path)
    period = EPOCHS / 5
    assert [row["temperature"] for row in seen] == pytest.approx(
        [0.1 + 0.9 * (1 + math.cos(2 * math.pi * epoch / period)) / 2 for epoch in range(EPOCHS)], abs=1e-4
    )
    assert seen[-1].keys() >= {"loss", *METRICS}
    assert len(rows(tmp_path, "test")) == 1
    assert cfg.custom_metrics == list(METRICS)


def test_a_fixed_temperature_is_infonce_and_learns_also_with_terms_on_negatives(tmp_path: Path) -> None:
    configure(tmp_path, "fixed", "temperature=0.5", **{"optim.max_epoch": 20})
    seen = trained(tmp_path)
    assert all(row["temperature"] == 0.5 and row["loss"] == row["infonce"] for row in seen)
    assert seen[-1]["loss"] < seen[0]["loss"] - 0.1
    assert seen[-1]["negative_similarity"] < seen[-1]["positive_similarity"] <= 1
    # of 24 nodes all are contrasted in training, of 8 those of the mask in validation
    assert rows(tmp_path, "val")[-1]["loss"] < seen[-1]["loss"]
    configure(tmp_path, "fixed", **{"contrastive.negatives": "hardness:strength=3+log-q:size=24"})
    assert all(row["loss"] == row["infonce"] for row in trained(tmp_path))
    assert [each.name for each in create_model().model.loss_fn.terms] == ["hardness", "log-q"]
    configure(tmp_path, "fixed", **{"contrastive.negatives": "same-key"})
    with pytest.raises(ConfigError, match="'same-key' reads keys=, which model"):
        create_model()


def test_what_a_strategy_learns_has_its_own_rate_and_no_decay(tmp_path: Path) -> None:
    configure(tmp_path, "learnable", "initial_temperature=0.2")
    GraphGymDataModule()
    model = create_model()
    (optimizer,), (scheduler,) = model.configure_optimizers()
    rest, temperatures = optimizer.param_groups
    assert temperatures["params"] == [model.model.loss_fn.strategy.log_scale]
    assert (temperatures["weight_decay"], temperatures["initial_lr"]) == (0.0, 0.01)
    assert (rest["weight_decay"], rest["initial_lr"]) == (cfg.optim.weight_decay, 0.02)
    assert len(rest["params"]) + 1 == len(list(model.parameters()))
    assert scheduler.optimizer is optimizer


@pytest.mark.parametrize("create", [create_model, model_builder.create_model])
def test_graphgyms_own_create_model_trains_too_and_prints_what_is_used_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], create: Callable[[], Any]
) -> None:
    configure(tmp_path, "macl", "alpha=1", **{"contrastive.layout": "cross-view"})
    temperatures = [row["temperature"] for row in trained(tmp_path, create)]
    assert len(set(temperatures)) > 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("strategy ")]
    spec = "macl:base_temperature=0.1,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert lines == [f"strategy {spec}, objective infonce, layout cross-view"]


def test_other_models_are_graphgyms(tmp_path: Path) -> None:
    configure(tmp_path, "fixed", **{"model.type": "gnn"})
    GraphGymDataModule()
    model = create_model()
    assert type(model) is model_builder.GraphGymModule
    pred, true = model(Batch.from_data_list([Ring(1)[0]]))
    assert model_builder.compute_loss(pred, true)[0].isfinite()
    configure(tmp_path, "macle")
    with pytest.raises(UnknownNameError, match="Did you mean 'macl'"):
        create_model()


def test_a_view_lacks_edges_and_columns_and_leaves_the_batch_alone() -> None:
    batch = Batch.from_data_list([Ring(1)[0]])
    batch.edge_attr, batch.split = torch.arange(48), "train"
    torch.manual_seed(0)
    changed = view(batch, 0.5, 0.5)
    assert 0 < changed.num_edges < 48
    assert torch.equal(changed.edge_index, batch.edge_index[:, changed.edge_attr])
    assert 0 < (changed.x == 0).all(0).sum() < 6
    assert ("split" in changed, batch.split, batch.num_edges) == (False, "train", 48)
    batch.split, batch.x = "val", torch.ones(24, 2, dtype=torch.int64)
    kept = view(batch, 0.0, 1.0)
    assert (kept.split, kept.num_edges) == ("val", 48)
    assert torch.equal(kept.x, batch.x), "whole numbers are not masked"


def test_strategies_of_single_examples_get_the_positions_of_nodes(tmp_path: Path) -> None:
    configure(tmp_path, "individual", "size=24")
    GraphGymDataModule()
    model = create_model().train()
    batch = Batch.from_data_list([Ring(1)[0]])
    batch.split = "train"
    before = {name: value.clone() for name, value in model.model.loss_fn.state_dict().items()}
    model(batch)
    assert any(not torch.equal(before[name], value) for name, value in model.model.loss_fn.state_dict().items())
    assert graphgym._index(batch, 24).tolist() == list(range(24))
    batch.split = "val"
    assert graphgym._index(batch, 8).tolist() == list(range(1, 24, 3))
    assert graphgym._index(batch, 3) is None
    batch.n_id = torch.arange(100, 124)  # of a sampled part
    assert graphgym._index(batch, 8).tolist() == list(range(101, 124, 3))


@pytest.mark.slow
def test_the_example_trains_on_cora(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "Cora" / "Cora"
    place.mkdir(parents=True)
    (place / "raw").symlink_to(data_dir / "graph" / "planetoid" / "Cora" / "raw")
    words = ["--cfg", str(EXAMPLES / "graphgym_nodes.yaml"), "dataset.dir", str(tmp_path), "out_dir", str(tmp_path / "out")]
    words += ["optim.max_epoch", "3", "num_threads", "1"]
    monkeypatch.setattr(sys, "argv", ["graphgym_nodes.py", *words])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    runpy.run_path(str(EXAMPLES / "graphgym_nodes.py"), run_name="__main__")
    temperatures = [row["temperature"] for row in rows(tmp_path / "out" / "graphgym_nodes", "train")]
    assert len(temperatures) == 3
    assert temperatures[0] > temperatures[1] > temperatures[2]
    assert (tmp_path / "out" / "graphgym_nodes" / "agg" / "train" / "best.json").is_file()
