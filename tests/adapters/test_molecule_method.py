"""``tempplug train molecule``: a step is GraphCL's formula, both stages are exact after a kill, encoders are used again."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import Killed, train_toy, weights, without_seconds
from molecule_toys import labelled, unlabelled, write_files
from torch import Tensor
from torch.nn.functional import cosine_similarity

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph import molecule_data
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_adapters.graph.molecule_method import MoleculeMethod, MoleculeModule, Molecules
from tempplug_adapters.graph.recipes import DATASETS, MOLECULE as METHOD

SMALL: dict[str, Any] = {"layers": 2, "width": 16, "per_device_train_batch_size": 50, "num_train_epochs": 2}
SCHEDULE = "schedule:shape=triangle,temperature_min=0.05,temperature_max=0.2,period=3"
STEPS = {"logging_strategy": "steps", "logging_steps": 1}


def run(folder: Path, strategy: str = "fixed", data: Molecules | None = None, **more: Any) -> dict[str, Any]:
    data = Molecules(unlabelled()) if data is None else data
    return train_toy(METHOD, folder, data, strategy, **{**SMALL, "finetune_epochs": 2, **more})


def both() -> Molecules:
    return Molecules(unlabelled(60), {"one": labelled(200, 1), "three": labelled(200, 3)})


@pytest.mark.parametrize("normalised", [None, True])
def test_the_loss_of_a_step_is_graphcls(normalised: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One way, cosine, the positive left out of the denominator, from the first views to the second."""
    seen: list[Tensor] = []
    build = MoleculeMethod.build

    def watched(self: MoleculeMethod, *given: Any) -> MoleculeModule:
        module = build(self, *given)
        module.head.register_forward_hook(lambda layer, _, output: seen.append(output.detach()))
        return module

    monkeypatch.setattr(MoleculeMethod, "build", watched)
    results = run(tmp_path, training=STEPS, last_batch_norm=normalised)
    assert [len(each) for each in seen] == [50, 50, 51, 51] * 2, "a last batch of one joins the one before it"
    assert len(results["history"]) == 4
    for entry, view_a, view_b in zip(results["history"], seen[::2], seen[1::2], strict=True):
        assert not torch.allclose(view_a, view_b)
        assert bool((view_a.mean(0).abs() < 1e-5).all()) == bool(normalised)
        logits = (cosine_similarity(view_a[:, None], view_b[None], dim=2) / 0.1).exp()
        positive = logits.diagonal()
        expected = -(positive / (logits.sum(1) - positive)).log().mean()
        assert entry["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_pre_training_tells_molecules_apart_and_moves_temperatures(tmp_path: Path) -> None:
    results = run(tmp_path / "learnable", "learnable", Molecules(unlabelled(200)), num_train_epochs=6)
    losses = [entry["loss"] for entry in results["history"]]
    assert losses[-1] < losses[0] - 0.5
    assert results["history"][-1]["temperature"] != pytest.approx(0.1, abs=1e-4)
    assert results["evaluation"] == {}
    results = run(tmp_path / "bare", data=Molecules(MoleculeSet(["C", "O", "[Na+].[Cl-]"])), per_device_train_batch_size=2)
    assert math.isfinite(results["loss"]), "without bonds"
    with pytest.raises(ConfigError, match="1 items are too few"):
        run(tmp_path / "one", data=Molecules(MoleculeSet(["CC"])))


@pytest.mark.slow
def test_a_killed_fine_tuning_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    def kill(done: float) -> None:
        if done > 0.8:  # in the second of two
            raise Killed

    whole = run(tmp_path / "whole", SCHEDULE, both(), num_train_epochs=1)
    with pytest.raises(Killed):
        run(tmp_path / "killed", SCHEDULE, both(), num_train_epochs=1, evaluation_progress=kill)
    assert not (tmp_path / "killed" / "metrics.json").exists()
    assert list((tmp_path / "killed" / "finetune-three").glob("checkpoint-*"))
    told: list[float] = []
    more: dict[str, Any] = {"resume_from_checkpoint": "auto", "evaluation_progress": told.append}
    again = run(tmp_path / "killed", SCHEDULE, both(), num_train_epochs=1, **more)
    assert told[0] > 0.7, "what was done is not done again"
    assert told[-1] == 1
    assert without_seconds(again) == without_seconds(whole)
    for part in (".", "finetune-one", "finetune-three"):
        expected, found = weights(tmp_path / "whole" / part), weights(tmp_path / "killed" / part)
        assert all(torch.equal(expected[name], found[name]) for name in expected), part
        assert without_seconds(metrics(tmp_path / "whole" / part)) == without_seconds(metrics(tmp_path / "killed" / part))


def test_fine_tuning_follows_the_training_and_gets_the_users_arguments(tmp_path: Path) -> None:
    data, arguments = Molecules(unlabelled(), {"one": labelled(200, 1)}), {"eval_strategy": "epoch", **STEPS, "max_steps": 2}
    results = run(tmp_path, data=data, training=arguments, finetune_epochs=1)
    assert results["steps"] == 2
    assert not any("eval_roc_auc one" in entry for entry in results["history"][:-1])
    tuned = metrics(tmp_path / "finetune-one")
    assert tuned["steps"] == 5, "max_steps is that of pre-training"
    assert len([entry for entry in tuned["history"] if "loss" in entry]) == 5
    assert results["evaluation"]["roc_auc one"] == tuned["evaluation"]["roc_auc"]
    assert tuple(molecule_data._TABLES) == DATASETS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("generated"))


def words(files: Path, output: Path, *more: str, datasets: tuple[str, ...] = ("one",)) -> list[str]:
    data = ["--dataset", ",".join(str(files / f"{name}.csv") for name in datasets)]
    data += ["--pretrain-file", str(files / "unlabelled.smi"), "--output-dir", str(output)]
    small = "--layers 2 --width 16 --num-train-epochs 1 --per-device-train-batch-size 64 --finetune-epochs 1"
    return ["train", "molecule", *data, *small.split(), *more]


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.mark.slow
def test_a_command_writes_encoder_and_figures_and_its_encoder_stands_for_pre_training(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(files, tmp_path / "all", "--temperature-strategy", "macl", datasets=("one", "Three"))) == 0
    out = capsys.readouterr().out
    spec = "macl:base_temperature=0.1,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false"
    assert out.startswith(f"strategy {spec}\nobjective dcl\n")
    left_out = "(1 SMILES left out, which cannot be read)"
    assert f"300 molecules {left_out} to pre-train on, one with 200 molecules, Three with 200 molecules" in out
    results = metrics(tmp_path / "all")
    assert (results["items"], results["unreadable"], results["recipe"]["width"]) == (300, 1, 16)
    figures = results["evaluation"]
    assert list(figures) == ["roc_auc one", "valid_roc_auc one", "roc_auc Three", "valid_roc_auc Three"]
    for name, value in figures.items():
        assert re.search(rf"^{name} +{value:.4g}$", out, re.M)
    assert [metrics(tmp_path / "all" / f"finetune-{name}")["tasks"] for name in ("one", "Three")] == [1, 3]
    assert not (tmp_path / "all" / "finetune-one" / "README.md").exists(), "it has no command that opens it"
    again = ["--encoder", str(tmp_path / "all" / "encoder.pt"), "--layers", "7", "--pretrain-file", "nowhere"]
    assert main(words(files, tmp_path / "again", *again)) == 0
    reused = metrics(tmp_path / "again")
    assert reused["evaluation"] == {name: value for name, value in figures.items() if name.endswith("one")}
    assert (reused["steps"], reused["items"]) == (0, 0)
    assert (reused["recipe"]["layers"], reused["recipe"]["width"]) == (2, 16), "of the file"


def test_training_from_scratch_starts_where_pre_training_starts(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch = words(files, tmp_path / "scratch", "--num-train-epochs", "0", "--pretrain-file", "nowhere")
    assert main(scratch) == 0
    assert "one.csv: no pre-training, one with 200 molecules" in capsys.readouterr().out
    assert main([*scratch, "--resume-from-checkpoint", "auto"]) == 0
    assert main(scratch) == 2
    assert "holds checkpoint-5 of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err
    frozen = ["--learning-rate", "1e-30", "--no-evaluate"]
    assert main(words(files, tmp_path / "trained", *frozen, datasets=("absent",))) == 0
    assert metrics(tmp_path / "trained")["evaluation"] == {}
    fresh, unmoved = (MoleculeEncoder.load(tmp_path / name / "encoder.pt") for name in ("scratch", "trained"))
    for name, value in fresh.named_parameters():
        torch.testing.assert_close(value, unmoved.get_parameter(name), rtol=0, atol=1e-9)


def test_pre_training_alone_needs_no_data_set(files: Path, tmp_path: Path) -> None:
    given = words(files, tmp_path, "--max-pretrain-molecules", "101", "--temperature-strategy", "learnable", datasets=())
    assert main(given) == 0
    results = metrics(tmp_path)
    assert (results["items"], results["unreadable"], results["evaluation"]) == (100, 1, {})
    assert (results["objective"], results["dataset"]) == ("infonce", "")


ATOMS = """
import torch
from torch import nn

class Atoms(nn.Module):
    def __init__(self, hidden, gain=1.0):
        super().__init__()
        self.element, self.bond, self.gain = nn.Embedding(200, hidden), nn.Embedding(10, hidden), gain

    def forward(self, x, edge_index, edge_attr):
        atoms = self.element(x[:, 0])
        return self.gain * atoms.index_add(0, edge_index[1], atoms[edge_index[0]] + self.bond(edge_attr[:, 0]))
"""


def test_an_encoder_of_the_user_is_trained_and_opened_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "atoms.py").write_text(ATOMS)
    monkeypatch.chdir(tmp_path)
    name, data, out = "atoms:Atoms:gain=0.5", str(files / "Three.csv"), str(tmp_path / "out")
    words = ["--dataset", data, "--pretrain-file", str(files / "unlabelled.smi"), "--encoder", name, "--width", "12"]
    words += ["--num-train-epochs", "1", "--finetune-epochs", "1", "--output-dir", out]
    assert main(["train", "molecule", *words]) == 0
    with pytest.raises(DataError, match=f"was trained with '{name}', whose import runs code: pass trust=True"):
        tempplug_adapters.load(out)
    trained = tempplug_adapters.load(out, trust=True)
    vectors = trained.embed(["CCO", "c1ccccc1", "CCO"])
    assert vectors.shape == (3, 12)
    assert torch.equal(vectors[0], vectors[2])
    assert not torch.allclose(vectors[0], vectors[1])
    assert trained.evaluate() == json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]
    with pytest.raises(DataError, match=r"encoder.pt is damaged or no encoder of molecules: .*fine-tune it in the run that"):
        MoleculeEncoder.load(tmp_path / "out" / "encoder.pt")
    assert main(["train", "molecule", *words, "--encoder", "atoms:Atoms:gian=1", "--output-dir", str(tmp_path / "other")]) != 0
    assert "encoder Atoms has no argument 'gian'. Did you mean 'gain'?" in capsys.readouterr().err
