"""Molecules as tensors, the files they come from, and the scaffold split."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
import torch
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.graph import molecule_files
from tempplug_adapters.graph.molecule_data import BOND_TYPES, CHIRALITIES, MoleculeSet
from tempplug_adapters.graph.molecule_files import DATASETS, read_labelled, read_smiles
from tempplug_adapters.graph.molecule_finetune import scaffold_split
from tempplug_benchmarks.tasks.molecule_generated import generate

# a ring, a lone atom, a salt of two atoms without bonds, stereo bonds and centres, a wildcard, a dative bond
SMILES = ["c1ccccc1C#N", "C", "[Na+].[Cl-]", "F/C=C/[C@H](N)O", "F/C=C\\[C@@H](N)O", "*C=O", "[NH3]->[Cu]"]


def test_a_batch_is_what_rdkit_reads() -> None:
    molecules = MoleculeSet(SMILES)
    order = [3, 0, 6, 2, 1, 4, 5]
    batch = molecules.batch(torch.tensor(order))
    assert batch.size == len(order)
    start = 0
    for place, position in enumerate(order):
        molecule = Chem.MolFromSmiles(SMILES[position])
        own = batch.molecule == place
        assert batch.atoms[own, 0].tolist() == [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
        inside = own[batch.edges[0]]
        assert torch.equal(inside, own[batch.edges[1]])
        found = {
            tuple(edge): tuple(bond)
            for edge, bond in zip((batch.edges[:, inside] - start).T.tolist(), batch.bonds[inside].tolist(), strict=True)
        }
        assert len(found) == 2 * molecule.GetNumBonds() == int(inside.sum())
        for bond in molecule.GetBonds():
            ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
            assert found[ends] == found[ends[::-1]]
            names = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}
            kind, direction = (
                names.get(str(bond.GetBondType()), 4),
                {"ENDUPRIGHT": 1, "ENDDOWNRIGHT": 2}.get(str(bond.GetBondDir()), 0),
            )
            assert found[ends] == (kind, direction)
        start += molecule.GetNumAtoms()
    assert batch.edges[1].tolist() == sorted(batch.edges[1].tolist())
    assert {3, 4} <= set(batch.bonds[:, 0].tolist()) <= set(range(BOND_TYPES))
    assert set(batch.bonds[:, 1].tolist()) == {0, 1, 2}


def test_mirror_images_differ_in_chirality_alone() -> None:
    molecules = MoleculeSet(["C[C@H](N)O", "C[C@@H](N)O", "CC(N)O"])
    one, other, flat = (molecules.batch(torch.tensor([row])).atoms for row in range(3))
    assert torch.equal(one[:, 0], other[:, 0])
    assert [int(each[1, 1]) for each in (flat, one, other)] == [0, 2, 1]
    assert CHIRALITIES == 4


def test_what_cannot_be_read_is_left_out_with_its_labels() -> None:
    labels = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    molecules = MoleculeSet(["CC", "no", "", "O"], labels)
    assert molecules.smiles == ("CC", "O")
    assert molecules.unreadable == 2
    assert molecules.labels is not None
    assert molecules.labels.tolist() == [[0.0], [3.0]]
    with pytest.raises(DataError, match="none of 2 SMILES can be read as a molecule; the first is 'no'"):
        MoleculeSet(["no", ""])
    with pytest.raises(DataError, match="none of 0 SMILES"):
        MoleculeSet([])


def test_rdkit_stays_silent_about_what_it_cannot_read(capfd: pytest.CaptureFixture[str]) -> None:
    MoleculeSet(["CC", "C1CC"])
    assert capfd.readouterr().err == ""


def test_a_part_keeps_the_bonds_between_its_atoms() -> None:
    batch = MoleculeSet(["CCO", "OCN"]).batch(torch.arange(2))
    part = batch.kept(torch.tensor([True, True, False, True, False, True]))
    assert part.atoms[:, 0].tolist() == [6, 6, 8, 7]
    assert part.molecule.tolist() == [0, 0, 1, 1]
    assert part.edges.T.tolist() == [[1, 0], [0, 1]]
    assert part.bonds.shape == (2, 2)


def test_smiles_are_the_first_words_of_lines(tmp_path: Path) -> None:
    text = "CC id-1\n\n  CO\tid-2\nCN\n"
    (tmp_path / "plain.smi").write_text(text)
    (tmp_path / "packed.smi.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain.smi", "packed.smi.gz"):
        assert read_smiles(tmp_path / name) == ["CC", "CO", "CN"]
        assert read_smiles(tmp_path / name, limit=2) == ["CC", "CO"]
    (tmp_path / "empty.smi").write_text("\n")
    (tmp_path / "broken.smi.gz").write_bytes(gzip.compress(text.encode() * 99)[:-9])
    for name, message in [("empty.smi", "is empty"), ("nothing.smi", "does not exist"), ("broken.smi.gz", "cannot be read")]:
        with pytest.raises(DataError, match=f"{name} {message}"):
            read_smiles(tmp_path / name)


def archive(folder: Path, name: str, file: str, text: str) -> None:
    target = folder / "graph/moleculenet" / f"{name}.tar.xz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as content:
        member = tarfile.TarInfo(f"{name}/raw/{file}")
        member.size = len(text)
        content.addfile(member, io.BytesIO(text.encode()))


def test_data_sets_are_read_from_their_archives(tmp_path: Path) -> None:
    archive(tmp_path, "bbbp", "BBBP.csv", 'num,name,p_np,smiles\n1,"a, b",1,CC\n2,c,0,CO\n')
    archive(tmp_path, "tox21", "tox21.csv", ",".join("abcdefghijkl") + ",mol_id,smiles\n" + "0,," * 6 + "id,CC\n")
    smiles, labels = read_labelled("BBBP", tmp_path, tmp_path / "nowhere")
    assert (smiles, labels.tolist()) == (["CC", "CO"], [[1.0], [0.0]])
    smiles, labels = read_labelled("tox21", tmp_path, tmp_path / "nowhere")
    assert smiles == ["CC"]
    assert labels.isnan().tolist() == [[False, True] * 6]
    assert not (tmp_path / "nowhere").exists()


def test_faults_of_data_sets_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no data set 'BBB'\. Did you mean 'BBBP'\?"):
        read_labelled("BBB", tmp_path, tmp_path)
    with pytest.raises(DataError, match=r"lacks graph/moleculenet/hiv\.tar\.xz"):
        read_labelled("HIV", tmp_path, tmp_path)
    archive(tmp_path, "hiv", "other.csv", "smiles,activity,HIV_active\n")
    with pytest.raises(DataError, match=r"hiv\.tar\.xz must hold HIV\.csv"):
        read_labelled("HIV", tmp_path, tmp_path)
    archive(tmp_path, "bace", "bace.csv", "mol,CID,Class\nCC,1,0\nCO,2,7\n")
    with pytest.raises(DataError, match=r"bace\.tar\.xz, molecule 2: label '7' must be 0, 1 or nothing"):
        read_labelled("BACE", tmp_path, tmp_path)
    archive(tmp_path, "clintox", "clintox.csv", "smiles,FDA_APPROVED,CT_TOX\n")
    with pytest.raises(DataError, match="holds no molecule"):
        read_labelled("ClinTox", tmp_path, tmp_path)
    (tmp_path / "graph/moleculenet/sider.tar.xz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"sider\.tar\.xz cannot be read"):
        read_labelled("SIDER", tmp_path, tmp_path)


def test_a_table_of_ones_own_is_read_by_its_header(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("toxic,smiles,active\n1,CC,\n0,CO,1.0\n")
    smiles, labels = read_labelled(str(file), None, tmp_path)
    assert smiles == ["CC", "CO"]
    assert labels[:, 0].tolist() == [1.0, 0.0]
    assert labels[1, 1] == 1
    assert labels[0, 1].isnan()
    for text, message in [
        ("toxic,active\n1,0\n", "must have a column 'smiles'"),
        ("smiles,toxic\nCC,1\nCO,1,0\n", "molecule 2: 2 labels where the first molecule has 1"),
        ("smiles,toxic\nCC,often\n", "molecule 1: could not convert string to float: 'often'"),
    ]:
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_labelled(str(file), None, tmp_path)


def test_without_a_data_folder_tables_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clintox.csv.gz").write_bytes(gzip.compress(b"smiles,a,b\nCC,1,\n"))
    monkeypatch.setattr(molecule_files, "_URL", tmp_path.as_uri() + "/{name}")
    with pytest.warns(UserWarning, match=r"no checksum of .*clintox\.csv\.gz is known"):
        smiles, labels = read_labelled("ClinTox", None, tmp_path / "cache")
    assert (smiles, labels[0, 0].item()) == (["CC"], 1.0)
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["clintox.csv.gz"]
    with pytest.raises(DataError, match=r"HIV\.csv cannot be downloaded: .*\. With --data-dir"):
        read_labelled("HIV", None, tmp_path / "cache")


def test_a_scaffold_is_never_divided() -> None:
    smiles = generate(400, seed=3)
    parts = scaffold_split(smiles)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(400))
    assert [len(part) for part in parts] == pytest.approx([320, 40, 40], abs=12)
    found = [{MurckoScaffold.MurckoScaffoldSmiles(smiles=smiles[row], includeChirality=True) for row in part} for part in parts]
    assert not found[0] & found[1]
    assert not found[0] & found[2]
    assert not found[1] & found[2]
    assert all(torch.equal(one, other) for one, other in zip(parts, scaffold_split(smiles), strict=True))


def test_mirror_images_of_a_scaffold_are_two() -> None:
    mirrored = ["c1ccccc1[C@H]1CCCO1", "c1ccccc1[C@@H]1CCCO1"]
    parts = scaffold_split(["c1ccccc1" + "C" * length for length in range(8)] + mirrored)
    assert [part.tolist() for part in parts[1:]] == [[9], [8]]


def test_too_few_scaffolds_to_split_are_named() -> None:
    with pytest.raises(DataError, match="3 molecules of 1 scaffolds leave the training, validation or test set empty"):
        scaffold_split(["CC", "CO", "CN"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "readable", "positives", "parts"),
    [("BBBP", 2050, 2039, 1560, (1631, 204, 204)), ("BACE", 1513, 1513, 691, (1210, 151, 152))],
)
def test_real_data_sets_have_the_published_sizes(
    data_dir: Path, tmp_path: Path, name: str, rows: int, readable: int, positives: int, parts: tuple[int, ...]
) -> None:
    smiles, labels = read_labelled(name, data_dir, tmp_path)
    molecules = MoleculeSet(smiles, labels)
    assert (len(smiles), len(molecules), molecules.unreadable) == (rows, readable, rows - readable)
    assert molecules.labels is not None
    assert int(molecules.labels.sum()) == positives
    assert tuple(len(part) for part in scaffold_split(molecules.smiles)) == parts


def test_every_real_archive_is_there_and_has_its_columns(data_dir: Path, tmp_path: Path) -> None:
    tasks = {
        name: read_labelled(name, data_dir, tmp_path)[1].shape[1] for name in DATASETS if name not in ("MUV", "HIV", "ToxCast")
    }
    assert tasks == {"BBBP": 1, "BACE": 1, "ClinTox": 2, "SIDER": 27, "Tox21": 12}
