"""The encoder of molecules against the plain formula, and fine-tuning on labels: figures are scikit-learn's."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import train_toy, weights
from molecule_toys import labelled, labelled_set
from sklearn.metrics import roc_auc_score

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_finetune import FineTuning, Labelled, masked_loss, mean_roc_auc
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder, MoleculeLayer
from tempplug_adapters.graph.recipes import FINE_TUNING
from tempplug_benchmarks.tasks.molecule import generate

NAN = math.nan
SMILES = ["C", "[Na+].[Cl-]", "F/C=C/[C@H](N)O", *generate(6, seed=0)]


def encoder(seed: int = 0, layers: int = 2, width: int = 16) -> MoleculeEncoder:
    torch.manual_seed(seed)
    return MoleculeEncoder(layers, width)


def plain(model: MoleculeEncoder, molecules: MoleculeSet) -> torch.Tensor:
    """Hu et al.'s network, with a self bond for every atom and one message an edge."""
    batch = molecules.batch(torch.arange(len(molecules)))
    own = torch.arange(len(batch.x))
    source, target = (torch.cat([each, own]) for each in batch.edge_index)
    bonds = torch.cat([batch.edge_attr, torch.tensor([[5, 0]]).expand(len(own), 2)])
    atoms = model.element.weight[batch.x[:, 0]] + model.chirality.weight[batch.x[:, 1]]
    for depth, layer in enumerate(model.layers):
        messages = atoms[source] + layer.bond_type.weight[bonds[:, 0]] + layer.bond_direction.weight[bonds[:, 1]]
        atoms = layer.norm(layer.update(torch.zeros_like(atoms).index_add(0, target, messages)))
        atoms = atoms if depth == len(model.layers) - 1 else atoms.relu()
    return torch.stack([atoms[batch.batch == row].mean(0) for row in range(batch.num_graphs)])


def test_representations_and_gradients_are_those_of_the_plain_network() -> None:
    molecules, model = MoleculeSet(SMILES), encoder(0, 3, 8).double()
    weights_of = torch.randn(len(SMILES), 8, dtype=torch.float64)
    results = []
    for value in (model(molecules.batch(torch.arange(len(SMILES)))), plain(model, molecules)):
        results.append((value, *torch.autograd.grad((value * weights_of).sum(), list(model.parameters()))))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-10)
    used = dict(zip((name for name, _ in model.named_parameters()), results[0][1:], strict=True))
    for table in ("chirality.weight", "layers.0.bond_direction.weight", "layers.0.bond_type.weight"):
        assert used[table].any(1).sum() > 1
    model.eval()
    batch = molecules.batch(torch.arange(len(SMILES)))
    together = model(batch)
    for row, text in enumerate(SMILES):
        torch.testing.assert_close(model(MoleculeSet([text]).batch(torch.tensor([0])))[0], together[row])
    spelt = model(MoleculeSet(["CC(=O)Oc1ccccc1C(=O)O", "OC(=O)c1ccccc1OC(C)=O"]).batch(torch.arange(2)))
    torch.testing.assert_close(spelt[0], spelt[1])
    for dropout, training in ((0.0, True), (0.5, True), (0.5, False)):
        model.train(training).dropout = dropout
        assert torch.equal(model(batch), model(batch)) is not (training and dropout > 0)


def test_an_encoder_is_saved_whole_and_what_is_none_is_named(tmp_path: Path) -> None:
    model, file = encoder(), tmp_path / "encoder.pt"
    with pytest.raises(DataError, match=r"encoder\.pt does not exist or is not a file"):
        MoleculeEncoder.load(file)
    model(MoleculeSet(SMILES).batch(torch.arange(len(SMILES))))  # moves the running statistics
    model.save(file)
    back = MoleculeEncoder.load(file)
    assert (len(back.layers), back.width, back.dropout) == (2, 16, 0.0)
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())
    assert [each.name for each in tmp_path.iterdir()] == ["encoder.pt"]
    content = file.read_bytes()
    torch.save({"weights": {}}, file)
    for damaged in (file.read_bytes(), content[: len(content) // 2], b"", b"words"):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"encoder\.pt is damaged or no encoder of molecules"):
            MoleculeEncoder.load(file)


def test_fine_tuning_leaves_the_encoder_alone_and_learns_the_labels(tmp_path: Path) -> None:
    start = encoder()
    before = {name: value.clone() for name, value in start.state_dict().items()}
    data = replace(labelled(), encoder=start)
    results = train_toy(FINE_TUNING, tmp_path / "tuned", data, None, num_train_epochs=12, dropout=0.1)
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    assert start.dropout == 0
    assert min(results["evaluation"][name] for name in ("roc_auc", "valid_roc_auc")) > 80
    assert (results["items"] + results["valid"] + results["test"], results["tasks"]) == (300, 3)
    assert (results["strategy"], results["objective"]) == (None, None)
    written = MoleculeEncoder.load(tmp_path / "tuned" / "encoder.pt").state_dict()
    assert all(torch.equal(value, weights(tmp_path / "tuned")[f"encoder.{name}"]) for name, value in written.items())
    untouched = train_toy(FINE_TUNING, tmp_path / "no", data, None, num_train_epochs=0)
    assert untouched["evaluation"]["roc_auc"] < 75, "an untrained head is no better than chance"
    with pytest.raises(ConfigError, match=r"encoder=\w{16} differs from the checkpoint's \w{16}"):
        train_toy(
            FINE_TUNING,
            tmp_path / "tuned",
            replace(data, encoder=encoder(1)),
            None,
            num_train_epochs=12,
            resume_from_checkpoint="auto",
        )


def test_bfloat16_trains_and_measures_in_full_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, forward = [], MoleculeLayer.forward

    def watched(layer: MoleculeLayer, *given: Any) -> torch.Tensor:
        updated = forward(layer, *given)
        seen.append((layer.training, layer.update(updated).dtype))
        return updated

    monkeypatch.setattr(MoleculeLayer, "forward", watched)
    train_toy(FINE_TUNING, tmp_path, replace(labelled(200), encoder=encoder()), None, num_train_epochs=1, bf16=True)
    assert set(seen) == {(True, torch.bfloat16), (False, torch.float32)}


def test_the_parts_are_those_of_the_scaffold_split() -> None:
    data = labelled()
    assert sorted([*data.train.tolist(), *data.valid.tolist(), *data.test.tolist()]) == list(range(300))
    batch = FineTuning(FINE_TUNING).collate(FINE_TUNING.recipe(), data, torch.tensor([3, 0]))
    rows = data.train[[3, 0]]
    torch.testing.assert_close(batch["labels"], labelled_set().labels[rows], equal_nan=True)  # type: ignore[index]
    assert torch.equal(batch["molecules"].x, data.molecules.batch(rows).x)
    with pytest.raises(DataError, match="fine-tuning needs labels"):
        Labelled.split(MoleculeSet(["CC"]))
    with pytest.raises(DataError, match="none of 1 tasks has both classes among 10 molecules"):
        Labelled.split(MoleculeSet(generate(100, seed=0), torch.zeros(100, 1)))


def test_what_was_not_measured_has_no_part_in_the_loss() -> None:
    torch.manual_seed(0)
    scores = torch.randn(4, 3, requires_grad=True)
    truth = torch.tensor([[1, NAN, 0], [NAN, NAN, 1], [0, NAN, NAN], [1.0, NAN, 0]])
    value, probability = masked_loss(scores, truth), scores.sigmoid()
    known = (~truth.isnan()).nonzero().tolist()
    terms = [-(probability if truth[row, task] else 1 - probability)[row, task].log() for row, task in known]
    torch.testing.assert_close(value, torch.stack(terms).mean())
    (gradient,) = torch.autograd.grad(value, scores)
    assert torch.equal(gradient != 0, ~truth.isnan())
    nothing = masked_loss(scores, torch.full((4, 3), NAN))
    assert nothing.item() == 0
    assert torch.equal(torch.autograd.grad(nothing, scores)[0], torch.zeros(4, 3))


def test_the_figure_is_the_mean_over_tasks_with_both_classes() -> None:
    torch.manual_seed(0)
    scores = torch.randn(30, 4).round(decimals=1)  # ties
    truth = (torch.rand(30, 4) < 0.4).float()
    truth[::3, 0], truth[:, 2], truth[:, 3] = NAN, 1, NAN
    measured = ~truth[:, 0].isnan()
    wanted = [roc_auc_score(truth[measured, 0], scores[measured, 0]), roc_auc_score(truth[:, 1], scores[:, 1])]
    assert mean_roc_auc(scores, truth) == pytest.approx(50 * sum(wanted))
    with pytest.raises(DataError, match="none of 2 tasks has both classes among 30 molecules"):
        mean_roc_auc(scores[:, 2:], truth[:, 2:])
