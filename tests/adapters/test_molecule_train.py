"""Pre-training and fine-tuning on generated molecules: the first loss is GraphCL's, figures are scikit-learn's, runs learn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cosine_similarity

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_adapters.graph.molecule_recipe import MoleculeSettings, known_options
from tempplug_adapters.graph.molecule_train import finetune, masked_loss, mean_roc_auc, pretrain
from tempplug_benchmarks.tasks.molecule_generated import generate, labels

NAN = math.nan
SMALL = {"layers": 2, "width": 16, "pretrain_batch_size": 50, "finetune_epochs": 6}


def labelled(count: int = 300, tasks: int = 3) -> MoleculeSet:
    smiles = generate(count, seed=0)
    return MoleculeSet(smiles, torch.tensor(labels(smiles, tasks, seed=0)))


def loss(strategy: str = "fixed:temperature=0.1") -> ContrastiveLoss:
    return ContrastiveLoss(strategy, "dcl", "cross-view")


def test_the_loss_of_a_step_is_graphcls(tmp_path: Path) -> None:
    """One way, cosine, the positive left out of the denominator, from the first views to the second."""
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    class Watched(ContrastiveLoss):
        def forward(self, view_a, view_b, **given):  # type: ignore[no-untyped-def, override]
            value = super().forward(view_a, view_b, **given)
            seen.append((view_a.detach(), view_b.detach(), value.detach()))
            return value

    reported = []
    settings = MoleculeSettings(**SMALL, pretrain_epochs=2)
    _, history = pretrain(
        MoleculeSet(generate(101, seed=0)),
        Watched("fixed:temperature=0.1", "dcl", "cross-view"),
        settings,
        tmp_path / "checkpoint.pt",
        progress=lambda *told: reported.append(told),
    )
    assert [len(view_a) for view_a, _, _ in seen] == [50, 51] * 2, "a last batch of one joins the one before it"
    for view_a, view_b, value in seen:
        assert not torch.allclose(view_a, view_b)
        logits = (cosine_similarity(view_a[:, None], view_b[None], dim=2) / 0.1).exp()
        positive = logits.diagonal()
        torch.testing.assert_close(value, -(positive / (logits.sum(1) - positive)).log().mean(), rtol=1e-5, atol=0)
    values = [value.item() for _, _, value in seen]
    assert history == pytest.approx([sum(values[:2]) / 2, sum(values[2:]) / 2])
    assert [told[:2] for told in reported] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_pre_training_tells_molecules_apart_and_learns_temperatures(tmp_path: Path) -> None:
    settings = MoleculeSettings(**SMALL, pretrain_epochs=6)
    learnable = ContrastiveLoss("learnable:initial_temperature=0.1", "infonce", "cross-view")
    before = {name: value.clone() for name, value in learnable.state_dict().items()}
    encoder, history = pretrain(MoleculeSet(generate(300, seed=0)), learnable, settings, tmp_path / "checkpoint.pt")
    assert history[-1] < history[0] - 0.5
    assert any(not torch.equal(learnable.state_dict()[name], value) for name, value in before.items())
    assert all(torch.isfinite(value).all() for value in encoder.state_dict().values())


def test_a_schedule_hears_of_fractions_of_epochs(tmp_path: Path) -> None:
    schedule = loss("schedule:temperature_min=0.1,temperature_max=0.9,period=2")
    temperatures = []
    schedule.register_forward_hook(lambda module, *_: temperatures.append(module.strategy.temperature()))
    pretrain(MoleculeSet(generate(100, seed=0)), schedule, MoleculeSettings(**SMALL, pretrain_epochs=2), tmp_path / "c.pt")
    assert temperatures == pytest.approx([0.9, 0.5, 0.1, 0.5])


def test_fine_tuning_leaves_the_encoder_alone_and_learns_the_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = MoleculeEncoder(2, 16)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    settings = MoleculeSettings(**{**SMALL, "finetune_epochs": 12}, dropout=0.1)
    found = finetune(encoder, labelled(), settings, tmp_path / "checkpoint.pt", origin={})
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert encoder.dropout == 0
    assert found["test_roc_auc"] > 80
    assert found["valid_roc_auc"] > 80
    assert (found["train"] + found["valid"] + found["test"], found["tasks"]) == (300, 3)
    untouched = finetune(
        encoder, labelled(), MoleculeSettings(**{**SMALL, "finetune_epochs": 0}), tmp_path / "no.pt", origin={}
    )
    assert untouched["test_roc_auc"] < 75, "an untrained head knows nothing"


def test_what_was_not_measured_has_no_part_in_the_loss() -> None:
    torch.manual_seed(0)
    scores = torch.randn(4, 3, requires_grad=True)
    truth = torch.tensor([[1, NAN, 0], [NAN, NAN, 1], [0, NAN, NAN], [1.0, NAN, 0]])
    value = masked_loss(scores, truth)
    probability = scores.sigmoid()
    terms = [-(probability if label else 1 - probability)[row, task].log() for row, task, label in known(truth)]
    torch.testing.assert_close(value, torch.stack(terms).mean())
    (gradient,) = torch.autograd.grad(value, scores)
    assert torch.equal(gradient != 0, ~truth.isnan())
    nothing = masked_loss(scores, torch.full((4, 3), NAN))
    assert nothing.item() == 0
    assert torch.equal(torch.autograd.grad(nothing, scores)[0], torch.zeros(4, 3))


def known(truth: torch.Tensor) -> list[tuple[int, int, bool]]:
    return [(row, task, bool(truth[row, task])) for row, task in (~truth.isnan()).nonzero().tolist()]


def test_the_figure_is_the_mean_over_tasks_with_both_classes() -> None:
    torch.manual_seed(0)
    scores = torch.randn(30, 4).round(decimals=1)  # ties
    truth = (torch.rand(30, 4) < 0.4).float()
    truth[::3, 0] = NAN
    truth[:, 2] = 1
    truth[:, 3] = NAN
    measured = ~truth[:, 0].isnan()
    wanted = [roc_auc_score(truth[measured, 0], scores[measured, 0]), roc_auc_score(truth[:, 1], scores[:, 1])]
    assert mean_roc_auc(scores, truth) == pytest.approx(50 * sum(wanted))
    with pytest.raises(DataError, match="none of 2 tasks has both classes among 30 molecules"):
        mean_roc_auc(scores[:, 2:], truth[:, 2:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers=0 must be at least 1"),
        ({"pretrain_epochs": -1}, "pretrain_epochs=-1 must be at least 0"),
        ({"pretrain_batch_size": 1}, "pretrain_batch_size=1 must be at least 2"),
        ({"view_ratio": 1.0}, "view_ratio=1.0 must be less than 1"),
        ({"dropout": NAN}, "dropout=nan must be at least 0"),
    ],
)
def test_settings_out_of_range_are_named(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MoleculeSettings(**change)  # type: ignore[arg-type]


def test_data_that_cannot_be_trained_on_are_named(tmp_path: Path) -> None:
    settings = MoleculeSettings(**SMALL, pretrain_epochs=1)
    with pytest.raises(DataError, match="1 molecule is too few to pre-train on"):
        pretrain(MoleculeSet(["CC"]), loss(), settings, tmp_path / "checkpoint.pt")
    with pytest.raises(DataError, match="fine-tuning needs labels"):
        finetune(MoleculeEncoder(1, 4), MoleculeSet(["CC"]), settings, tmp_path / "checkpoint.pt", origin={})
    smiles = generate(100, seed=0)
    same = MoleculeSet(smiles, torch.zeros(100, 1))
    with pytest.raises(DataError, match="none of 1 tasks has both classes among 10 molecules"):
        finetune(MoleculeEncoder(1, 4), same, settings, tmp_path / "same.pt", origin={})
    assert not (tmp_path / "same.pt").exists(), "said before the first step"


def test_bfloat16_trains_and_measures_in_full_precision(tmp_path: Path) -> None:
    settings = MoleculeSettings(**SMALL, pretrain_epochs=4, bf16=True)
    encoder, history = pretrain(MoleculeSet(generate(200, seed=0)), loss(), settings, tmp_path / "checkpoint.pt")
    _, full = pretrain(MoleculeSet(generate(200, seed=0)), loss(), replace(settings, bf16=False), tmp_path / "full.pt")
    assert history == pytest.approx(full, rel=0.05)
    assert history != full
    assert {value.dtype for value in encoder.parameters()} == {torch.float32}
    seen = []
    encoder.layers[0].update.register_forward_hook(lambda module, _, output: seen.append((module.training, output.dtype)))
    finetune(encoder, labelled(), settings, tmp_path / "tuned.pt", origin={})
    assert set(seen) == {(True, torch.bfloat16), (False, torch.float32)}


def test_molecules_without_bonds_train(tmp_path: Path) -> None:
    settings = MoleculeSettings(**{**SMALL, "pretrain_batch_size": 2}, pretrain_epochs=2)
    _, history = pretrain(MoleculeSet(["C", "O", "[Na+].[Cl-]"]), loss(), settings, tmp_path / "checkpoint.pt")
    assert all(math.isfinite(value) for value in history)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    molecules = MoleculeSet(generate(20, seed=0))
    settings = MoleculeSettings(**SMALL, pretrain_epochs=1)
    pretrain(molecules, loss(), settings, tmp_path / "checkpoint.pt")
    with pytest.raises(
        ConfigError, match=r"strategy=fixed:temperature=0\.2 differs from the checkpoint's fixed:temperature=0\.1"
    ):
        pretrain(molecules, loss("fixed:temperature=0.2"), settings, tmp_path / "checkpoint.pt")
    with pytest.raises(ConfigError, match="width=8 differs from the checkpoint's 16"):
        pretrain(molecules, loss(), MoleculeSettings(**{**SMALL, "width": 8}, pretrain_epochs=1), tmp_path / "checkpoint.pt")


def test_the_recipe_fills_what_a_strategy_takes() -> None:
    assert known_options("fixed", 80, 100, 300)["temperature"] == 0.1
    assert known_options("schedule", 80, 100, 300)["period"] == 16
    assert known_options("individual", 80, 100, 300) == {"size": 100, "dimension": 300, "temperature_init": 0.1}
