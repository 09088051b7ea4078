"""Graphs saved by PyTorch Geometric's transforms and data sets are read; what could run code is refused by its class."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from graphcl_toys import toy_set
from hostile_toys import Hostile, mark_of
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.storage import AttrType

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.graph.graph_files import read_graphs
from tempplug_adapters.graph.node_data import load_graph

pytestmark = pytest.mark.filterwarnings("ignore")


class Own:
    """A class of the user's."""


class Toys(InMemoryDataset):
    """A data set of PyTorch Geometric, which writes ``processed/data.pt``."""

    def __init__(self, root: str, graphs: list[Data]) -> None:
        self.graphs = graphs
        super().__init__(root)
        self.load(self.processed_paths[0])

    processed_file_names = "data.pt"

    def process(self) -> None:
        self.save(self.graphs, self.processed_paths[0])


def graph(seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(20, (2, 60), generator=generator)
    kinds = torch.randint(3, (20,), generator=generator)
    return Data(x=torch.rand(20, 4, generator=generator), edge_index=edges, y=kinds, edge_attr=torch.rand(60, 2))


def saved(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "graph.pt")
    return folder / "graph.pt"


TRANSFORMS = [
    T.RandomNodeSplit(num_val=2, num_test=2),
    T.Compose([T.ToUndirected(), T.AddSelfLoops(), T.NormalizeFeatures()]),
    T.LargestConnectedComponents(),
    T.AddRandomWalkPE(walk_length=3),
    T.Pad(max_num_nodes=30, max_num_edges=100),
    T.VirtualNode(),
    T.RandomLinkSplit(num_val=0.1, num_test=0.1),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_graphs_are_read_as_transforms_leave_them(tmp_path: Path, transform: Any) -> None:
    made = transform(graph())
    made = made[0] if isinstance(made, tuple) else made
    assert all(made.is_node_attr("x") for _ in made.stores), "which PyTorch Geometric notes in the graph"
    dataset = Toys(str(tmp_path), [made, made])
    files = [saved(tmp_path, made), tmp_path / "list.pt", tmp_path / "slices.pt", Path(dataset.processed_paths[0])]
    torch.save([made, made], files[1])
    torch.save((dataset._data, dataset.slices), files[2])
    for file in files:
        found = read_graphs(file)
        assert len(found) == (1 if file == files[0] else 2)
        for each in found:
            assert each.keys() == made.keys()
            for name in made.keys():  # noqa: SIM118 (a Data is no dictionary)
                theirs = made[name]
                assert torch.equal(each[name], theirs) if isinstance(theirs, torch.Tensor) else each[name] == theirs, name
            assert [each.is_node_attr(name) for name in ("x", "edge_index")] == [True, False]
            assert each.is_edge_attr("edge_index")
        assert len(load_graph(str(file), None, tmp_path).x) == made.num_nodes * len(found)


NO_GRAPHS = r"must hold a torch_geometric\.data\.Data, a list of them, or the .*, not"
UNSAFE = r"could not be read: it holds \S*{}, and reading that could run code: save the file anew with a"
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "dict": (lambda folder: {"x": 1}, f"{NO_GRAPHS} dict"),
    "words": (lambda folder: ["graph"], NO_GRAPHS),
    "nothing": (lambda folder: [], NO_GRAPHS),
    "bounds": (lambda folder: (graph(), {"x": torch.tensor([0, 600, 99999999]), "y": "abc"}), "slices that do not fit"),
    "no slices": (lambda folder: (graph(), 3), "graphs and slices that do not fit"),
    "split": (lambda folder: T.RandomLinkSplit()(graph()), "holds a tuple of 3 graphs, as RandomLinkSplit returns: save the"),
    "own": (lambda folder: Data(x=torch.ones(2, 2), own=Own()), UNSAFE.format(r"test_saved_graphs\.Own")),
    "batch": (lambda folder: Batch.from_data_list([graph(), graph(1)]), UNSAFE.format(r"torch_geometric\.data\.batch\.\w+")),
    "ego-nets": (lambda folder: T.RootedEgoNets(1)(graph()), UNSAFE.format(r"transforms\.rooted_subgraph\.RootedSubgraphData")),
    "numpy": (lambda folder: Data(x=torch.ones(2, 2), words=np.array(["a"])), UNSAFE.format(r"numpy\.\S+")),
    "hostile": (lambda folder: Data(hostile=Hostile(mark_of(folder))), UNSAFE.format(r"\w+\.system")),
    "enum": (lambda folder: {AttrType.NODE: Hostile(mark_of(folder))}, UNSAFE.format(r"\w+\.system")),
    "slices": (lambda folder: (Hostile(mark_of(folder)), {}), UNSAFE.format(r"\w+\.system")),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_named_with_the_remedy(tmp_path: Path, kind: str) -> None:
    allowed = Counter(map(str, torch.serialization.get_safe_globals()))
    content, message = REFUSED[kind]
    with pytest.raises(DataError, match=rf"^\S+graph\.pt .*{message}") as raised:
        read_graphs(saved(tmp_path, content(tmp_path)))
    assert "weights_only" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert not mark_of(tmp_path).exists()
    assert Counter(map(str, torch.serialization.get_safe_globals())) == allowed


def test_a_program_of_torchscript_is_refused(tmp_path: Path) -> None:
    torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1)).save(str(tmp_path / "graph.pt"))
    with pytest.raises(DataError, match="could not be read: reading files of this format could run code: save a Data") as told:
        read_graphs(tmp_path / "graph.pt")
    assert "weights_only" not in str(told.value)


def test_saved_graphs_train(tmp_path: Path) -> None:
    one = saved(tmp_path, T.Compose([T.ToUndirected(), T.RandomNodeSplit(num_val=4, num_test=4)])(graph()))
    torch.save(toy_set(60).graphs(), tmp_path / "toys.pt")
    for method, file, more in (("grace", one, ["--no-evaluate"]), ("graphcl", tmp_path / "toys.pt", ["--folds", "2"])):
        words = ["--dataset", str(file), "--output-dir", str(tmp_path / method), "--num-train-epochs", "4", *more]
        assert main(["train", method, *words]) == 0
    assert json.loads((tmp_path / "graphcl" / "metrics.json").read_text())["evaluation"]["accuracy"] > 60
