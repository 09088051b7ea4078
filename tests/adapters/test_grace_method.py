"""``tempplug train grace``: our GCN, and encoders, augmentations, graphs and loaders of the user's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import Embedded
from method_toys import train_toy, weights
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, GATConv, GraphSAGE
from torch_geometric.transforms import BaseTransform, Compose

import tempplug_adapters.graph.grace_method as module
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.graph.gcn import GCN
from tempplug_adapters.graph.grace_method import GraceMethod
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.recipes import GRACE as METHOD, PROTOCOLS, GraceRecipe
from tempplug_adapters.graph.user_modules import UserEncoder, create_encoder
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.own_modules import find
from tempplug_benchmarks.tasks.node import citation_graph

BATCHES: dict[str, Any] = {"per_device_train_batch_size": 250, "neighbours": 2}


@pytest.fixture(autouse=True)
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = module.evaluate_nodes
    monkeypatch.setattr(module, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=60))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("graphs") / "toy.pt"
    torch.save(citation_graph(0), file)
    return file


class TakesGraph(nn.Module):
    """A user's encoder that reads a ``Data``."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, data: Any) -> Tensor:
        found: Tensor = self.inner(data.x, data.edge_index)
        return found


class Attributes(nn.Module):
    """A user's encoder that reads weights and attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = GATConv(200, 8, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Tensor:
        assert edge_attr.shape == (edge_index.shape[1], 2)
        assert edge_weight.shape == edge_index.shape[1:]
        found: Tensor = self.layer(x, edge_index, edge_attr)
        return found


class Noise(BaseTransform):
    """A transform of PyTorch Geometric."""

    def forward(self, data: Data) -> Data:
        data.x = data.x + 0.1 * torch.rand_like(data.x)
        return data


def run(
    folder: Path, graph: Any = None, method: GraceMethod | None = None, strategy: str = "fixed", **settings: Any
) -> dict[str, Any]:
    data = Nodes(citation_graph(0) if graph is None else graph)
    results = train_toy(METHOD, folder, data, strategy, method, **{"num_train_epochs": 3, **settings})
    assert math.isfinite(results["loss"])
    return results


def words(saved: Path, output: Path, *more: str) -> list[str]:
    return ["train", "grace", "--dataset", str(saved), "--output-dir", str(output), "--num-train-epochs", "2", *more]


def test_a_command_writes_specs_numbers_and_representations(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--temperature-strategy", "macl:alpha=1", "--contrastive-objective", "dcl", "--edge-removal", "0.2", "0.4"]
    assert main(words(saved, tmp_path, *more)) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["strategy"] == "macl:base_temperature=0.5,alpha=1,threshold=0,floor_ratio=0.1,strict=false"
    assert (results["objective"], results["recipe"]["edge_removal"]) == ("dcl", [0.2, 0.4])
    assert "600 nodes, " in capsys.readouterr().out
    kinds = ("micro", "macro", "validation")
    assert results["evaluation"].keys() == {f"f1_{kind} {name}" for kind in kinds for name in PROTOCOLS}
    representations = torch.load(tmp_path / "representations.pt", weights_only=True)
    assert representations.shape == (600, 32)
    assert torch.isfinite(representations).all()
    assert {name.split(".")[0] for name in torch.load(tmp_path / "encoder.pt", weights_only=True)} == {"layers"}
    many = run(tmp_path / "many", num_train_epochs=40)["evaluation"]
    assert many["f1_micro 10/10/80"] > results["evaluation"]["f1_micro 10/10/80"] + 10, "training finds the classes"


def test_views_are_new_and_have_their_own_shares_and_a_batch_contrasts_its_nodes_alone() -> None:
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
    index = torch.tensor([3, 500, 77])
    batch = method.collate(GraceRecipe(**BATCHES), data, index)
    assert torch.equal(batch["seeds"], index)
    assert torch.equal(batch["nodes"][:3], index)
    assert len(batch["nodes"]) > 3


@pytest.mark.parametrize(("batch_size", "edges"), [(None, 12), (4, 0)])
def test_graphs_with_isolated_nodes_and_empty_features_train(tmp_path: Path, batch_size: int | None, edges: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(14, 8, generator=generator)
    x[3] = 0
    graph = Data(x=x, edge_index=torch.randint(6, (2, edges), generator=generator), y=torch.arange(14) % 2)
    run(tmp_path, graph, strategy="temperature-free", per_device_train_batch_size=batch_size)
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())
    # the smallest graph, without classes
    if batch_size is None:
        assert run(tmp_path / "two", Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]])))["evaluation"] == {}


@pytest.mark.parametrize(("settings", "wrapped"), [({}, True), (BATCHES, False), ({"last_batch_norm": True}, True)])
def test_our_encoder_brought_as_ones_own_trains_alike(settings: dict[str, Any], wrapped: bool) -> None:
    torch.manual_seed(1)
    mine: nn.Module = GCN(200)
    method, recipe = GraceMethod(METHOD, encoder=TakesGraph(mine) if wrapped else mine), GraceRecipe(**settings)
    data, losses = Nodes(citation_graph(0)), []
    for each in (method, GraceMethod(METHOD)):
        made = each.build(recipe, data, each.create_loss(recipe, data, TemperatureArguments("fixed", [], None)))
        assert isinstance(made.grace.projection_head[-1], nn.BatchNorm1d) == ("last_batch_norm" in settings)
        getattr(made.encoder, "inner", made.encoder).load_state_dict(mine.state_dict())
        for layer in made.grace.projection_head:
            if isinstance(layer, nn.Linear):
                nn.init.uniform_(layer.weight, -0.2, 0.2, torch.Generator().manual_seed(5))
                nn.init.zeros_(layer.bias)
        index = torch.randperm(600, generator=torch.Generator().manual_seed(3))[: 250 if settings else 600]
        torch.manual_seed(2)
        loss = made(**each.collate(recipe, data, index))
        rows = each.representations(recipe, made.eval(), data)
        losses.append([loss, rows, *torch.autograd.grad(loss, list(made.encoder.parameters()))])
    for own, ours in zip(*losses, strict=True):
        torch.testing.assert_close(own, ours, rtol=1e-4, atol=1e-5)


def test_pygs_gat_by_the_command(saved: Path, tmp_path: Path) -> None:
    own = "--encoder torch_geometric.nn:GAT --temperature-strategy macl --hidden 16 --neighbours 3"
    assert main(words(saved, tmp_path, *own.split(), "--per-device-train-batch-size", "200")) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert math.isfinite(results["loss"])
    assert results["evaluation"]["f1_micro 10/10/80"] > 20
    GAT(200, 16, 2).load_state_dict(torch.load(tmp_path / "encoder.pt", weights_only=True))  # the user's own names
    assert torch.load(tmp_path / "representations.pt", weights_only=True).shape == (600, 16)


def test_a_module_from_python_is_copied_and_named(tmp_path: Path) -> None:
    mine = TakesGraph(GATConv(200, 8))
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    results = run(tmp_path, method=GraceMethod(METHOD, mine, [Noise()]))
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert results["own_encoder"] == [f"{__name__}:TakesGraph"]
    assert results["own_augmentations"] == [f"{__name__}:Noise"]
    assert not torch.equal(weights(tmp_path)["grace.encoder.module.inner.lin.weight"], before["inner.lin.weight"])


@pytest.mark.parametrize("settings", [{}, BATCHES], ids=["whole", "batches"])
def test_augmentations_of_ones_own_serve_our_encoder(tmp_path: Path, settings: dict[str, Any]) -> None:
    seen: list[Data] = []

    def marked(data: Data) -> Data:
        seen.append(data)
        return Noise()(data)

    graph = citation_graph(0)
    before = graph.x.clone()
    run(tmp_path, graph, GraceMethod(METHOD, augmentations=[marked, Compose([Noise()])]), **settings)
    assert torch.equal(graph.x, before)
    assert len(seen) == 3 * (3 if settings else 1)
    assert not settings or seen[0].batch_size == 250
    assert {name.split(".")[0] for name in torch.load(tmp_path / "encoder.pt", weights_only=True)} == {"layers"}


@pytest.mark.parametrize("kind", [GAT, GraphSAGE])
def test_pygs_models_compute_no_more_than_a_batch_reads(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, data = GraceRecipe(**BATCHES), Nodes(citation_graph(0))
    torch.manual_seed(0)
    encoder = UserEncoder(kind(200, 16, 2)).eval()
    part = data.part(torch.arange(7, 40), 4, 2)
    trimmed = encoder(part)
    assert len(trimmed) < part.num_nodes
    del part.num_sampled_edges
    torch.testing.assert_close(trimmed[:33], encoder(part)[:33])
    # only views whose edges keep their order are trimmed
    for augmentations, kept in (((), True), ((lambda graph: graph,), False)):
        views = GraceMethod(METHOD, encoder.module, augmentations).collate(recipe, data, torch.arange(8))["views"]
        assert [view.get("num_sampled_edges") is not None for view in views] == [kept] * 2
    method = GraceMethod(METHOD, encoder.module)
    made = method.build(recipe, data, None).eval()
    whole = method.representations(recipe, made, data)
    monkeypatch.setattr(module, "_WHOLE", 0)
    torch.testing.assert_close(method.representations(recipe, made, data), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:edge_attr of the data is not used")
def test_edge_weights_reach_encoders_that_take_them_and_others_warn() -> None:
    graph = citation_graph(0)
    plain, graph.edge_weight = Nodes(graph.clone()), torch.rand(graph.num_edges)
    whole, batch = GraceRecipe(), GraceRecipe(**BATCHES)

    def loss_of(method: GraceMethod, recipe: GraceRecipe, data: Nodes) -> Tensor:
        torch.manual_seed(0)
        made = method.build(recipe, data, method.create_loss(recipe, data, TemperatureArguments("fixed", [], None)))
        found: Tensor = made(**method.collate(recipe, data, torch.arange(recipe.per_device_train_batch_size or 600)))
        return found

    for recipe in (whole, batch):
        assert loss_of(GraceMethod(METHOD), recipe, Nodes(graph)) != loss_of(GraceMethod(METHOD), recipe, plain)
    # PyTorch Geometric's GAT takes the argument and does not use it
    with pytest.warns(UserWarning, match="edge_weight of the data is not used: the encoder GAT does not take it"):
        loss_of(GraceMethod(METHOD, GAT), whole, Nodes(graph))
    graph.edge_attr = torch.rand(graph.num_edges, 2)
    with pytest.warns(UserWarning, match="edge_attr of the data is not used: the encoder GCN does not take it; call it edge_w"):
        loss_of(GraceMethod(METHOD), whole, Nodes(graph))
    graph.edge_weight -= 1
    for recipe in (whole, batch):
        assert loss_of(GraceMethod(METHOD, Attributes()), recipe, Nodes(graph)).isfinite()
    with pytest.raises(DataError, match="edge_weight must be at least 0 for the GCN"):
        loss_of(GraceMethod(METHOD), whole, Nodes(graph))


def test_whole_numbers_are_features_too(tmp_path: Path) -> None:
    graph = citation_graph(0)
    graph.x = graph.x.long() * 3
    torch.save(graph, tmp_path / "toy.pt")
    for more in ([], ["--raw-features"]):
        assert main(words(tmp_path / "toy.pt", tmp_path / f"out{len(more)}", "--no-evaluate", *more)) == 0
    run(tmp_path / "own", graph, GraceMethod(METHOD, Embedded()), protocols=("10/80/10",))


def test_data_sets_lists_and_loaders_are_graphs() -> None:
    one, other = citation_graph(0), citation_graph(1)
    assert len(Nodes([one])) == len(Nodes(one)) == 600
    both = Nodes([one, other])
    assert len(both) == len(Nodes(DataLoader([one, other], batch_size=1))) == 1200
    assert torch.equal(both.edge_index, Batch.from_data_list([one, other]).edge_index)
    for wrong in ([], 3, [one, "graph"]):
        with pytest.raises(DataError, match=r"graph must be a graph .*, or a data set, list or loader of such graphs"):
            Nodes(wrong)  # type: ignore[arg-type]


def test_constructors_of_encoders_get_the_arguments_that_they_take() -> None:
    def sizes(in_channels: int, hidden: int, layers: int = 9) -> nn.Module:
        return nn.Linear(in_channels, hidden * layers)

    def two(in_channels: int, heads: int) -> nn.Module:
        raise AssertionError

    for given, shape in ((sizes, (12, 5)), (lambda width: nn.Linear(width, 2), (2, 5)), (lambda: nn.Linear(7, 2), (2, 7))):
        assert create_encoder(given, 5, 4, 3).weight.shape == shape  # type: ignore[union-attr]
    assert create_encoder(find("torch_geometric.nn:GraphSAGE", "encoder"), 5, 4, 3).num_layers == 3
    assert create_encoder(GATConv, 5, 4, 3).out_channels == 4
    data = Nodes(citation_graph(0))

    def collate(augmentation: Any) -> Any:
        return GraceMethod(METHOD, augmentations=[augmentation]).collate(GraceRecipe(), data, torch.arange(600))

    for call, message in [
        (lambda: create_encoder(two, 5, 4, 3), "encoder two needs heads: give them as MODULE:NAME:heads=VALUE, or name a func"),
        (lambda: create_encoder(lambda width: 3, 5, 4, 3), r"must make a torch\.nn\.Module, not int"),
        (lambda: create_encoder("GAT", 5, 4, 3), "must be a module, or a class or function"),
        (
            lambda: collate(lambda graph: graph.subgraph(torch.arange(300))),
            "must keep all 600 nodes, which are contrasted with",
        ),
        (lambda: collate(lambda graph: graph.x), "must return a Data, not Tensor"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(ShapeError, match="encoder Identity must return a matrix of representations, not Data"):
        UserEncoder(nn.Identity())(data.graph)
