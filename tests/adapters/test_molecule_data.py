"""Molecules as tensors, their random views, the files that they come from, and the scaffold split."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import networkx as nx
import pytest
import torch
from graphcl_toys import grown
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.graph import molecule_data
from tempplug_adapters.graph.graph_data import GraphBatch
from tempplug_adapters.graph.molecule_data import (
    BOND_TYPES,
    CHIRALITIES,
    DATASETS,
    MoleculeSet,
    random_view,
    read_labelled,
    read_smiles,
)
from tempplug_adapters.graph.molecule_finetune import scaffold_split
from tempplug_benchmarks.tasks.molecule import generate

# a ring, a lone atom, a salt of two atoms without bonds, stereo bonds and centres, a wildcard, a dative bond
SMILES = ["c1ccccc1C#N", "C", "[Na+].[Cl-]", "F/C=C/[C@H](N)O", "F/C=C\\[C@@H](N)O", "*C=O", "[NH3]->[Cu]"]


def test_a_batch_is_what_rdkit_reads() -> None:
    molecules = MoleculeSet(SMILES)
    order = [3, 0, 6, 2, 1, 4, 5]
    tags = {"CHI_UNSPECIFIED": 0, "CHI_TETRAHEDRAL_CW": 1, "CHI_TETRAHEDRAL_CCW": 2}
    batch = molecules.batch(torch.tensor(order))
    assert batch.num_graphs == len(order)
    kinds, directions, start = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}, {"ENDUPRIGHT": 1, "ENDDOWNRIGHT": 2}, 0
    for place, position in enumerate(order):
        molecule = Chem.MolFromSmiles(SMILES[position])
        own = batch.batch == place
        atoms = [[atom.GetAtomicNum(), tags[str(atom.GetChiralTag())]] for atom in molecule.GetAtoms()]
        assert batch.x[own].tolist() == atoms
        inside = own[batch.edge_index].all(0)
        found = sorted(zip((batch.edge_index[:, inside] - start).T.tolist(), batch.edge_attr[inside].tolist(), strict=True))
        expected = []
        for bond in molecule.GetBonds():
            ends = [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
            features = [kinds.get(str(bond.GetBondType()), 4), directions.get(str(bond.GetBondDir()), 0)]
            expected += [(ends, features), (ends[::-1], features)]
        assert found == sorted(expected)
        start += molecule.GetNumAtoms()
    assert batch.edge_index.shape[1] == sum(2 * Chem.MolFromSmiles(each).GetNumBonds() for each in SMILES)
    assert batch.edge_index[1].tolist() == sorted(batch.edge_index[1].tolist())
    assert {3, 4} <= set(batch.edge_attr[:, 0].tolist()) <= set(range(BOND_TYPES))
    assert set(batch.edge_attr[:, 1].tolist()) == {0, 1, 2}
    assert set(batch.x[:, 1].tolist()) == {0, 1, 2} < set(range(CHIRALITIES))
    part = MoleculeSet(["CCO", "OCN"]).batch(torch.arange(2)).kept(torch.tensor([True, True, False, True, False, True]))
    assert (part.x[:, 0].tolist(), part.batch.tolist(), part.edge_index.tolist()) == (
        [6, 6, 8, 7],
        [0, 0, 1, 1],
        [[1, 0], [0, 1]],
    )
    assert part.edge_attr.shape == (2, 2)


def test_what_cannot_be_read_is_left_out_with_its_labels(capfd: pytest.CaptureFixture[str]) -> None:
    molecules = MoleculeSet(["CC", "no", "", "C1CC", "O"], torch.arange(5.0)[:, None])
    assert molecules.smiles == ("CC", "O")
    assert molecules.unreadable == 3
    assert molecules.labels.tolist() == [[0.0], [4.0]]  # type: ignore[union-attr]
    assert capfd.readouterr().err == "", "RDKit prints no messages"
    with pytest.raises(DataError, match="none of 2 SMILES can be read as a molecule; the first is 'no'"):
        MoleculeSet(["no", ""])
    with pytest.raises(DataError, match="none of 0 SMILES"):
        MoleculeSet([])


def test_smiles_are_the_first_words_of_lines(tmp_path: Path) -> None:
    text = "CC id-1\n\n  CO\tid-2\nCN\n"
    (tmp_path / "plain.smi").write_text(text)
    (tmp_path / "packed.smi.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain.smi", "packed.smi.gz"):
        assert read_smiles(tmp_path / name).smiles == ["CC", "CO", "CN"]
        assert read_smiles(tmp_path / name, limit=2).smiles == ["CC", "CO"]


def archive(folder: Path, name: str, file: str, text: str) -> None:
    target = folder / "graph/moleculenet" / f"{name}.tar.xz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as content:
        member = tarfile.TarInfo(f"{name}/raw/{file}")
        member.size = len(text)
        content.addfile(member, io.BytesIO(text.encode()))


def test_labels_are_read_from_archives_tables_and_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path, "bbbp", "BBBP.csv", 'num,name,p_np,smiles\n1,"a, b",1,CC\n2,c,0,CO\n')
    archive(tmp_path, "tox21", "tox21.csv", ",".join("abcdefghijkl") + ",mol_id,smiles\n" + "0,," * 6 + "id,CC\n")
    (tmp_path / "own.csv").write_text("toxic,smiles,active\n1,CC,\n0,CO,1.0\n")
    for dataset, smiles, expected in [
        ("BBBP", ["CC", "CO"], [[1], [0]]),
        ("tox21", ["CC"], [[0, 9] * 6]),
        (str(tmp_path / "own.csv"), ["CC", "CO"], [[1, 9], [0, 1]]),
    ]:
        found = read_labelled(dataset, tmp_path, tmp_path / "cache")
        assert (found.smiles, found.labels.nan_to_num(9).tolist()) == (smiles, expected)  # type: ignore[union-attr]
    assert not (tmp_path / "cache").exists()
    (tmp_path / "clintox.csv.gz").write_bytes(gzip.compress(b"smiles,a,b\nCC,1,\n"))
    monkeypatch.setattr(molecule_data, "_URL", tmp_path.as_uri() + "/{name}")
    with pytest.warns(UserWarning, match=r"the checksum of .*clintox\.csv\.gz is unknown"):
        found = read_labelled("ClinTox", None, tmp_path / "cache")
    assert (found.smiles, found.labels.nan_to_num(9).tolist()) == (["CC"], [[1, 9]])  # type: ignore[union-attr]
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["clintox.csv.gz"]
    with pytest.raises(DataError, match=r"HIV\.csv cannot be downloaded: .*\. With --data-dir"):
        read_labelled("HIV", None, tmp_path / "cache")


OF_TABLES = [
    ("toxic,active\n1,0\n", r"no column is clearly the smiles\. Name it: --columns smiles=COLUMN"),
    ("smiles,toxic\nCC,1\nCO,1,0\n", "line 3: 3 fields, but line 1 has 2"),
    ("smiles,toxic\nCC,often\n", r"no column is clearly a label, of 0, 1 or nothing\. Name them: --columns label=A,B"),
    ("smiles,toxic\nCC,1\nCO,often\n", "line 3: column 'toxic' is 'often'; it must be a number"),
]


def test_faulty_files_and_unknown_data_sets_are_named(tmp_path: Path) -> None:
    archive(tmp_path, "hiv", "other.csv", "smiles,activity,HIV_active\n")
    archive(tmp_path, "bace", "bace.csv", "mol,CID,Class\nCC,1,0\nCO,2,7\n")
    archive(tmp_path, "clintox", "clintox.csv", "smiles,FDA_APPROVED,CT_TOX\n")
    (tmp_path / "graph/moleculenet/sider.tar.xz").write_bytes(b"no archive")
    (tmp_path / "empty.smi").write_text("\n")
    (tmp_path / "broken.smi.gz").write_bytes(gzip.compress(b"CC\n" * 99)[:-9])
    own = [(tmp_path / f"{number}.csv", message) for number, (_, message) in enumerate(OF_TABLES)]
    for (file, _), (text, _) in zip(own, OF_TABLES, strict=True):
        file.write_text(text)
    for dataset, message in [
        ("BBB", r"no data set 'BBB'\. Did you mean 'BBBP'\?"),
        ("MUV", r"lacks graph/moleculenet/muv\.tar\.xz"),
        ("HIV", r"hiv\.tar\.xz must hold HIV\.csv"),
        ("BACE", r"bace\.tar\.xz, line 3: column 'Class' is 7; a label must be 0, 1 or nothing"),
        ("ClinTox", "holds no molecule"),
        ("SIDER", r"sider\.tar\.xz cannot be read"),
        *own,
        ("empty.smi", "empty.smi is empty"),
        ("nothing.smi", "nothing.smi does not exist"),
        ("broken.smi.gz", "broken.smi.gz is not a complete gzip file"),
    ]:
        with pytest.raises(UnknownNameError if dataset == "BBB" else (DataError, ConfigError), match=message):
            read_smiles(tmp_path / dataset) if "smi" in str(dataset) else read_labelled(str(dataset), tmp_path, tmp_path)


def test_a_scaffold_is_never_divided() -> None:
    smiles = generate(400, seed=3)
    parts = scaffold_split(smiles)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(400))
    assert [len(part) for part in parts] == pytest.approx([320, 40, 40], abs=12)
    found = [{MurckoScaffold.MurckoScaffoldSmiles(smiles=smiles[row], includeChirality=True) for row in part} for part in parts]
    assert sum(map(len, found)) == len(set.union(*found))
    mirrored = ["c1ccccc1[C@H]1CCCO1", "c1ccccc1[C@@H]1CCCO1"]  # two scaffolds
    parts = scaffold_split(["c1ccccc1" + "C" * length for length in range(8)] + mirrored)
    assert [part.tolist() for part in parts[1:]] == [[9], [8]]
    with pytest.raises(DataError, match="3 molecules of 1 scaffolds leave the training, validation or test set empty"):
        scaffold_split(["CC", "CO", "CN"])


@pytest.mark.slow
def test_real_data_sets_have_the_published_sizes_and_columns(data_dir: Path, tmp_path: Path) -> None:
    found = {name: read_labelled(name, data_dir, tmp_path) for name in DATASETS if name not in ("MUV", "HIV", "ToxCast")}
    tasks = {name: table.labels.shape[1] for name, table in found.items()}
    assert tasks == {"BBBP": 1, "BACE": 1, "ClinTox": 2, "SIDER": 27, "Tox21": 12}
    sizes = {"BBBP": (2050, 2039, 1560, [1631, 204, 204]), "BACE": (1513, 1513, 691, [1210, 151, 152])}
    for name, (rows, readable, positives, parts) in sizes.items():
        molecules = MoleculeSet(found[name].smiles, found[name].labels)
        assert (len(found[name].smiles), len(molecules), molecules.unreadable) == (rows, readable, rows - readable)
        assert int(molecules.labels.sum()) == positives  # type: ignore[union-attr]
        assert [len(part) for part in scaffold_split(molecules.smiles)] == parts


def graph_of(batch: GraphBatch, molecule: int) -> nx.Graph:
    atoms = (batch.batch == molecule).nonzero().flatten().tolist()
    graph = nx.Graph()
    graph.add_nodes_from(atoms)
    graph.add_edges_from(edge for edge in batch.edge_index.T.tolist() if edge[0] in graph)
    return graph


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5])
def test_a_view_loses_its_share_of_the_atoms(ratio: float) -> None:
    torch.manual_seed(0)
    molecules = MoleculeSet(["C", "CC", "c1ccccc1", *generate(60, seed=0)])
    whole = molecules.batch(torch.arange(len(molecules)))
    view = random_view(whole, ratio)
    before, after = (torch.bincount(each.batch, minlength=each.num_graphs) for each in (whole, view))
    assert torch.equal(after, before - (before * ratio).floor().long())
    assert view.num_graphs == whole.num_graphs
    connected = [nx.is_connected(graph_of(view, row)) for row in range(view.num_graphs)]
    assert all(connected) if ratio == 0 else 0.4 < sum(connected) / len(connected) < 1


def test_a_grown_part_is_connected_and_drawn_with_the_global_generator() -> None:
    torch.manual_seed(0)
    salt = MoleculeSet(["C", "[Na+].[Cl-]", "O"]).batch(torch.arange(3))
    found = {tuple(torch.bincount(random_view(salt, 0.2).batch, minlength=3).tolist()) for _ in range(20)}
    assert found == {(1, 1, 1), (1, 2, 1)}, "a grown part of the salt is one of its ions"
    whole, views = MoleculeSet(generate(20, seed=1)).batch(torch.arange(20)), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        views.append(random_view(whole, 0.3).x.tolist())
    assert views[0] == views[1] != views[2]


def test_atoms_are_dropped_evenly_and_parts_grow_evenly() -> None:
    """Every set of atoms is drawn as often as an enumeration predicts, within four standard errors."""
    torch.manual_seed(0)
    kept, count = 4, 60_000
    whole = MoleculeSet(["CC(N)OCS"]).batch(torch.zeros(count, dtype=torch.int64))
    one = whole.edge_index[:, whole.batch[whole.edge_index[0]] == 0].T.tolist()
    numbers = torch.arange(len(whole.x)) % 6  # in place of elements, so that atoms can be told apart
    view = random_view(replace(whole, x=torch.stack([numbers, numbers], 1)), ratio=1 / 3)
    found = Counter(map(frozenset, view.x[:, 0].view(count, kept).tolist()))
    subsets = [frozenset(each) for each in combinations(range(6), kept)]
    parts = grown(one, 6, kept)
    assert sum(found.values()) == count
    for subset in subsets:
        expected = 0.5 / len(subsets) + 0.5 * parts.get(subset, 0)
        error = (expected * (1 - expected) / count) ** 0.5
        assert found[subset] / count == pytest.approx(expected, abs=4 * error), subset
