"""Files as PyTorch Geometric's transforms leave graphs are read; what could run code is refused by the name of its class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from hostile_toys import Hostile, mark_of
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.storage import AttrType

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.graph.saved_graphs import read_graphs


class Own:
    """A class of the user's."""


def graph(seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(20, (2, 60), generator=generator)
    kinds = torch.randint(3, (20,), generator=generator)
    return Data(x=torch.rand(20, 4, generator=generator), edge_index=edges, y=kinds, edge_attr=torch.rand(60, 2))


def saved(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "graph.pt")
    return folder / "graph.pt"


TRANSFORMS = [
    T.ToUndirected(),
    T.RandomNodeSplit(num_val=2, num_test=2),
    T.Compose([T.ToUndirected(), T.AddSelfLoops(), T.NormalizeFeatures()]),
    T.LargestConnectedComponents(),
    T.AddRandomWalkPE(walk_length=3),
    T.Pad(max_num_nodes=30, max_num_edges=100),
    T.VirtualNode(),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", [*TRANSFORMS, T.RandomLinkSplit(num_val=0.1, num_test=0.1)], ids=repr)
@pytest.mark.parametrize("form", ["one", "list", "slices"])
def test_graphs_are_read_as_transforms_leave_them(tmp_path: Path, transform: Any, form: str) -> None:
    made = transform(graph())
    made = made[0] if isinstance(made, tuple) else made
    assert all(made.is_node_attr("x") for _ in made.stores), "which PyTorch Geometric notes in the graph"
    content = {"one": made, "list": [made, made], "slices": InMemoryDataset.collate([made, made])}[form]
    found = read_graphs(saved(tmp_path, content))
    assert len(found) == (1 if form == "one" else 2)
    for each in found:
        assert each.keys() == made.keys()
        for name in made.keys():  # noqa: SIM118 (a Data is no dictionary)
            theirs = made[name]
            assert torch.equal(each[name], theirs) if isinstance(theirs, torch.Tensor) else each[name] == theirs, name
        assert [each.is_node_attr(name) for name in ("x", "edge_index")] == [True, False]
        assert each.is_edge_attr("edge_index")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_an_undirected_graph_trains(tmp_path: Path) -> None:
    file = saved(tmp_path, T.Compose([T.ToUndirected(), T.RandomNodeSplit(num_val=4, num_test=4)])(graph()))
    words = ["--dataset", str(file), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1", "--no-evaluate"]
    assert main(["train", "grace", *words]) == 0


def test_a_split_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"graph\.pt holds a tuple of 3 graphs, as RandomLinkSplit returns: save the one to"):
        read_graphs(saved(tmp_path, T.RandomLinkSplit()(graph())))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("content", "named"),
    [
        (lambda folder: Data(x=torch.ones(2, 2), own=Own()), r"test_saved_graphs\.Own"),
        (lambda folder: Batch.from_data_list([graph(), graph(1)]), r"torch_geometric\.data\.batch\.\w+"),
        (lambda folder: T.RootedEgoNets(1)(graph()), r"torch_geometric\.transforms\.rooted_subgraph\.RootedSubgraphData"),
        (lambda folder: Data(x=torch.ones(2, 2), words=np.array(["a"])), r"numpy\.\S+"),
        (lambda folder: Data(x=torch.ones(2, 2), hostile=Hostile(mark_of(folder))), r"\w+\.system"),
        (lambda folder: {AttrType.NODE: Hostile(mark_of(folder))}, r"\w+\.system"),
        (lambda folder: [graph(), Hostile(mark_of(folder))], r"\w+\.system"),
    ],
    ids=["own", "batch", "ego-nets", "numpy", "hostile", "enum", "list"],
)
def test_what_is_refused_is_named_with_the_remedy(tmp_path: Path, content: Any, named: str) -> None:
    told = rf"^\S+graph\.pt could not be read: it holds \S*{named}, and reading that could run code: save the file anew with a"
    with pytest.raises(DataError, match=told) as raised:
        read_graphs(saved(tmp_path, content(tmp_path)))
    assert "weights_only" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert not mark_of(tmp_path).exists()


def test_what_others_had_allowed_stays_allowed(tmp_path: Path) -> None:
    before = Counter(map(str, torch.serialization.get_safe_globals()))
    with pytest.raises(DataError, match="could run code"):
        read_graphs(saved(tmp_path, Own()))
    read_graphs(saved(tmp_path, graph()))
    assert Counter(map(str, torch.serialization.get_safe_globals())) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_of_torchscript_is_refused(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    torch.jit.trace(Twice(), torch.ones(1)).save(str(tmp_path / "graph.pt"))
    with pytest.raises(
        DataError, match="could not be read: it is of a form whose reading could run code: save a Data, or"
    ) as told:
        read_graphs(tmp_path / "graph.pt")
    assert "weights_only" not in str(told.value)
