"""Planetoid's files: the same graph as PyTorch Geometric reads, no code run, and every fault named before it does harm."""

from __future__ import annotations

import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_toys import Hostile, mark_of
from planetoid_toys import write_planetoid
from scipy.sparse import csr_matrix
from torch_geometric.io import read_planetoid_data

from tempplug.errors import DataError
from tempplug_adapters.data_files.downloads import check
from tempplug_adapters.graph import planetoid
from tempplug_adapters.graph.node_data import load_graph
from tempplug_adapters.graph.planetoid import load_planetoid, read_planetoid


def same_as_theirs(name: str, raw: Path) -> None:
    ours = read_planetoid(name, raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = read_planetoid_data(str(raw), name)
    assert sorted(ours.keys()) == sorted(theirs.keys())
    for key in theirs.keys():  # noqa: SIM118 (a Data is no dictionary)
        assert ours[key].dtype == theirs[key].dtype, key
        assert torch.equal(ours[key], theirs[key]), key


@pytest.mark.parametrize("name", ["Cora", "CiteSeer"])
def test_the_published_files_are_read_as_pytorch_geometric_reads_them(data_dir: Path, name: str) -> None:
    same_as_theirs(name, data_dir / "graph" / "planetoid" / name / "raw")


@pytest.mark.parametrize("holes", [(), (603, 620)])
def test_other_files_too(tmp_path: Path, holes: tuple[int, ...]) -> None:
    same_as_theirs("citeseer", write_planetoid(tmp_path, "citeseer", holes))


@pytest.mark.parametrize(("part", "protocol"), [("x", 0), ("graph", 2), ("x", 4)])
def test_a_pickle_runs_nothing(tmp_path: Path, part: str, protocol: int) -> None:
    raw = write_planetoid(tmp_path / "raw")
    (raw / f"ind.cora.{part}").write_bytes(pickle.dumps([Hostile(mark_of(tmp_path))], protocol))
    with pytest.raises(DataError, match=rf"ind\.cora\.{part} cannot be read: it (asks for|has the instruction)"):
        read_planetoid("Cora", raw)
    assert not mark_of(tmp_path).exists()
    pickle.loads((raw / f"ind.cora.{part}").read_bytes())  # it would have
    assert mark_of(tmp_path).exists()


def sparse(**changes: Any) -> bytes:
    matrix = csr_matrix(np.eye(600, 12, dtype=np.float32))
    matrix.__dict__.update(changes)
    return pickle.dumps(matrix, protocol=2)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("allx", sparse(indices=np.full(12, 10**9)), "its matrix is damaged: indices must be < 12"),
        ("allx", sparse(indices=np.full(12, -1)), "its matrix is damaged: indices must be >= 0"),
        ("allx", sparse(indptr=np.arange(601)), "its matrix is damaged: Last value of index pointer"),
        ("allx", sparse(indptr=np.array([0, 10**12] + [12] * 599)), "its matrix is damaged: indptr"),
        ("allx", sparse(_shape=(600, 2**40)), "would take more than 1024 MiB"),
        ("allx", sparse(_shape=(600,)), "its matrix is damaged: not enough values"),
        ("allx", sparse(data="text"), "arrays of one dimension"),
        ("allx", sparse(data=np.array([b"a"] * 12)), "it holds an array of other things than numbers"),
        ("x", pickle.dumps(np.full((60, 12), np.nan), 2), "must hold a matrix of finite numbers"),
        ("x", pickle.dumps(np.zeros((60, 11)), 2), "has 11 columns where the others have 12"),
        ("y", pickle.dumps(np.zeros((61, 3)), 2), "has 61 rows where the other files have 60"),
        ("graph", pickle.dumps({0: [640]}, 2), "names node 640, but there are 640 nodes"),
        ("graph", pickle.dumps({0: [-1]}, 2), "must hold nodes, whole numbers from 0"),
        ("graph", pickle.dumps({0: [2**70]}, 2), "must hold nodes, whole numbers from 0"),
        ("graph", pickle.dumps({0: [True, "a"]}, 2), "must hold nodes, whole numbers from 0"),
        ("graph", pickle.dumps([1], 2), "must hold a dictionary from nodes to lists"),
        ("graph", pickle.dumps(dict.fromkeys(range(640), [1] * 999), 2), "must hold a dictionary from nodes to lists"),
        ("test.index", b"", "is empty"),
        ("test.index", b"9" * 5000, "must hold a whole number a line"),
        ("test.index", b"600 601", "rows where the other files have 2"),
        ("test.index", " ".join(map(str, range(601, 641))).encode(), "must number test nodes from 600 on"),
        ("test.index", " ".join(map(str, [600] * 40)).encode(), "must number test nodes from 600 on, each once"),
        ("test.index", " ".join(map(str, [*range(600, 639), 10**15])).encode(), "must number test nodes from 600 on"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, part: str, content: bytes, message: str) -> None:
    raw = write_planetoid(tmp_path)
    (raw / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_planetoid("Cora", raw)
    assert str(raw) in str(caught.value)


def test_files_are_compared_with_the_published_ones(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "graph" / "planetoid" / "Cora" / "raw"
    shutil.copytree(data_dir / "graph" / "planetoid" / "Cora" / "raw", raw, copy_function=shutil.copyfile)
    monkeypatch.setattr(planetoid, "_URL", raw.as_uri() + "/{file}")
    assert load_planetoid("Cora", None, tmp_path / "cache").x.shape == (2708, 1433)
    kept = tmp_path / "cache" / "planetoid" / "Cora" / "raw" / "ind.cora.y"
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"ind\.cora\.y is damaged or not the published file"):
        load_planetoid("Cora", None, tmp_path / "cache")
    file = raw / "ind.cora.x"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1  # still a matrix of numbers
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"ind\.cora\.x is damaged or not the published file: its checksum is sha256:"):
        load_graph("Cora", tmp_path, tmp_path)
    with pytest.raises(DataError, match=r"file:.*ind\.cora\.x is damaged or not the published file"):
        load_planetoid("Cora", None, tmp_path / "new")
    assert not (tmp_path / "new").exists(), "a file that is not the published one is not kept"
    file.unlink()
    with pytest.raises(DataError, match=r"Cora needs ind\.cora\.x, not found in .*"):
        load_graph("Cora", tmp_path, tmp_path)


def test_both_kinds_of_checksum_are_compared(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\n")
    check(tmp_path / "file", "git:ce013625030ba8dba906f756967f9e9ca394464a")
    check(tmp_path / "file", "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
    for wrong in ("git:" + "0" * 40, "sha256:" + "0" * 64):
        with pytest.raises(DataError, match="is damaged or not the published file"):
            check(tmp_path / "file", wrong)
