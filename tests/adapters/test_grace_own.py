"""GRACE with encoders, augmentations, graphs and loaders of the user's own, from Python and by the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.typing
from method_toys import weights
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.nn import GAT, GATConv, GraphSAGE
from torch_geometric.transforms import BaseTransform, Compose

import tempplug_adapters.graph.grace_method as module
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.graph.gcn import GCN
from tempplug_adapters.graph.grace_method import GraceMethod
from tempplug_adapters.graph.grace_recipe import METHOD, GraceRecipe
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.user_modules import UserEncoder, create_encoder, find
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node_generated import citation_graph

BATCHES: dict[str, Any] = {"per_device_train_batch_size": 250, "neighbours": 2}
OWN = '''
import torch
from torch_geometric.nn import GATConv
from torch_geometric.utils import dropout_edge

class TwoLayers(torch.nn.Module):
    """As people write it: its sizes are its own, it takes the whole graph."""
    def __init__(self, features, width=24):
        super().__init__()
        self.first, self.second = GATConv(features, 8, heads=3), GATConv(24, width)
    def forward(self, data):
        return self.second(self.first(data.x, data.edge_index).relu(), data.edge_index)

def fewer_edges(data):
    data.edge_index, _ = dropout_edge(data.edge_index, p=0.4)
    return data
'''


@pytest.fixture(autouse=True)
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = module.evaluate_nodes
    monkeypatch.setattr(module, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=60))


class TakesGraph(nn.Module):
    """A user's encoder that reads a ``Data``."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, data: Any) -> Tensor:
        found: Tensor = self.inner(data.x, data.edge_index)
        return found


class Noise(BaseTransform):
    """A transform of PyTorch Geometric."""

    def forward(self, data: Data) -> Data:
        data.x = data.x + 0.1 * torch.rand_like(data.x)
        return data


def run(folder: Path, graph: Any = None, method: GraceMethod | None = None, **settings: Any) -> dict[str, Any]:
    recipe = GraceRecipe(**{"num_train_epochs": 3, **settings})
    data = Nodes(citation_graph(0) if graph is None else graph)
    return train(method or GraceMethod(METHOD), recipe, data, TemperatureArguments("fixed", [], None), folder)


@pytest.mark.parametrize("settings", [{}, BATCHES], ids=["whole", "batches"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["takes-tensors", "takes-graph"])
def test_our_encoder_brought_as_ones_own_trains_alike(tmp_path: Path, settings: dict[str, Any], wrapped: bool) -> None:
    torch.manual_seed(1)
    mine: nn.Module = GCN(200)
    method, recipe = GraceMethod(METHOD, encoder=TakesGraph(mine) if wrapped else mine), GraceRecipe(**settings)
    data, losses = Nodes(citation_graph(0)), []
    for each in (method, GraceMethod(METHOD)):
        torch.manual_seed(0)
        made = each.build(recipe, data, each.create_loss(recipe, data, TemperatureArguments("fixed", [], None)))
        (made.encoder.inner if hasattr(made.encoder, "inner") else made.encoder).load_state_dict(mine.state_dict())
        for layer in made.grace.projection_head:
            if isinstance(layer, nn.Linear):
                nn.init.uniform_(layer.weight, -0.2, 0.2, torch.Generator().manual_seed(5))
                nn.init.zeros_(layer.bias)
        index = torch.arange(600) if not settings else torch.randperm(600, generator=torch.Generator().manual_seed(3))[:250]
        torch.manual_seed(2)
        loss = made(**each.collate(recipe, data, index))
        rows = each.representations(recipe, made.eval(), data)
        losses.append([loss, rows, *torch.autograd.grad(loss, list(made.encoder.parameters()))])
    for mine_, ours in zip(*losses, strict=True):
        torch.testing.assert_close(mine_, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["fixed", "macl", "temperature-free"])
@pytest.mark.parametrize("batches", [False, True], ids=["whole", "batches"])
def test_pygs_gat_by_the_command(tmp_path: Path, strategy: str, batches: bool) -> None:
    torch.save(citation_graph(0), tmp_path / "toy.pt")
    words = ["--dataset", str(tmp_path / "toy.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "2"]
    more = ["--encoder", "torch_geometric.nn:GAT", "--temperature-strategy", strategy, "--hidden", "16"]
    batched = ["--per-device-train-batch-size", "200", "--neighbours", "3"] if batches else []
    assert main(["train", "grace", *words, *more, *batched]) == 0
    results = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert results["strategy"].startswith(strategy)
    assert math.isfinite(results["loss"])
    assert results["evaluation"]["f1_micro 10/10/80"] > 20
    encoder = torch.load(tmp_path / "out" / "encoder.pt", weights_only=True)
    GAT(200, 16, 2).load_state_dict(encoder)  # the user's own names
    assert torch.load(tmp_path / "out" / "representations.pt", weights_only=True).shape == (600, 16)


def test_a_module_beside_the_user_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_of_grace.py").write_text(OWN)
    torch.save(citation_graph(0), "toy.pt")
    words = ["train", "grace", "--dataset", "toy.pt", "--num-train-epochs", "2", "--output-dir"]
    more = ["--encoder", "mine_of_grace:TwoLayers", "--augmentations", "mine_of_grace:fewer_edges"]
    assert main([*words, "out", *more]) == 0
    results = json.loads(Path("out/metrics.json").read_text())
    assert results["recipe"]["encoder"] == "mine_of_grace:TwoLayers"
    assert torch.load("out/representations.pt", weights_only=True).shape == (600, 24)
    for wrong, message in [
        (["--encoder", "mine_of_grace"], "encoder='mine_of_grace' must be MODULE:NAME"),
        (["--encoder", "mine_of_grace:Three"], "encoder='mine_of_grace:Three' cannot be imported: AttributeError: "),
        (["--encoder", "nowhere_at_all:GAT"], "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (["--augmentations", "torch:pi"], "augmentation 3.14"),
        (["--augmentations", *["mine_of_grace:fewer_edges"] * 3], "3 augmentations must be one for both views"),
    ]:
        assert main([*words, "wrong", *wrong]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err


def test_a_module_from_python_is_copied_and_named(tmp_path: Path) -> None:
    mine = TakesGraph(GATConv(200, 8))
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    results = run(tmp_path, method=GraceMethod(METHOD, mine, [Noise()]))
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert results["own_encoder"] == [f"{__name__}:TakesGraph"]
    assert results["own_augmentations"] == [f"{__name__}:Noise"]
    trained = weights(tmp_path)
    assert not torch.equal(trained["grace.encoder.module.inner.lin.weight"], before["inner.lin.weight"])


@pytest.mark.parametrize("settings", [{}, BATCHES], ids=["whole", "batches"])
def test_augmentations_of_ones_own_serve_our_encoder(tmp_path: Path, settings: dict[str, Any]) -> None:
    seen: list[Data] = []

    def marked(data: Data) -> Data:
        seen.append(data)
        return Noise()(data)

    graph = citation_graph(0)
    before = graph.x.clone()
    results = run(tmp_path, graph, GraceMethod(METHOD, augmentations=[marked, Compose([Noise()])]), **settings)
    assert math.isfinite(results["loss"])
    assert torch.equal(graph.x, before)
    assert len(seen) == 3 * (3 if settings else 1)
    assert not settings or seen[0].batch_size == 250
    assert {name.split(".")[0] for name in torch.load(tmp_path / "encoder.pt", weights_only=True)} == {"layers"}


def test_an_augmentation_that_loses_nodes_is_refused(tmp_path: Path) -> None:
    def half(data: Data) -> Data:
        return data.subgraph(torch.arange(300))

    with pytest.raises(ConfigError, match="must keep all 600 nodes, which are contrasted with themselves, but left 300"):
        run(tmp_path, method=GraceMethod(METHOD, augmentations=[half]))
    with pytest.raises(ConfigError, match="must return a Data, not Tensor"):
        run(tmp_path, method=GraceMethod(METHOD, augmentations=[lambda data: data.x]))


@pytest.mark.parametrize("kind", [GAT, GraphSAGE])
def test_pygs_models_compute_no_more_than_a_batch_reads(kind: Any) -> None:
    data = Nodes(citation_graph(0))
    torch.manual_seed(0)
    encoder = UserEncoder(kind(200, 16, 2)).eval()
    part = data.part(torch.arange(7, 40), 4, 2)
    trimmed = encoder(part)
    assert len(trimmed) < part.num_nodes
    del part.num_sampled_edges
    torch.testing.assert_close(trimmed[:33], encoder(part)[:33])


def test_only_views_whose_edges_keep_their_order_are_trimmed() -> None:
    recipe, data = GraceRecipe(**BATCHES), Nodes(citation_graph(0))
    for augmentations, trimmed in (((), True), ((lambda graph: graph,), False)):
        views = GraceMethod(METHOD, GAT(200, 16, 2), augmentations).collate(recipe, data, torch.arange(8))["views"]
        assert [view.get("num_sampled_edges") is not None for view in views] == [trimmed] * 2


def test_representations_by_batches_are_those_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    method, recipe, data = GraceMethod(METHOD, GAT(200, 16, 2)), GraceRecipe(**BATCHES), Nodes(citation_graph(0))
    made = method.build(recipe, data, None).eval()
    whole = method.representations(recipe, made, data)
    monkeypatch.setattr(module, "_WHOLE", 0)
    torch.testing.assert_close(method.representations(recipe, made, data), whole, rtol=1e-4, atol=1e-5)


def test_weights_of_edges_reach_who_takes_them_and_others_warn(tmp_path: Path) -> None:
    graph = citation_graph(0)
    graph.edge_weight = torch.rand(graph.num_edges)
    plain = run(tmp_path / "plain")["loss"]
    assert run(tmp_path / "weighted", graph)["loss"] != plain
    assert run(tmp_path / "batches", graph, **BATCHES)["loss"] != run(tmp_path / "plain-batches", **BATCHES)["loss"]
    # PyTorch Geometric's GAT takes the argument and does not use it
    with pytest.warns(UserWarning, match="edge_weight of the data is not used: the encoder GAT does not take it"):
        run(tmp_path / "gat", graph, GraceMethod(METHOD, GAT))
    graph.edge_attr = torch.rand(graph.num_edges, 2)
    with pytest.warns(UserWarning, match="edge_attr of the data is not used: the encoder GCN does not take it; call it edge_w"):
        run(tmp_path / "attributes", graph)
    graph.edge_weight -= 1
    del graph.edge_attr
    with pytest.raises(DataError, match="edge_weight must be at least 0 for the GCN"):
        run(tmp_path / "negative", graph)

    graph.edge_attr = torch.rand(graph.num_edges, 2)

    class Attributes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = GATConv(200, 8, edge_dim=2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Tensor:
            assert edge_attr.shape == (edge_index.shape[1], 2)
            assert edge_weight.shape == edge_index.shape[1:]
            found: Tensor = self.layer(x, edge_index, edge_attr)
            return found

    for settings in ({}, BATCHES):
        run(tmp_path / f"own{len(settings)}", graph, GraceMethod(METHOD, Attributes()), **settings)


def test_whole_numbers_are_features_too(tmp_path: Path) -> None:
    graph = citation_graph(0)
    graph.x = graph.x.long() * 3
    torch.save(graph, tmp_path / "toy.pt")
    words = ["--dataset", str(tmp_path / "toy.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1"]
    assert main(["train", "grace", *words]) == 0
    assert main(["train", "grace", *words[:-3], str(tmp_path / "raw"), *words[-2:], "--raw-features"]) == 0

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 8)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            found: Tensor = self.table(x).sum(1)
            return found

    assert math.isfinite(run(tmp_path / "own", graph, GraceMethod(METHOD, Embedded()))["loss"])


def test_data_sets_lists_and_loaders_are_graphs() -> None:
    one, other = citation_graph(0), citation_graph(1)
    assert len(Nodes([one])) == len(Nodes(one)) == 600
    both = Nodes([one, other])
    assert len(both) == len(Nodes(DataLoader([one, other], batch_size=1))) == 1200
    assert torch.equal(both.edge_index, Batch.from_data_list([one, other]).edge_index)
    for wrong in ([], 3, [one, "graph"]):
        with pytest.raises(DataError, match=r"graph must be a graph .*, or a data set, list or loader of such graphs"):
            Nodes(wrong)  # type: ignore[arg-type]


def test_a_neighbour_loader_finds_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyg-lib's operation stands in: it finds no neighbour at all."""
    asked: list[list[int]] = []

    def alone(colptr: Tensor, row: Tensor, seed: Tensor, counts: list[int], *more: Any) -> Any:
        asked.append(counts)
        none = torch.zeros(0, dtype=torch.int64)
        return none, none, seed, none, [len(seed), 0, 0], [0, 0]

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops.pyg, "neighbor_sample", alone, raising=False)
    data = Nodes(NeighborLoader(citation_graph(0), [7, 4], batch_size=50))
    part = data.part(torch.tensor([5, 9]), 15, 2)
    assert asked == [[7, 4]]
    assert part.n_id.tolist() == [5, 9]
    assert part.edge_index.shape == (2, 0)


def test_what_makes_an_encoder_gets_what_it_takes() -> None:
    def sizes(in_channels: int, hidden: int, layers: int = 9) -> nn.Module:
        return nn.Linear(in_channels, hidden * layers)

    assert create_encoder(sizes, 5, 4, 3).weight.shape == (12, 5)  # type: ignore[union-attr]
    assert create_encoder(lambda width: nn.Linear(width, 2), 5, 4, 3).weight.shape == (2, 5)  # type: ignore[union-attr]
    assert create_encoder(lambda: nn.Linear(7, 2), 5, 4, 3).weight.shape == (2, 7)  # type: ignore[union-attr]
    assert create_encoder(find("torch_geometric.nn:GraphSAGE", "encoder"), 5, 4, 3).num_layers == 3
    assert create_encoder(GATConv, 5, 4, 3).out_channels == 4

    def two(in_channels: int, heads: int) -> nn.Module:
        raise AssertionError

    with pytest.raises(ConfigError, match="encoder two needs heads: name a function that makes it with them"):
        create_encoder(two, 5, 4, 3)
    with pytest.raises(ConfigError, match=r"must make a torch\.nn\.Module, not int"):
        create_encoder(lambda width: 3, 5, 4, 3)
    with pytest.raises(ConfigError, match="must be a module, or a class or function"):
        create_encoder("GAT", 5, 4, 3)
    with pytest.raises(ShapeError, match="encoder Identity must return a matrix of representations, not Data"):
        UserEncoder(nn.Identity())(citation_graph(0))


@pytest.mark.parametrize("option", ["--encoder", "--augmentations"])
@pytest.mark.parametrize("word", ["os:system", "sys:exit", "builtins:exec", "torch:relu"])
def test_what_is_not_written_in_python_is_not_tried_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, word: str
) -> None:
    torch.save(citation_graph(0), tmp_path / "toy.pt")
    words = ["--dataset", str(tmp_path / "toy.pt"), "--output-dir", str(tmp_path / "out"), "--no-evaluate"]
    assert main(["train", "grace", *words, option, word]) == 2
    told = (
        f"error: {option.removeprefix('--')}='{word}' is a built-in function: name a module, a class or a function written in"
    )
    assert capsys.readouterr().err == f"{told} Python.\n"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("subprocess:run", "error: encoder run() cannot be made: TypeError: Popen.__init__() missing 1 required positional"),
        ("collections:OrderedDict", "error: encoder OrderedDict must be a module, or a class or function that makes one."),
        (
            "os.path:join",
            "error: encoder join(a=200) cannot be made: TypeError: expected str, bytes or os.PathLike object, not int",
        ),
    ],
)
def test_what_makes_no_encoder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, message: str) -> None:
    torch.save(citation_graph(0), tmp_path / "toy.pt")
    words = ["--dataset", str(tmp_path / "toy.pt"), "--output-dir", str(tmp_path / "out"), "--no-evaluate"]
    assert main(["train", "grace", *words, "--encoder", word]) == 2
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert err.count("\n") == 1
