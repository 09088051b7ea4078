"""Graphs from the folders and files that people have: what PyTorch Geometric's classes and ogb leave, saved graphs, tables."""

from __future__ import annotations

import gzip
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphcl_toys import toy_set
from planetoid_toys import Evil
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import Amazon, CitationFull, Coauthor, TUDataset

from tempplug.cli import main
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.matrices import read_matrix
from tempplug_adapters.graph.graph_data import GraphSet
from tempplug_adapters.graph.node_data import labels_of, load_graph
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.ogb_files import read_ogb
from tempplug_adapters.graph.saved_graphs import read_graphs
from tempplug_adapters.graph.tu_files import load_tu
from tempplug_benchmarks.tasks.node_generated import citation_graph


def write_npz(file: Path) -> None:
    chance = np.random.default_rng(0)
    matrices = {
        "attr": csr_matrix(chance.random((30, 8)) < 0.4, dtype=np.float32),
        "adj": csr_matrix(chance.random((30, 30)) < 0.1),
    }
    arrays = {
        f"{of}_{part}": np.asarray(getattr(matrix, part)).astype(np.float32 if part == "data" else np.int64)
        for of, matrix in matrices.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    file.parent.mkdir(parents=True)
    np.savez_compressed(file, labels=chance.integers(4, size=30), **arrays)


@pytest.mark.parametrize(
    ("word", "kind", "name", "file"),
    [
        ("Cora_ML", CitationFull, "Cora_ML", "cora_ml/raw/cora_ml.npz"),
        ("CitationFull/Cora", CitationFull, "Cora", "cora/raw/cora.npz"),
        ("cs", Coauthor, "CS", "CS/raw/ms_academic_cs.npz"),
        ("Coauthor/Physics", Coauthor, "Physics", "Physics/raw/ms_academic_phy.npz"),
        ("Computers", Amazon, "Computers", "Computers/raw/amazon_electronics_computers.npz"),
        ("amazon/photo", Amazon, "Photo", "Photo/raw/amazon_electronics_photo.npz"),
    ],
)
@pytest.mark.parametrize("under", ["", "graph"])
def test_the_folder_of_pygs_class_is_read_as_the_class_reads_it(
    tmp_path: Path, word: str, kind: Any, name: str, file: str, under: str
) -> None:
    folder = {"CitationFull": "citation_full", "Coauthor": "coauthor", "Amazon": "amazon"}[kind.__name__]
    write_npz((tmp_path / "graph" / folder if under else tmp_path) / file)
    ours = load_graph(word, tmp_path, tmp_path / "cache", normalize=False)
    assert not (tmp_path / "cache").exists()
    root = tmp_path / "graph" / folder if under else tmp_path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = kind(str(root), name)[0]
    for part in ("x", "edge_index", "y"):
        assert torch.equal(ours[part], theirs[part]), part


def test_a_folder_without_its_file_says_so(tmp_path: Path) -> None:
    wanted = r"Amazon/Photo needs amazon_electronics_photo\.npz, not found in .*graph/amazon/Photo/raw\."
    with pytest.raises(DataError, match=wanted):
        load_graph("Photo", tmp_path, tmp_path)
    with pytest.raises(DataError, match="ogbn-arxiv is not downloaded here: let the package ogb do it"):
        load_graph("ogbn-arxiv", None, tmp_path)
    with pytest.raises(
        DataError, match=r"ogbn-arxiv needs edge\.csv\.gz, num-node-list\.csv\.gz, num-edge-list\.csv\.gz, not found in"
    ):
        load_graph("ogbn-arxiv", tmp_path, tmp_path)


def packed(folder: Path, **tables: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (folder / f"{name.replace('_', '-')}.csv.gz").write_bytes(gzip.compress(text.encode()))


def write_arxiv(root: Path, name: str = "ogbn_arxiv", nodes: int = 60, labels: Any = None) -> Path:
    """ogbn-arxiv's layout: directed edges, features, [N, 1] classes, a split by time."""
    chance = np.random.default_rng(0)
    raw, of = root / name / "raw", chance.integers(3, size=(nodes, 1))
    features = np.round(np.eye(8)[of[:, 0]] + chance.normal(size=(nodes, 8)) / 3, 4)
    edges = np.array([[a, b] for a, b in chance.integers(nodes, size=(nodes * 3, 2)) if a != b])
    packed(raw, edge=edges, num_node_list=[[nodes]], num_edge_list=[[len(edges)]], node_feat=features, node_year=of)
    packed(raw, node_label=of if labels is None else labels)
    order = chance.permutation(nodes)[:, None]
    packed(root / name / "split" / "time", train=order[: nodes // 2], valid=order[nodes // 2 : -9], test=order[-9:])
    return root


def test_ogbs_layout_is_read(tmp_path: Path) -> None:
    graph = load_graph("ogbn-arxiv", write_arxiv(tmp_path), tmp_path, normalize=False)
    assert graph.x.shape == (60, 8)
    assert graph.y.shape == (60, 1)
    edges = graph.edge_index.shape[1]
    nodes = Nodes(graph)
    assert nodes.labels is not None
    assert nodes.labels.shape == (60,)
    assert nodes.masks is not None
    assert [int(mask.sum()) for mask in nodes.masks] == [30, 21, 9]
    assert int(sum(mask.long() for mask in nodes.masks).max()) == 1
    write_arxiv(tmp_path, "ogbn_products")
    both = load_graph("ogbn-products", tmp_path, tmp_path).edge_index
    assert both.shape == (2, 2 * edges), "each edge of the others is meant in both directions"
    assert torch.equal(both[:, ::2], graph.edge_index)
    assert torch.equal(both[:, 1::2], graph.edge_index.flip(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_node_list": [[61]]}, "node-feat.csv.gz has 60 rows where the others have 61"),
        ({"num_edge_list": [[3]]}, r"edge.csv.gz has \d+ rows where the others have 3"),
        ({"node_label": [[1]] * 7}, "node-label.csv.gz has 7 rows where the others have 60"),
        ({"edge": [["a", "b"], ["c", "d"]]}, "edge.csv.gz must hold a matrix of numbers"),
    ],
)
def test_tables_of_ogb_that_do_not_fit_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    packed(write_arxiv(tmp_path) / "ogbn_arxiv" / "raw", **change)
    with pytest.raises(DataError, match=message):
        load_graph("ogbn-arxiv", tmp_path, tmp_path)


def test_split_numbers_must_be_nodes(tmp_path: Path) -> None:
    packed(write_arxiv(tmp_path) / "ogbn_arxiv" / "split" / "time", valid=[[60]])
    with pytest.raises(DataError, match=r"valid\.csv\.gz must hold nodes, from 0 to 59"):
        load_graph("ogbn-arxiv", tmp_path, tmp_path)


def test_many_graphs_of_ogb_by_the_command(tmp_path: Path) -> None:
    graphs = toy_set(60)
    once = [g.edge_index[:, g.edge_index[0] < g.edge_index[1]] for g in graphs.graphs()]
    sizes = graphs.node_start.diff().tolist(), [each.shape[1] for each in once]
    packed(
        tmp_path / "ogbg_moltoy" / "raw",
        edge=torch.cat(once, 1).T.tolist(),
        num_node_list=[[each] for each in sizes[0]],
        num_edge_list=[[each] for each in sizes[1]],
        node_feat=graphs.x.long().tolist(),
        edge_feat=[[7, 1]] * sum(sizes[1]),
        graph_label=[["nan"] if number == 4 else [int(each)] for number, each in enumerate(graphs.labels)],  # type: ignore[arg-type]
    )
    read = read_ogb(tmp_path / "ogbg_moltoy", "ogbg-moltoy")
    assert len(read) == 60
    for ours, theirs in zip(read, graphs.graphs(), strict=True):
        assert torch.equal(ours.x, theirs.x.long())
        assert sorted(ours.edge_index.T.tolist()) == sorted(theirs.edge_index.T.tolist())
        assert ours.edge_attr.shape == (ours.num_edges, 2)
    words = ["--dataset", "ogbg-moltoy", "--data-dir", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    with pytest.warns(UserWarning, match="edge_attr of the data is not used: the encoder GIN does not take it"):
        assert main(["train", "graphcl", *words, "--num-train-epochs", "1", "--folds", "2"]) == 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]["accuracy"] > 40


class Toys(InMemoryDataset):
    """A data set of PyTorch Geometric; what it leaves in ``processed`` is its own doing."""

    def __init__(self, root: str, graphs: list[Data]) -> None:
        self.graphs = graphs
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        self.save(self.graphs, self.processed_paths[0])


@pytest.mark.parametrize("count", [1, 5])
def test_what_a_data_set_leaves_is_read(tmp_path: Path, count: int) -> None:
    graphs = [citation_graph(number) for number in range(count)]
    dataset = Toys(str(tmp_path), graphs)
    torch.save((dataset._data, dataset.slices), tmp_path / "pair.pt")
    torch.save(graphs, tmp_path / "list.pt")
    for file in (tmp_path / "processed" / "data.pt", tmp_path / "pair.pt", tmp_path / "list.pt"):
        found = read_graphs(file)
        assert len(found) == count
        for ours, theirs in zip(found, graphs, strict=True):
            for part in ("x", "edge_index", "y"):
                assert torch.equal(ours[part], theirs[part])
        assert len(load_graph(str(file), None, tmp_path).x) == 600 * count


def test_saved_graphs_that_are_none_are_named(tmp_path: Path) -> None:
    data, slices = InMemoryDataset.collate([citation_graph(0), citation_graph(1)])
    for name, content, message in [
        ("words", ["graph"], "must hold a torch_geometric.data.Data, a list of them, or the"),
        ("none", [], "must hold a torch_geometric.data.Data, a list of them, or the"),
        ("slices", (data, {"x": torch.tensor([0, 600, 99999999]), "y": "abc"}), "graphs and slices that do not fit"),
        ("number", (data, 3), "graphs and slices that do not fit"),
    ]:
        torch.save(content, tmp_path / f"{name}.pt")
        with pytest.raises(DataError, match=message):
            read_graphs(tmp_path / f"{name}.pt")
    assert slices is not None
    torch.save((Evil(tmp_path / "evil"), slices), tmp_path / "evil.pt")
    with pytest.raises(DataError, match="could not be read"):
        read_graphs(tmp_path / "evil.pt")
    assert not (tmp_path / "evil").exists()


def test_saved_graphs_train_graphcl(tmp_path: Path) -> None:
    torch.save(toy_set(60).graphs(), tmp_path / "toys.pt")
    words = ["--dataset", str(tmp_path / "toys.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "4"]
    assert main(["train", "graphcl", *words, "--folds", "2"]) == 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]["accuracy"] > 60


def test_tudatasets_folder_is_read(tmp_path: Path) -> None:
    raw = tmp_path / "TOY" / "raw"
    raw.mkdir(parents=True)
    parts = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "graph_indicator": "1\n1\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "4\n2\n4\n2\n",
    }
    for part, text in parts.items():
        (raw / f"TOY_{part}.txt").write_text(text)
    ours = load_tu("TOY", tmp_path / "cache", tmp_path)
    theirs = GraphSet.from_graphs(TUDataset(str(tmp_path), "TOY"))
    for part in ("x", "edge_index", "node_start", "edge_start", "labels"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def write_tables(folder: Path) -> dict[str, Any]:
    graph = citation_graph(0)
    np.save(folder / "x.npy", graph.x.numpy())
    lines = [f"{a},{b},{0.5 + a % 2}" for a, b in graph.edge_index.T.tolist()]
    (folder / "edges.csv").write_text("source,target,weight\n" + "\n".join(lines) + "\n")
    (folder / "y.txt").write_text("\n".join("-1" if node == 5 else str(int(each)) for node, each in enumerate(graph.y)))
    return {"graph": graph, "features": folder / "x.npy", "labels": folder / "y.txt"}


def test_tables_are_a_graph(tmp_path: Path) -> None:
    written = write_tables(tmp_path)
    graph = written.pop("graph")
    found = load_graph(str(tmp_path / "edges.csv"), None, tmp_path, False, **written)
    assert torch.equal(found.x, graph.x)
    assert torch.equal(found.edge_index, graph.edge_index)
    assert torch.equal(found.edge_weight, 0.5 + graph.edge_index[0] % 2)
    labels = Nodes(found).labels
    assert labels is not None
    assert labels[5] == -1
    np.save(tmp_path / "edges.npy", graph.edge_index.numpy())
    assert torch.equal(load_graph(str(tmp_path / "edges.npy"), None, tmp_path, **written).edge_index, graph.edge_index)
    with pytest.raises(ConfigError, match=r"a table of edges such as .*edges\.csv needs --node-features"):
        load_graph(str(tmp_path / "edges.csv"), None, tmp_path)
    with pytest.raises(
        ConfigError, match="--node-features and --node-labels belong to a table of edges, not to dataset='Cora'"
    ):
        load_graph("Cora", None, tmp_path, features=tmp_path / "x.npy")
    np.save(tmp_path / "few.npy", np.zeros(7))
    with pytest.raises(DataError, match=r"few\.npy has labels of 7 nodes, but .* features of 600"):
        load_graph(str(tmp_path / "edges.csv"), None, tmp_path, features=tmp_path / "x.npy", labels=tmp_path / "few.npy")
    with pytest.raises(DataError, match="must have two columns, the nodes of an edge, or three with its weight, not 200"):
        load_graph(str(tmp_path / "x.npy"), None, tmp_path, features=tmp_path / "x.npy")


def test_tables_train_by_the_command(tmp_path: Path) -> None:
    write_tables(tmp_path)
    files = ["--node-features", str(tmp_path / "x.npy"), "--node-labels", str(tmp_path / "y.txt")]
    words = ["--dataset", str(tmp_path / "edges.csv"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "2"]
    assert main(["train", "grace", *words, *files, "--protocols", "10/10/80", "--splits", "2"]) == 0
    results = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert set(results["evaluation"]) == {f"f1_{name} 10/10/80" for name in ("micro", "macro", "validation")}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "x,y\n1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a.tsv", "1\t2.5\n3\t\n".replace("\t\n", "\tnan\n"), [[1, 2.5], [3, math.nan]]),
        ("a.txt", "1 2\n3 4", [[1, 2], [3, 4]]),
        ("a.txt", "7\n8\n", [[7], [8]]),
    ],
)
def test_texts_are_matrices(tmp_path: Path, name: str, text: str, expected: list[list[float]]) -> None:
    (tmp_path / name).write_text(text)
    found = read_matrix(tmp_path / name)
    torch.testing.assert_close(found, torch.tensor(expected), equal_nan=True)


def test_matrices_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b\n")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01")
    np.save(tmp_path / "code.npy", np.array([{"a": 1}]), allow_pickle=True)
    torch.save({"a": 1}, tmp_path / "words.pt")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    for name in ("empty.csv", "ragged.csv", "cut.npy", "code.npy", "words.pt", "cube.npy"):
        with pytest.raises(DataError, match=f"{name} must hold a matrix of numbers"):
            read_matrix(tmp_path / name)
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        read_matrix(tmp_path / "none.csv")


def test_labels_of_every_shape(tmp_path: Path) -> None:
    def of(y: Any) -> Tensor | None:
        return labels_of(Data(x=torch.ones(3, 2), y=None if y is None else torch.tensor(y)), "toy")

    for y, expected in [
        ([2, 0, 1], [2, 0, 1]),
        ([[2], [0], [-1]], [2, 0, -1]),
        ([2.0, math.nan, 1.0], [2, -1, 1]),
        ([True, False, True], [1, 0, 1]),
        ([[1, 0], [0, 1], [1, -1]], [[1, 0], [0, 1], [1, -1]]),
    ]:
        found = of(y)
        assert found is not None
        assert found.tolist() == expected
    assert of(None) is None
    assert of([-1, -1, -1]) is None
    for y, message in [
        ([0.5, 1, 2], "y must hold classes, whole numbers, to measure by; with --no-evaluate it may be anything"),
        ([1, 2], r"y must hold one class a node, \[3\], or several, \[3, classes\], not \[2\]"),
        ([-2, 0, 1], "y must hold classes from 0, and -1 where a label is missing, not -2 to 1"),
        ([[0, 2], [0, 1], [0, 1]], "y must hold 0 or 1 for each class of a node, .* not 0 to 2"),
    ]:
        with pytest.raises(DataError, match=f"toy: {message}"):
            of(y)
    torch.save(Data(x=torch.ones(12, 2), edge_index=torch.zeros(2, 1).long(), y=torch.rand(12)), tmp_path / "regression.pt")
    words = ["--dataset", str(tmp_path / "regression.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1"]
    assert main(["train", "grace", *words]) == 2
    assert main(["train", "grace", *words, "--no-evaluate"]) == 0


@pytest.mark.parametrize("device", [["--device", "cuda"], ["--device=foo"]])
def test_a_device_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: list[str]) -> None:
    assert main(["train", "grace", "--dataset", "Cora", "--output-dir", str(tmp_path), *device]) == 2
    assert "--device is not a training flag: training uses a GPU if there is one; --use-cpu" in capsys.readouterr().err
