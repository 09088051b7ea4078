"""Graphs in one record: batches equal those of PyTorch Geometric, data sets of the TU collection are read, faults are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graphcl_toys import Data, graph, ring, toy_set, write_tu
from torch_geometric.data import Batch

from tempplug.errors import DataError
from tempplug_adapters.graph.graph_data import GraphSet, load_tu


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
    assert GraphSet.from_graphs([Data(x=torch.ones(2, 1)), graph(2, [], width=1)]).labels is None
    assert GraphSet.from_graphs([Data(x=torch.ones(2))]).x.shape == (2, 1)


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
    with pytest.raises(DataError, match=r"OTHER.tar.xz must hold a folder 'OTHER'"):
        load_tu("OTHER", tmp_path / "cache", tmp_path)
    whole = (folder / "OTHER.tar.xz").read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + b"0123456789" + whole[middle + 10 :], b"no archive"):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match=r"TOY.tar.xz is not a readable archive"):
            load_tu("TOY", tmp_path / "cache", tmp_path)
    assert not list((tmp_path / "cache").iterdir()), "nothing half-unpacked is left"


def test_an_archive_without_labels_of_its_graphs_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache" / "TOY" / "raw").mkdir(parents=True)
    (tmp_path / "cache" / "TOY" / "raw" / "TOY_A.txt").write_text("1, x\n")
    (tmp_path / "cache" / "TOY" / "raw" / "TOY_graph_indicator.txt").write_text("1\n")
    with pytest.raises(DataError, match="the TU data set 'TOY' cannot be read"):
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
    assert read.labels is not None
    assert int(read.labels.sum()) == ones
