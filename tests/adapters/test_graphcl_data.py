"""Graphs in one record: batches equal those of PyTorch Geometric, data sets of the TU collection are read, faults are named."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from graphcl_toys import Data, graph, ring, toy_set, write_tu
from planetoid_toys import Evil
from torch_geometric.data import Batch
from torch_geometric.datasets import TUDataset

from tempplug.errors import DataError
from tempplug_adapters.graph import tu_files
from tempplug_adapters.graph.graph_data import GraphSet
from tempplug_adapters.graph.tu_files import load_tu


def test_a_batch_is_that_of_pytorch_geometric() -> None:
    graphs = [graph(5, ring(5)), graph(1, []), graph(4, []), graph(7, [(0, 6), (2, 3)])]
    order = [3, 1, 0, 3, 2]
    ours = GraphSet.from_graphs(graphs).batch(torch.tensor(order))
    theirs = Batch.from_data_list([graphs[position] for position in order])
    assert torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert torch.equal(ours.batch, theirs.batch)
    assert ours.num_graphs == theirs.num_graphs == 5


def test_graphs_without_features_get_a_one() -> None:
    graphs = GraphSet.from_graphs([graph(3, [(0, 1)], width=None), graph(2, [], label=1, width=None)])
    assert torch.equal(graphs.x, torch.ones(5, 1))
    assert graphs.labels is not None
    assert graphs.labels.tolist() == [0, 1]


def test_labels_are_optional() -> None:
    some = GraphSet.from_graphs([Data(x=torch.ones(2, 1)), graph(2, [], label=3, width=1)]).labels
    assert some is not None
    assert some.tolist() == [-1, 3]
    assert GraphSet.from_graphs([Data(x=torch.ones(2, 1)), graph(2, [], label=-1, width=1)]).labels is None
    assert GraphSet.from_graphs([Data(x=torch.ones(2))]).x.shape == (2, 1)


def labelled(*labels: Any) -> GraphSet:
    return GraphSet.from_graphs([Data(x=torch.ones(2, 1), y=None if each is None else torch.tensor(each)) for each in labels])


def test_graphs_may_have_several_labels() -> None:
    nan = torch.nan
    found = labelled([[1.0, 0.0, nan]], [[-1.0, 1.0, 0.0]], None).labels
    assert found is not None
    assert torch.equal(found.nan_to_num(9), torch.tensor([[1.0, 0, 9], [9, 1, 0], [9, 9, 9]]))
    assert labelled([[nan, nan]], [[-1.0, -1.0]]).labels is None
    again = GraphSet.from_graphs(labelled([[1, 0]], [[0, 1]]).graphs()).labels
    assert again is not None
    assert again.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "labels", [([0.3], [2.0]), ([[1, 2]], [[0, 1]]), ([0, 1], [1, 0]), ([[1, 0]], [[1, 0, 1]]), ([1], [[1, 0]])]
)
def test_what_is_neither_class_nor_labels_is_told(labels: Any) -> None:
    with pytest.warns(UserWarning, match="y of the graphs is not used, and so they are not classified: it must be a class"):
        assert labelled(*labels).labels is None


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
    ],
)
def test_faulty_graphs_are_named(graphs: list[Data], message: str) -> None:
    with pytest.raises(DataError, match=message):
        GraphSet.from_graphs(graphs)


@pytest.mark.parametrize("kinds", [3, None])
def test_an_archive_is_read_and_left_alone(tmp_path: Path, kinds: int | None) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    written = toy_set(12)
    archive = write_tu(data / "graph" / "tu", "TOY", written, kinds)
    for _ in range(2):
        read = load_tu("TOY", cache, data)
    assert torch.equal(read.node_start, written.node_start)
    assert torch.equal(read.edge_start, written.edge_start)
    for position in range(12):
        ours, theirs = (each.batch(torch.tensor([position])).edge_index.T.tolist() for each in (read, written))
        assert sorted(ours) == sorted(theirs)
    assert read.labels is not None
    assert torch.equal(read.labels, written.labels)
    expected = torch.ones(len(written.x), 1)
    if kinds:
        expected = torch.nn.functional.one_hot(torch.arange(len(written.x)) % kinds).float()
    assert torch.equal(read.x, expected)
    assert [each for each in data.rglob("*") if each.is_file()] == [archive]


def test_missing_and_damaged_archives_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "graph" / "tu"
    with pytest.raises(DataError, match=r"TOY.tar.xz does not exist: the data folder must hold the TU data set 'TOY'"):
        load_tu("TOY", tmp_path / "cache", tmp_path)
    archive = write_tu(folder, "TOY", toy_set(400))
    archive.rename(folder / "OTHER.tar.xz")
    with pytest.raises(DataError, match=r"OTHER.tar.xz must hold OTHER_A.txt, OTHER_graph_indicator.txt, OTHER_graph_l"):
        load_tu("OTHER", tmp_path / "cache", tmp_path)
    whole = (folder / "OTHER.tar.xz").read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + b"0123456789" + whole[middle + 10 :], b"no archive"):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match=r"TOY.tar.xz cannot be read: "):
            load_tu("TOY", tmp_path / "cache", tmp_path)
    assert not (tmp_path / "cache").exists(), "nothing is unpacked"


def pack(folder: Path, **parts: str) -> Path:
    """An archive as the collection's site has it."""
    texts = {
        "A": "1, 2\n2, 1\n",
        "graph_indicator": "1\n1\n2\n",
        "graph_labels": "5\n-1\n",
        "node_labels": "4\n2\n4\n",
        **parts,
    }
    (folder / "graph" / "tu").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "graph" / "tu" / "TOY.zip", "w") as archive:
        for part, text in texts.items():
            archive.writestr(f"TOY/TOY_{part}.txt", text)
    return folder / "graph" / "tu" / "TOY.zip"


def test_the_archive_of_the_collections_site_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = pack(tmp_path)
    read = load_tu("TOY", tmp_path / "cache", tmp_path)
    assert read.x.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert read.edge_index.tolist() == [[0, 1], [1, 0]]
    assert read.node_start.tolist() == [0, 2, 3]
    assert read.labels is not None
    assert read.labels.tolist() == [1, 0]
    monkeypatch.setattr(tu_files, "_URL", place.parent.as_uri() + "/{name}.zip")
    with pytest.warns(UserWarning, match=r"no checksum of file:.*TOY\.zip is known .* SHA-256 [0-9a-f]{64}"):
        downloaded = load_tu("TOY", tmp_path / "cache")
    assert torch.equal(downloaded.x, read.x)
    load_tu("TOY", tmp_path / "cache")  # it is there now
    monkeypatch.setattr(tu_files, "_URL", place.parent.as_uri() + "/none-{name}.zip")
    with pytest.raises(DataError, match=r"none-TOY\.zip cannot be downloaded: .* With --data-dir"):
        load_tu("TOY", tmp_path / "other")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
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
    ],
)
def test_texts_that_do_not_fit_are_named(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    pack(tmp_path, **parts)
    with pytest.raises(DataError, match=rf"the TU data set 'TOY' cannot be read from .*TOY\.zip: .*{message}"):
        load_tu("TOY", tmp_path / "cache", tmp_path)


def test_what_pytorch_geometric_would_have_kept_is_not_looked_at(tmp_path: Path) -> None:
    """Its readers run the code in a file ``processed/data.pt``, which an archive may bring along."""
    archive = write_tu(tmp_path / "graph" / "tu", "TOY", toy_set(12))
    with tarfile.open(archive) as stream:
        texts = {each.name: stream.extractfile(each).read() for each in stream}  # type: ignore[union-attr]
    texts["TOY/processed/data.pt"] = pickle.dumps(Evil(tmp_path / "evil"))
    with tarfile.open(archive, "w:xz") as stream:
        for name, content in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            stream.addfile(entry, io.BytesIO(content))
    assert len(load_tu("TOY", tmp_path / "cache", tmp_path)) == 12
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["MUTAG", "IMDB-BINARY"])
def test_a_data_set_is_read_as_pytorch_geometric_reads_it(name: str, tmp_path: Path, data_dir: Path) -> None:
    with tarfile.open(data_dir / "graph" / "tu" / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    theirs, ours = GraphSet.from_graphs(TUDataset(str(tmp_path), name)), load_tu(name, tmp_path, data_dir)
    for part in ("x", "edge_index", "node_start", "edge_start", "labels"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges", "features", "ones"),
    [("MUTAG", 188, 3371, 7442, 7, 125), ("IMDB-BINARY", 1000, 19773, 193062, 1, 500)],
)
def test_real_data_have_their_official_sizes(
    name: str, graphs: int, nodes: int, edges: int, features: int, ones: int, tmp_path: Path, data_dir: Path
) -> None:
    read = load_tu(name, tmp_path, data_dir)
    assert (len(read), *read.x.shape, read.edge_index.shape[1]) == (graphs, nodes, features, edges)
    assert read.labels is not None
    assert int(read.labels.sum()) == ones
