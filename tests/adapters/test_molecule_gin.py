"""The encoder of molecules against the plain formula, edge by edge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tempplug.errors import DataError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_benchmarks.tasks.molecule_generated import generate

SMILES = ["C", "[Na+].[Cl-]", "F/C=C/[C@H](N)O", *generate(6, seed=0)]


def encoder(layers: int = 3, width: int = 8) -> MoleculeEncoder:
    torch.manual_seed(0)
    return MoleculeEncoder(layers, width).double()


def plain(model: MoleculeEncoder, molecules: MoleculeSet) -> torch.Tensor:
    """Hu et al.'s network, with a self bond for every atom and one message an edge."""
    batch = molecules.batch(torch.arange(len(molecules)))
    own = torch.arange(len(batch.atoms))
    source, target = (torch.cat([each, own]) for each in batch.edges)
    loops = torch.tensor([[5, 0]]).expand(len(own), 2)
    bonds = torch.cat([batch.bonds, loops])
    atoms = model.element.weight[batch.atoms[:, 0]] + model.chirality.weight[batch.atoms[:, 1]]
    for depth, layer in enumerate(model.layers):
        messages = atoms[source] + layer.bond_type.weight[bonds[:, 0]] + layer.bond_direction.weight[bonds[:, 1]]
        atoms = layer.norm(layer.update(torch.zeros_like(atoms).index_add(0, target, messages)))
        atoms = atoms if depth == len(model.layers) - 1 else atoms.relu()
    return torch.stack([atoms[batch.molecule == row].mean(0) for row in range(batch.size)])


def test_representations_and_gradients_are_those_of_the_plain_network() -> None:
    molecules = MoleculeSet(SMILES)
    model = encoder()
    weights = torch.randn(len(SMILES), 8, dtype=torch.float64)
    results = []
    for value in (model(molecules.batch(torch.arange(len(SMILES)))), plain(model, molecules)):
        results.append((value, torch.autograd.grad((value * weights).sum(), list(model.parameters()))))
    torch.testing.assert_close(results[0][0], results[1][0])
    for ours, expected in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-10)
    # chirality, directions and bond types are heard
    for table in (model.chirality, model.layers[0].bond_direction, model.layers[0].bond_type):
        assert results[0][1][[id(each) for each in model.parameters()].index(id(table.weight))].any(1).sum() > 1


def test_a_molecule_is_encoded_alike_in_any_company_and_spelling() -> None:
    model = encoder().eval()
    together = model(MoleculeSet(SMILES).batch(torch.arange(len(SMILES))))
    for row, text in enumerate(SMILES):
        torch.testing.assert_close(model(MoleculeSet([text]).batch(torch.tensor([0])))[0], together[row])
    spelt = model(MoleculeSet(["CC(=O)Oc1ccccc1C(=O)O", "OC(=O)c1ccccc1OC(C)=O"]).batch(torch.arange(2)))
    torch.testing.assert_close(spelt[0], spelt[1])
    assert not torch.allclose(spelt[0], together[0])


def test_dropout_is_for_training() -> None:
    model = encoder()
    batch = MoleculeSet(SMILES).batch(torch.arange(len(SMILES)))
    assert torch.equal(model(batch), model(batch))
    model.dropout = 0.5
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_an_encoder_is_saved_whole_and_read_back(tmp_path: Path) -> None:
    model = MoleculeEncoder(2, 8)
    model(MoleculeSet(SMILES).batch(torch.arange(len(SMILES))))  # moves the running statistics
    model.save(tmp_path / "encoder.pt")
    back = MoleculeEncoder.load(tmp_path / "encoder.pt")
    assert (len(back.layers), back.width, back.dropout) == (2, 8, 0.0)
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())
    assert [each.name for each in tmp_path.iterdir()] == ["encoder.pt"]


def test_a_file_that_is_no_encoder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "encoder.pt"
    with pytest.raises(DataError, match=r"encoder\.pt does not exist or is not a file"):
        MoleculeEncoder.load(file)
    MoleculeEncoder(1, 4).save(file)
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"words"):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"encoder\.pt is damaged or no encoder of molecules"):
            MoleculeEncoder.load(file)
    torch.save({"weights": {}}, file)
    with pytest.raises(DataError, match=r"encoder\.pt is damaged or no encoder of molecules"):
        MoleculeEncoder.load(file)
