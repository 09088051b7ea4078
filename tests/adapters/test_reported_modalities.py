"""Images, graphs, molecules and interactions of public bug reports: read by content, whatever the order of files and rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from table_files import of_csv, of_lines, of_pandas

from tempplug.errors import TempplugError
from tempplug_adapters.graph.molecule_data import read_smiles
from tempplug_adapters.graph.node_tables import read_tables
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.recommendation.interaction_files import load_sequences


def pictures(folder: Path, split: str, classes: list[str], suffix: str = ".png") -> None:
    for place, name in enumerate(classes):
        (folder / split / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8), (20 * place, 5, 9 * number)).save(folder / split / name / f"{number}{suffix}")


def test_a_class_without_test_images_keeps_its_number(tmp_path: Path) -> None:
    """huggingface/pytorch-image-models#957, pytorch/vision#4925, ultralytics/ultralytics#14301."""
    pictures(tmp_path, "train", ["ant", "bee", "cat"])
    pictures(tmp_path, "test", ["ant", "cat"])
    (tmp_path / "test/bee").mkdir()
    train, test = load_images(str(tmp_path), "train", None), load_images(str(tmp_path), "test", None)
    assert train.classes == test.classes == ("ant", "bee", "cat")
    assert test.labels is not None
    assert test.labels.tolist() == [0, 0, 2, 2]


def test_hidden_folders_and_files_are_no_classes(tmp_path: Path) -> None:
    """pytorch/vision#2831 and #109."""
    pictures(tmp_path, "train", ["ant", "bee", ".ipynb_checkpoints"])
    pictures(tmp_path, "test", ["ant", "bee"])
    (tmp_path / "train/.DS_Store").write_bytes(b"\0\0\0\1Bud1")
    train = load_images(str(tmp_path), "train", None)
    assert (train.classes, len(train)) == (("ant", "bee"), 4)


@pytest.mark.parametrize("suffix", [".JPEG", ".JPG", ".jfif", ".webp"])
def test_endings_of_images_are_of_any_case(tmp_path: Path, suffix: str) -> None:
    """pytorch/vision#552, open-edge-platform/anomalib#3058."""
    for split in ("train", "test"):
        pictures(tmp_path, split, ["ant", "bee"], suffix)
    assert len(load_images(str(tmp_path), "train", None)) == 4


def test_edges_name_nodes_by_id_and_not_by_order(tmp_path: Path) -> None:
    """pyg-team/pytorch_geometric#830: nodes 4, 2, 6; #1580: a node without edges."""
    of_csv([["source", "target"], [4, 6], [2, 6]])(tmp_path / "edges.csv")
    of_csv([["id", "x"], [4, 0.4], [2, 0.2], [6, 0.6], [9, 0.9]])(tmp_path / "x.csv")
    of_csv([["id", "label"], [9, "b"], [6, "a"], [2, "b"], [4, "a"]])(tmp_path / "y.csv")
    graph = read_tables(tmp_path / "edges.csv", tmp_path / "x.csv", tmp_path / "y.csv").graph
    x, y, edges = graph.x, graph.y, graph.edge_index
    assert x is not None
    assert edges is not None
    assert isinstance(y, type(x))
    value = [round(float(row), 1) for row in x[:, 0]]
    assert {frozenset((value[a], value[b])) for a, b in edges.T.tolist()} == {frozenset((0.4, 0.6)), frozenset((0.2, 0.6))}
    assert dict(zip(value, y.flatten().tolist(), strict=True)) == {0.4: 0, 0.2: 1, 0.6: 0, 0.9: 1}


def test_the_first_molecule_of_a_file_without_a_header_is_there(tmp_path: Path) -> None:
    """rdkit/rdkit#1633: SMILES, a tab and a name."""
    of_lines("CCO\tZINC1", "CCN\tZINC2")(tmp_path / "t.smi")
    assert list(read_smiles(tmp_path / "t.smi").smiles) == ["CCO", "CCN"]


def test_a_table_of_molecules_without_a_header_is_refused(tmp_path: Path) -> None:
    """yuyangw/MolCLR#25: the first record was taken for the header."""
    of_csv([["CCO", 1], ["CCN", 0]])(tmp_path / "t.csv")
    with pytest.raises(TempplugError, match="If its first line is no header, write one"):
        read_smiles(tmp_path / "t.csv")


def test_targets_and_histories_of_recbole_share_their_numbers(tmp_path: Path) -> None:
    """RUCAIBox/RecBole#1813: i4 was one item in a history, and another as a target."""
    (tmp_path / "own").mkdir()
    header = "user_id:token\titem_id_list:token_seq\titem_id:token"
    of_lines(header, "a1\ti1 i2\ti4", "a2\ti2 i3 i4\ti5")(tmp_path / "own/own.train.inter")
    of_lines(header, "a3\ti4 i5\ti6")(tmp_path / "own/own.test.inter")
    found = load_sequences(str(tmp_path / "own"), None)
    named = [[found.names[item - 1] for item in history] for history in found.histories]
    assert sorted(named) == [["i1", "i2", "i4"], ["i2", "i3", "i4", "i5"], ["i4", "i5", "i6"]]


def test_users_and_items_are_called_as_in_other_tables(tmp_path: Path) -> None:
    """pandas-dev/pandas#57224: 1.0 for 1; wireservice/csvkit#977: 007 beside 7; datasets/country-codes#38: NA."""
    log = {"user": [1.0, 1.0, 2.0, 2.0], "item": ["007", "7", "NA", "NE"], "time": [1, 2, 3, 4]}
    of_pandas(log, "to_parquet")(tmp_path / "t.parquet")
    of_pandas(log, "to_csv", index=False)(tmp_path / "t.csv")
    found = load_sequences(str(tmp_path / "t.parquet"), None)
    assert found.users == ["1", "2"]
    assert sorted(found.names) == sorted(load_sequences(str(tmp_path / "t.csv"), None).names) == ["007", "7", "NA", "NE"]
