"""Graphs for GRACE: the public ones read as they are, and everything that a graph may lack is said by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.graph.node_data import check_graph, load_graph

EDGES = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes"),
    [("Cora", 2708, 10556, 1433, 7), ("citeseer", 3327, 9104, 3703, 6), ("DBLP", 17716, 105734, 1639, 4)],
)
def test_public_graphs_are_read_and_their_folder_is_left_alone(
    data_dir: Path, tmp_path: Path, name: str, nodes: int, edges: int, features: int, classes: int
) -> None:
    before = sorted((data_dir / "graph").rglob("*"))
    graph = load_graph(name, data_dir, tmp_path)
    assert graph.x.shape == (nodes, features)
    assert graph.edge_index.shape == (2, edges)
    assert sorted(set(graph.y.tolist())) == list(range(classes))
    sums = graph.x.sum(1)
    assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all()), "features of a node sum to 1, or there are none"
    assert sorted((data_dir / "graph").rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_raw_features_stay_as_they_are(data_dir: Path, tmp_path: Path) -> None:
    graph = load_graph("Cora", data_dir, tmp_path, normalize=False)
    assert set(graph.x.unique().tolist()) == {0.0, 1.0}


def test_a_saved_graph_is_read(tmp_path: Path) -> None:
    graph = Data(x=torch.tensor([[1.0, 3.0], [2.0, 2.0]]), edge_index=EDGES, y=torch.tensor([0, 1]))
    torch.save(graph, tmp_path / "own.pt")
    found = load_graph(str(tmp_path / "own.pt"), None, tmp_path)
    assert torch.equal(found.edge_index, EDGES)
    assert found.x.sum(1).tolist() == [1.0, 1.0]


def test_what_is_no_graph_is_named(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no data set 'CiteSeeer'\. Did you mean 'CiteSeer'\? Known: Planetoid/Cora, "):
        load_graph("CiteSeeer", data_dir, tmp_path)
    with pytest.raises(DataError, match=r"PubMed needs ind\.pubmed\.x.*ind\.pubmed\.allx.*not found in"):
        load_graph("PubMed", tmp_path, tmp_path)
    with pytest.raises(DataError, match=r"none\.pt does not exist"):
        load_graph(str(tmp_path / "none.pt"), None, tmp_path)
    torch.save({"x": 1}, tmp_path / "dict.pt")
    with pytest.raises(DataError, match=r"dict\.pt must hold a torch_geometric\.data\.Data, a list .*, not dict"):
        load_graph(str(tmp_path / "dict.pt"), None, tmp_path)
    torch.save(shutil.copytree, tmp_path / "code.pt")
    with pytest.raises(DataError, match=r"code\.pt could not be read"):
        load_graph(str(tmp_path / "code.pt"), None, tmp_path)


def test_a_damaged_file_is_named(data_dir: Path, tmp_path: Path) -> None:
    raw = tmp_path / "graph" / "planetoid" / "Cora" / "raw"
    shutil.copytree(data_dir / "graph" / "planetoid" / "Cora" / "raw", raw, copy_function=shutil.copyfile)
    whole = (raw / "ind.cora.graph").read_bytes()
    (raw / "ind.cora.graph").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"Cora.*ind\.cora\.graph is damaged or not the published file"):
        load_graph("Cora", tmp_path, tmp_path)
    (raw / "ind.cora.graph").unlink()
    with pytest.raises(DataError, match=r"Cora needs ind\.cora\.graph, not found in .*"):
        load_graph("Cora", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Data(edge_index=EDGES, num_nodes=2), "must have node features x"),
        (Data(x=torch.ones(2, 0), edge_index=EDGES), "must have node features x"),
        (Data(x=torch.ones(2), edge_index=EDGES), "must have node features x"),
        (Data(x=torch.ones(1, 3), edge_index=torch.zeros(2, 0, dtype=torch.long)), "has 1 node; .* at least 2"),
        (Data(x=torch.tensor([[1.0], [torch.nan]]), edge_index=EDGES), "must be finite"),
        (Data(x=torch.ones(2, 3)), r"must have edge_index \[2, edges\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES.float()), r"must have edge_index \[2, edges\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES + 1), "edge_index names node 2, but there are 2 nodes"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES - 1), "edge_index names node -1, but there are 2 nodes"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES, edge_weight=torch.ones(3)), r"a finite number for each of 2 edges, \[2\]"),
        (Data(x=torch.ones(2, 3), edge_index=EDGES, edge_weight=torch.tensor([1, torch.inf])), "a finite number for each"),
    ],
)
def test_a_graph_that_cannot_be_trained_on_says_why(graph: Data, message: str) -> None:
    with pytest.raises(DataError, match=f"toy: .*{message}"):
        check_graph(graph, "toy")


def test_graphs_without_edges_classes_or_dense_features_are_fine() -> None:
    check_graph(Data(x=torch.eye(3), edge_index=torch.zeros(2, 0, dtype=torch.long)), "toy")
    check_graph(Data(x=torch.eye(3).to_sparse_coo(), edge_index=EDGES, y=torch.arange(3)), "toy")
