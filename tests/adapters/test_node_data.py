"""Graphs for node classification from the folders and files that users have; everything that a graph may lack is named."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz_loaders import write_npz
from graphcl_toys import packed
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, CitationFull, Coauthor

from tempplug.cli import main
from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.graph import grace_method, node_data
from tempplug_adapters.graph.node_data import check_graph, labels_of, load_graph, scaled_features
from tempplug_adapters.graph.node_tables import read_tables
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.storage.tensors import read_matrix
from tempplug_benchmarks.tasks.node import citation_graph

EDGES = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes"),
    [("Cora", 2708, 10556, 1433, 7), ("citeseer", 3327, 9104, 3703, 6), ("DBLP", 17716, 105734, 1639, 4)],
)
def test_public_graphs_are_read_and_their_folder_is_left_alone(
    data_dir: Path, tmp_path: Path, name: str, nodes: int, edges: int, features: int, classes: int
) -> None:
    before = sorted((data_dir / "graph").rglob("*"))
    graph = load_graph(name, data_dir, tmp_path, normalize=False)
    assert (graph.x.shape, graph.edge_index.shape) == ((nodes, features), (2, edges))
    assert sorted(set(graph.y.tolist())) == list(range(classes))
    assert bool(((graph.x == 0) | (graph.x == 1)).all())
    sums = scaled_features(graph).x.sum(1)
    assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all()), "features of a node sum to 1, or there are none"
    if name != "DBLP":
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
        assert [int(mask.sum()) for mask in masks] == [140 if name == "Cora" else 120, 500, 1000], "the public split"
        assert {len(mask) for mask in masks} == {nodes}
    assert sorted((data_dir / "graph").rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "kind", "name", "file", "root"),
    [
        ("Cora_ML", CitationFull, "Cora_ML", "cora_ml/raw/cora_ml.npz", "graph/citation_full"),
        ("CitationFull/Cora", CitationFull, "Cora", "cora/raw/cora.npz", ""),
        ("cs", Coauthor, "CS", "CS/raw/ms_academic_cs.npz", "coauthor"),
        ("Coauthor/Physics", Coauthor, "Physics", "Physics/raw/ms_academic_phy.npz", "graph/coauthor"),
        ("Computers", Amazon, "Computers", "Computers/raw/amazon_electronics_computers.npz", ""),
        ("amazon/photo", Amazon, "Photo", "Photo/raw/amazon_electronics_photo.npz", "graph/amazon"),
    ],
)
def test_the_folder_of_pygs_class_is_read_as_the_class_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, kind: Any, name: str, file: str, root: str
) -> None:
    write_npz(tmp_path / root / file)
    ours = load_graph(word, tmp_path, tmp_path / "cache", normalize=False)
    assert not (tmp_path / "cache").exists()
    for constant in ("_FULL", "_SHCHUR"):
        monkeypatch.setattr(node_data, constant, (tmp_path / root / file).parent.as_uri() + "/{}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = kind(str(tmp_path / root), name)[0]
        downloaded = load_graph(word, None, tmp_path / "cache", normalize=False)
    for part in ("x", "edge_index", "y"):
        assert torch.equal(ours[part], theirs[part]), part
        assert torch.equal(downloaded[part], theirs[part]), part


def test_archives_that_do_not_fit_are_named(tmp_path: Path) -> None:
    file = tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz"
    write_npz(file)
    whole = dict(np.load(file))
    links = "photo.npz must have links between its 30 nodes, and a class"
    for changes, message in [
        ({"labels": None}, "photo.npz lacks labels"),
        ({"adj_indices": np.full(90, 10**9)}, "photo.npz cannot be read: its matrix is damaged"),
        ({"adj_shape": np.array([30, 31])}, links),
        ({"labels": np.zeros(30)}, links),
    ]:
        np.savez(file, **{name: each for name, each in {**whole, **changes}.items() if each is not None})
        with pytest.raises(DataError, match=message):
            load_graph("Photo", tmp_path, tmp_path)


def write_arxiv(root: Path, name: str = "ogbn_arxiv") -> Path:
    """ogbn-arxiv's layout: directed edges, features, [N, 1] classes, a split by time."""
    chance = np.random.default_rng(0)
    of = chance.integers(3, size=(60, 1))
    features = np.round(np.eye(8)[of[:, 0]] + chance.normal(size=(60, 8)) / 3, 4)
    edges = np.array([[a, b] for a, b in chance.integers(60, size=(180, 2)) if a != b])
    sizes = {"num_node_list": [[60]], "num_edge_list": [[len(edges)]]}
    packed(root / name / "raw", edge=edges, node_feat=features, node_year=of, node_label=of, **sizes)
    order = chance.permutation(60)[:, None]
    packed(root / name / "split" / "time", train=order[:30], valid=order[30:-9], test=order[-9:])
    return root


def test_ogbs_layout_is_read(tmp_path: Path) -> None:
    graph = load_graph("ogbn-arxiv", write_arxiv(tmp_path), tmp_path, normalize=False)
    nodes = Nodes(graph)
    assert (graph.x.shape, graph.y.shape, nodes.labels.shape) == ((60, 8), (60, 1), (60,))  # type: ignore[union-attr]
    assert nodes.masks is not None
    assert [int(mask.sum()) for mask in nodes.masks] == [30, 21, 9]
    assert int(sum(mask.long() for mask in nodes.masks).max()) == 1
    write_arxiv(tmp_path, "ogbn_products")
    both = load_graph("ogbn-products", tmp_path, tmp_path).edge_index
    assert both.shape == (2, 2 * graph.num_edges), "each edge of the others is meant in both directions"
    assert torch.equal(both[:, ::2], graph.edge_index)
    assert torch.equal(both[:, 1::2], graph.edge_index.flip(0))


def test_tables_of_ogb_that_do_not_fit_are_named(tmp_path: Path) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"num_node_list": [[61]]}, "node-feat.csv.gz has 60 rows where the others have 61"),
        ({"num_edge_list": [[3]]}, r"edge.csv.gz has \d+ rows where the others have 3"),
        ({"num_node_list": [[70], [-10]]}, "must number the nodes and edges of each graph"),
        ({"node_label": [[1]] * 7}, "node-label.csv.gz has 7 rows where the others have 60"),
        ({"edge": [["a", "b"], ["c", "d"]]}, "edge.csv.gz must hold a matrix of numbers"),
        ({"../split/time/valid": [[60]]}, r"valid\.csv\.gz must hold nodes, from 0 to 59"),
    ]
    for change, message in changes:
        packed(write_arxiv(tmp_path) / "ogbn_arxiv" / "raw", **change)
        with pytest.raises(DataError, match=message):
            load_graph("ogbn-arxiv", tmp_path, tmp_path)


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
    found = read_tables(tmp_path / "edges.csv", **written).graph
    assert torch.equal(found.x, graph.x)
    assert torch.equal(found.edge_index, graph.edge_index)
    assert torch.equal(found.edge_weight, 0.5 + graph.edge_index[0] % 2)
    assert Nodes(found).labels[5] == -1  # type: ignore[index]
    np.save(tmp_path / "edges.npy", graph.edge_index.numpy())
    assert torch.equal(read_tables(tmp_path / "edges.npy", **written).graph.edge_index, graph.edge_index)
    files = ["--node-features", str(tmp_path / "x.npy"), "--node-labels", str(tmp_path / "y.txt")]
    words = ["--dataset", str(tmp_path / "edges.csv"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1"]
    with pytest.MonkeyPatch.context() as quick:
        original = grace_method.evaluate_nodes
        quick.setattr(grace_method, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=20))
        assert main(["train", "grace", *words, *files, "--protocols", "10/10/80", "--splits", "2"]) == 0
    results = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert set(results["evaluation"]) == {f"f1_{name} 10/10/80" for name in ("micro", "macro", "validation")}


def test_files_that_are_missing_or_no_graph_are_named(tmp_path: Path) -> None:
    x = write_tables(tmp_path)["features"]
    (tmp_path / "Photo" / "raw").mkdir(parents=True)
    shutil.copy(x, tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz")
    for dataset, more, error, message in [
        ("CiteSeeer", {}, UnknownNameError, r"no data set 'CiteSeeer'\. Did you mean 'CiteSeer'\? Known: Cora, CiteSeer, "),
        ("PubMed", {}, DataError, r"PubMed needs ind\.pubmed\.x.*ind\.pubmed\.allx.*not found in"),
        ("CS", {}, DataError, r"Coauthor/CS needs ms_academic_cs\.npz, not found in .*graph/coauthor/CS/raw\."),
        ("Photo", {}, DataError, r"amazon_electronics_photo\.npz is not a readable NumPy archive"),
        ("ogbn-arxiv", {"data_dir": None}, DataError, "ogbn-arxiv is not downloaded here: let the package ogb do it"),
        ("ogbn-arxiv", {}, DataError, r"ogbn-arxiv needs edge\.csv\.gz, num-node-list\.csv\.gz, num-edge-list\.csv\.gz, not"),
        (str(tmp_path / "none.pt"), {}, DataError, r"none\.pt does not exist"),
    ]:
        given: dict[str, Any] = {"data_dir": tmp_path, "cache_dir": tmp_path, **more}
        with pytest.raises(error, match=message):
            load_graph(dataset, **given)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Data(edge_index=EDGES, num_nodes=2), "must have node features x"),
        (Data(x=torch.ones(2, 0), edge_index=EDGES), "must have node features x"),
        (Data(x=torch.ones(1, 3), edge_index=torch.zeros(2, 0, dtype=torch.long)), "has 1 node; .* at least 2"),
        (Data(x=torch.tensor([[1.0], [torch.nan]]), edge_index=EDGES), "must be finite"),
        (Data(x=torch.ones(2, 3)), r"must have edge_index \[2, edges\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES.float()), r"must have edge_index \[2, edges\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES + 1), "edge_index names node 2, but there are 2 nodes"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES - 1), "edge_index names node -1, but there are 2 nodes"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES, edge_weight=torch.ones(3)), r"a finite number for each edge, \[2\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES, edge_weight=torch.tensor([1, torch.inf])), "a finite number for each"),
    ],
)
def test_a_graph_that_cannot_be_trained_on_is_named(graph: Data, message: str) -> None:
    with pytest.raises(DataError, match=f"toy: .*{message}"):
        check_graph(graph, "toy")
    check_graph(Data(x=torch.eye(3).to_sparse_coo(), edge_index=torch.zeros(2, 0, dtype=torch.long)), "toy")


def test_labels_of_every_shape(tmp_path: Path) -> None:
    def of(y: Any) -> Any:
        found = labels_of(Data(x=torch.ones(3, 2), y=None if y is None else torch.tensor(y)), "toy")
        return found if found is None else found.tolist()

    for y, expected in [
        ([2, 0, 1], [2, 0, 1]),
        ([[2], [0], [-1]], [2, 0, -1]),
        ([2.0, math.nan, 1.0], [2, -1, 1]),
        ([True, False, True], [1, 0, 1]),
        ([[1, 0], [0, 1], [1, -1]], [[1, 0], [0, 1], [1, -1]]),
        (None, None),
        ([-1, -1, -1], None),
        ([-1, 1, 0], [-1, 1, 0]),
    ]:
        assert of(y) == expected
    with pytest.warns(UserWarning, match="toy: the labels are -1 and 1 alone, which are read as the classes 0 and 1"):
        assert of([-1.0, math.nan, 1.0]) == [0, -1, 1]
    words = Data(x=torch.ones(4, 2), y=["b", "", "a", None])
    assert labels_of(words, "toy").tolist() == [1, -1, 0, -1]  # type: ignore[union-attr]
    for y, message in [
        ([0.5, 1, 2], "y must hold classes, whole numbers, to measure by; or pass --no-evaluate"),
        ([1, 2], r"y must hold one class a node, \[3\], or several, \[3, C\], not \[2\]"),
        ([-2, 0, 1], "y must hold classes from 0, -1 if missing, not -2 to 1"),
        ([[0, 2], [0, 1], [0, 1]], "y must hold 0 or 1 for each class of a node, .* not 0 to 2"),
    ]:
        with pytest.raises(DataError, match=f"toy: {message}"):
            of(y)
    torch.save(Data(x=torch.ones(12, 2), edge_index=torch.zeros(2, 1).long(), y=torch.rand(12)), tmp_path / "regression.pt")
    words = ["--dataset", str(tmp_path / "regression.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1"]
    assert main(["train", "grace", *words]) == 2
    assert main(["train", "grace", *words, "--no-evaluate"]) == 0


def test_matrices_are_read_and_other_files_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2], np.int16))
    torch.save(torch.tensor([[0.5, math.nan]], dtype=torch.float64), tmp_path / "a.pt")
    for name, expected in (("a.npy", [[1], [2]]), ("a.pt", [[0.5, math.nan]])):
        torch.testing.assert_close(read_matrix(tmp_path / name), torch.tensor(expected), equal_nan=True)
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01")
    np.save(tmp_path / "code.npy", np.array([{"a": 1}]), allow_pickle=True)
    torch.save({"a": 1}, tmp_path / "words.pt")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    for name, message in {
        "none.npy": "does not exist",
        **dict.fromkeys(("cut.npy", "code.npy", "words.pt", "cube.npy"), ""),
    }.items():
        with pytest.raises(DataError, match=f"{name} {message or 'must hold a matrix of numbers'}"):
            read_matrix(tmp_path / name)
