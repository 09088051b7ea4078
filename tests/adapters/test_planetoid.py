"""Planetoid's files: PyTorch Geometric's graph of the published ones, and nothing is read from others."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from hostile_toys import Hostile, mark_of

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import check
from tempplug_adapters.graph import node_data
from tempplug_adapters.graph.node_data import load_graph


@pytest.fixture
def cora(data_dir: Path, tmp_path: Path) -> Path:
    """A copy of the published files, below a data folder."""
    raw = tmp_path / "graph" / "planetoid" / "Cora" / "raw"
    shutil.copytree(data_dir / "graph" / "planetoid" / "Cora" / "raw", raw, copy_function=shutil.copyfile)
    return raw


@pytest.mark.parametrize(("part", "protocol"), [("x", 0), ("graph", 2), ("x", 4)])
def test_a_pickle_runs_nothing(cora: Path, tmp_path: Path, part: str, protocol: int) -> None:
    file = cora / f"ind.cora.{part}"
    file.write_bytes(pickle.dumps([Hostile(mark_of(tmp_path))], protocol))
    with pytest.raises(DataError, match=rf"ind\.cora\.{part} is damaged or not the published file"):
        load_graph("Cora", tmp_path, tmp_path)
    assert not mark_of(tmp_path).exists()
    pickle.loads(file.read_bytes())  # it would have
    assert mark_of(tmp_path).exists()


def test_files_are_compared_with_the_published_ones(cora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_data, "_PLANETOID", cora.as_uri() + "/{}")
    assert load_graph("Cora", None, tmp_path / "cache").x.shape == (2708, 1433)
    kept = tmp_path / "cache" / "planetoid" / "Cora" / "raw" / "ind.cora.y"
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"ind\.cora\.y is damaged or not the published file"):
        load_graph("Cora", None, tmp_path / "cache")
    for part in ("x", "test.index"):
        file, told = cora / f"ind.cora.{part}", rf"ind\.cora\.{part} is damaged or not the published file"
        whole = file.read_bytes()
        content = bytearray(whole)
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"{told}: its checksum is sha256:"):
            load_graph("Cora", tmp_path, tmp_path)
        with pytest.raises(DataError, match=rf"file:.*{told}"):
            load_graph("Cora", None, tmp_path / part)
        assert not (tmp_path / part / "planetoid" / "Cora" / "raw" / file.name).exists(), "only a published file is kept"
        file.write_bytes(whole)
    (cora / "ind.cora.x").unlink()
    with pytest.raises(DataError, match=r"Cora needs ind\.cora\.x, not found in .*"):
        load_graph("Cora", tmp_path, tmp_path)


def test_both_kinds_of_checksum_are_compared(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\n")
    check(tmp_path / "file", "git:ce013625030ba8dba906f756967f9e9ca394464a")
    check(tmp_path / "file", "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
    for wrong in ("git:" + "0" * 40, "sha256:" + "0" * 64):
        with pytest.raises(DataError, match="is damaged or not the published file"):
            check(tmp_path / "file", wrong)
