"""Graphs in one record: batches equal those of PyTorch Geometric; data sets of the TU collection and of OGB are read."""

from __future__ import annotations

import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import Data, graph, packed, ring, toy_set, write_tu
from hostile_toys import Hostile, mark_of
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.datasets import TUDataset

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.graph import graph_files
from tempplug_adapters.graph.graph_data import GraphSet
from tempplug_adapters.graph.graph_files import load_ogb, load_tu


def same_graphs(
    ours: GraphSet, theirs: GraphSet, parts: tuple[str, ...] = ("x", "edge_index", "node_start", "edge_start", "labels")
) -> None:
    for part in parts:
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def test_a_batch_is_that_of_pytorch_geometric() -> None:
    graphs, order = [graph(5, ring(5)), graph(1, []), graph(4, []), graph(7, [(0, 6), (2, 3)])], [3, 1, 0, 3, 2]
    ours = GraphSet.from_graphs(graphs).batch(torch.tensor(order))
    theirs = Batch.from_data_list([graphs[position] for position in order])
    for part in ("x", "edge_index", "batch"):
        assert torch.equal(getattr(ours, part), theirs[part]), part
    assert ours.num_graphs == theirs.num_graphs == 5


def labelled(*labels: Any) -> Tensor | None:
    graphs = [Data(x=torch.ones(2), y=None if each is None else torch.tensor(each)) for each in labels]
    return GraphSet.from_graphs(graphs).labels


def test_features_and_labels_are_optional() -> None:
    bare = GraphSet.from_graphs([graph(3, [(0, 1)], width=None), graph(2, [], label=1, width=None)])
    assert torch.equal(bare.x, torch.ones(5, 1))
    nan = torch.nan
    for given, expected in [
        ((0, 1), [0, 1]),
        ((None, 3), [-1, 3]),
        ((None, -1), None),
        (([[1.0, 0.0, nan]], [[-1.0, 1.0, 0.0]], None), [[1, 0, 9], [9, 1, 0], [9, 9, 9]]),
        (([[nan, nan]], [[-1.0, -1.0]]), None),
    ]:
        found = labelled(*given)
        assert (found if found is None else found.nan_to_num(9).tolist()) == expected
    several = GraphSet.from_graphs([Data(x=torch.ones(2), y=torch.tensor([[1, 0]]))])
    same_graphs(GraphSet.from_graphs(several.graphs()), several)


def test_words_and_signs_are_classes() -> None:
    graphs = [Data(x=torch.ones(2), y=word) for word in ("b", ["a"], "", None, "b")]
    assert GraphSet.from_graphs(graphs).labels.tolist() == [1, 0, -1, -1, 1]  # type: ignore[union-attr]
    with pytest.warns(
        UserWarning, match="y of the graphs: the labels are -1 and 1 alone, which are read as the classes 0 and 1"
    ):
        assert labelled(1, -1, None, 1).tolist() == [1, 0, -1, 1]  # type: ignore[union-attr]
    assert labelled(1, -1, 0).tolist() == [1, -1, 0]  # type: ignore[union-attr]


def test_labels_that_are_not_used_are_warned_of() -> None:
    for given in (([0.3], [2.0]), ([[1, 2]], [[0, 1]]), ([0, 1], [1, 0]), ([[1, 0]], [[1, 0, 1]]), ([1], [[1, 0]])):
        with pytest.warns(UserWarning, match="y of the graphs is not used in the evaluation: it must be one class"):
            assert labelled(*given) is None


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "the data set has no graph"),
        ([graph(2, []), Data(x=torch.ones(0, 2))], "graph 1 has no node"),
        ([graph(2, []), graph(2, [], width=None)], "graph 1 has no node features, but others have"),
        ([graph(2, []), graph(2, [], width=3)], r"features of different widths: \[2, 3\]"),
        ([Data(edge_index=torch.zeros(2, 1, dtype=torch.int64))], "graph 0 has neither x nor num_nodes"),
        (
            [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [2]]))],
            "graph 0 has 2 nodes, but edges between nodes 0 to 2",
        ),
        ([Data(x=torch.full((2, 1), float("nan")))], "graph 0 has node features that are not finite"),
        (
            [graph(2, [], label=1), Data(x=torch.ones(2, 1), y="mutagenic")],
            "graph 0 has a number as y, and others words: use one of both",
        ),
        (
            [Data(x=torch.ones(2, 1), y="nan"), Data(x=torch.ones(2, 1), y="b")],
            "y of the graphs: 'nan' can be a class or a missing label: leave missing labels empty, or rename the class",
        ),
        ([Data(x=torch.ones(2, 1), y=[1, None])], r"graph 0 has y='\[1, None\]', which is neither a number nor a word"),
    ],
)
def test_faulty_graphs_are_named(graphs: list[Data], message: str) -> None:
    with pytest.raises(DataError, match=message):
        GraphSet.from_graphs(graphs)


@pytest.mark.parametrize("kinds", [3, None])
def test_an_archive_is_read_and_left_alone(tmp_path: Path, kinds: int | None) -> None:
    data, written, evil = tmp_path / "data", toy_set(12), tmp_path / "evil.pt"
    archive = write_tu(data / "graph" / "tu", "TOY", written, kinds)
    # PyTorch Geometric's reader would run what is in it
    evil.write_bytes(pickle.dumps(Hostile(mark_of(tmp_path))))
    with tarfile.open(archive) as stream:
        stream.extractall(tmp_path / "parts", filter="data")
    with tarfile.open(archive, "w:xz") as stream:
        stream.add(tmp_path / "parts" / "TOY", "TOY")
        stream.add(evil, "TOY/processed/data.pt")
    read = load_tu("TOY", tmp_path / "cache", data)
    assert not mark_of(tmp_path).exists()
    assert not (tmp_path / "cache").exists()
    assert [each for each in data.rglob("*") if each.is_file()] == [archive]
    same_graphs(read, written, ("node_start", "edge_start", "labels"))
    for position in range(12):
        ours, theirs = (each.batch(torch.tensor([position])).edge_index.T.tolist() for each in (read, written))
        assert sorted(ours) == sorted(theirs)
    kind = torch.arange(len(written.x)) % (kinds or 1)
    assert torch.equal(read.x, torch.nn.functional.one_hot(kind).float())
    folder = TUDataset(str(tmp_path / "parts"), "TOY")
    same_graphs(load_tu("TOY", tmp_path, tmp_path / "parts"), GraphSet.from_graphs(folder))


def test_missing_and_damaged_archives_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "graph" / "tu"
    archive = write_tu(folder, "TOY", toy_set(400))
    whole = archive.read_bytes()
    middle = len(whole) // 2
    archive.rename(folder / "OTHER.tar.xz")
    for name, content, message in [
        ("TOY", None, r"TOY.tar.xz does not exist: the data folder must hold the TU data set 'TOY'"),
        ("OTHER", None, r"OTHER.tar.xz must hold OTHER_A.txt, OTHER_graph_indicator.txt, OTHER_graph_l"),
        ("TOY", whole[:middle], r"TOY.tar.xz cannot be read: "),
        ("TOY", whole[:middle] + b"0123456789" + whole[middle + 10 :], r"TOY.tar.xz cannot be read: "),
        ("TOY", b"no archive", r"TOY.tar.xz cannot be read: "),
    ]:
        if content is not None:
            archive.write_bytes(content)
        with pytest.raises(DataError, match=message):
            load_tu(name, tmp_path / "cache", tmp_path)
    assert not (tmp_path / "cache").exists(), "nothing is unpacked"


def pack(folder: Path, **parts: str) -> Path:
    """An archive as the collection's site has it."""
    texts = {"A": "1, 2\n2, 2\n2, 1\n2, 1\n", "graph_indicator": "1\n1\n2\n", "graph_labels": "5\n-1\n"}
    (folder / "graph" / "tu").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "graph" / "tu" / "TOY.zip", "w") as archive:
        for part, text in {**texts, "node_labels": "4\n2\n4\n", **parts}.items():
            archive.writestr(f"TOY/TOY_{part}.txt", text)
    return folder / "graph" / "tu"


def test_the_archive_of_the_collections_site_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = pack(tmp_path / "data").as_uri()
    read = load_tu("TOY", tmp_path / "cache", tmp_path / "data")
    assert read.x.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert read.labels.tolist() == [1, 0]  # type: ignore[union-attr]
    assert read.edge_index.tolist() == [[0, 1], [1, 0]], "each edge once, and none from a node to itself"
    monkeypatch.setattr(graph_files, "_URL", site + "/{name}.zip")
    with pytest.warns(UserWarning, match=r"the checksum of file:.*TOY\.zip is unknown; .* SHA-256 [0-9a-f]{64}"):
        downloaded = load_tu("TOY", tmp_path / "cache")
    assert torch.equal(downloaded.x, read.x)
    load_tu("TOY", tmp_path / "cache")  # it is there now
    monkeypatch.setattr(graph_files, "_URL", site + "/none-{name}.zip")
    with pytest.raises(DataError, match=r"none-TOY\.zip cannot be downloaded: .* With --data-dir"):
        load_tu("TOY", tmp_path / "other")


TEXTS = [
    ({"A": "1, x\n"}, "TOY_A.txt must hold whole numbers"),
    ({"A": ""}, "TOY_A.txt is empty"),
    ({"A": "1, 2, 3\n"}, "an edge must be two numbers"),
    ({"A": "1, 4\n"}, "there are 3 nodes, but edges between nodes 1 to 4"),
    ({"A": "0, 1\n"}, "there are 3 nodes, but edges between nodes 0 to 1"),
    ({"A": "9" * 5000 + ", 1\n"}, "TOY_A.txt must hold whole numbers"),
    ({"A": "2, 3\n"}, "an edge leads from one graph to another"),
    ({"graph_indicator": "1\n1\n9000000000\n"}, "nodes must be in the order of their graphs"),
    ({"graph_indicator": "1\n2\n1\n"}, "nodes must be in the order of their graphs"),
    ({"graph_labels": "5\n"}, "numbered from 1 to 1, none empty"),
    ({"node_labels": "1\n2\n"}, "there are 3 nodes, but labels of 2"),
    ({"node_labels": "0\n1\n4000000000\n"}, "labels of nodes reach 4000000001 values"),
]


def test_texts_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for parts, message in TEXTS:
        pack(tmp_path, **parts)
        with pytest.raises(DataError, match=rf"the TU data set 'TOY' cannot be read from .*TOY\.zip: .*{message}"):
            load_tu("TOY", tmp_path / "cache", tmp_path)


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges", "features", "ones"),
    [("MUTAG", 188, 3371, 7442, 7, 125), ("IMDB-BINARY", 1000, 19773, 193062, 1, 500)],
)
def test_real_data_have_their_official_sizes(
    name: str, graphs: int, nodes: int, edges: int, features: int, ones: int, tmp_path: Path, data_dir: Path
) -> None:
    read = load_tu(name, tmp_path, data_dir)
    assert (len(read), *read.x.shape, read.edge_index.shape[1]) == (graphs, nodes, features, edges)
    assert int(read.labels.sum()) == ones  # type: ignore[union-attr]
    with tarfile.open(data_dir / "graph" / "tu" / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    same_graphs(read, GraphSet.from_graphs(TUDataset(str(tmp_path), name)))


def test_many_graphs_of_ogb_by_the_command(tmp_path: Path) -> None:
    graphs = toy_set(60)
    once = [each.edge_index[:, each.edge_index[0] < each.edge_index[1]] for each in graphs.graphs()]
    edges = torch.cat(once, 1)
    packed(
        tmp_path / "ogbg_moltoy" / "raw",
        edge=edges.T.tolist(),
        num_node_list=[[each] for each in graphs.node_start.diff().tolist()],
        num_edge_list=[[each.shape[1]] for each in once],
        node_feat=graphs.x.long().tolist(),
        edge_feat=[[7, 1]] * edges.shape[1],
        graph_label=[["nan"] if number == 4 else [int(each)] for number, each in enumerate(graphs.labels)],  # type: ignore[arg-type]
    )
    read = load_ogb("ogbg-moltoy", tmp_path)
    for ours, theirs in zip(read, graphs.graphs(), strict=True):
        assert torch.equal(ours.x, theirs.x.long())
        assert sorted(ours.edge_index.T.tolist()) == sorted(theirs.edge_index.T.tolist())
        assert ours.edge_attr.shape == (ours.num_edges, 2)
    words = ["--dataset", "ogbg-moltoy", "--data-dir", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    with pytest.warns(UserWarning, match="edge_attr of the data is not used: the encoder GIN does not take it"):
        assert main(["train", "graphcl", *words, "--num-train-epochs", "1", "--folds", "2"]) == 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]["accuracy"] > 40
