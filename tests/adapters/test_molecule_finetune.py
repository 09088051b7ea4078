"""Fine-tuning on labelled molecules: a plain loop to the bit, figures are scikit-learn's, what was not measured has no part."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import plain_loop, weights
from molecule_toys import labelled, labelled_set
from sklearn.metrics import roc_auc_score

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_finetune import FineTuning, Labelled, masked_loss, mean_roc_auc
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_adapters.graph.molecule_recipe import FINE_TUNING, FineTuneRecipe
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.molecule_generated import generate

NAN = math.nan


def encoder(seed: int = 0) -> MoleculeEncoder:
    torch.manual_seed(seed)
    return MoleculeEncoder(2, 16)


def tune(folder: Path, data: Labelled, **more: Any) -> dict[str, Any]:
    settings = {name: more.pop(name) for name in list(more) if name in FineTuneRecipe.kinds()}
    recipe = FINE_TUNING.recipe(**{"num_train_epochs": 6, **settings})
    return train(FINE_TUNING.load(), recipe, data, TemperatureArguments(), folder, **more)


def test_fine_tuning_leaves_the_encoder_alone_and_learns_the_labels(tmp_path: Path) -> None:
    start = encoder()
    before = {name: value.clone() for name, value in start.state_dict().items()}
    data = replace(labelled(), encoder=start)
    results = tune(tmp_path / "tuned", data, num_train_epochs=12, dropout=0.1)
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    assert start.dropout == 0
    assert results["evaluation"]["roc_auc"] > 80
    assert results["evaluation"]["valid_roc_auc"] > 80
    assert (results["items"] + results["valid"] + results["test"], results["tasks"]) == (300, 3)
    assert (results["strategy"], results["objective"]) == (None, None)
    untouched = tune(tmp_path / "no", data, num_train_epochs=0)
    assert untouched["evaluation"]["roc_auc"] < 75, "an untrained head knows nothing"
    written = MoleculeEncoder.load(tmp_path / "tuned" / "encoder.pt").state_dict()
    assert all(torch.equal(value, weights(tmp_path / "tuned")[f"encoder.{name}"]) for name, value in written.items())


def test_fine_tuning_is_a_plain_loop_to_the_bit(tmp_path: Path) -> None:
    data = replace(labelled(), encoder=encoder())
    tune(tmp_path, data, num_train_epochs=2)
    plain = plain_loop(FineTuning(FINE_TUNING), FINE_TUNING.recipe(num_train_epochs=2), data).state_dict()
    assert all(torch.equal(value, weights(tmp_path)[name]) for name, value in plain.items())


def test_a_checkpoint_of_another_encoder_is_refused(tmp_path: Path) -> None:
    tune(tmp_path, replace(labelled(), encoder=encoder()), num_train_epochs=1)
    with pytest.raises(ConfigError, match=r"encoder=\w{16} differs from the checkpoint's \w{16}"):
        tune(tmp_path, replace(labelled(), encoder=encoder(1)), num_train_epochs=1, resume_from_checkpoint="auto")


def test_bfloat16_trains_and_measures_in_full_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    build = FineTuning.build

    def watched(self: FineTuning, *given: Any) -> Any:
        module: Any = build(self, *given)
        module.encoder.layers[0].update.register_forward_hook(
            lambda layer, _, output: seen.append((layer.training, output.dtype))
        )
        return module

    monkeypatch.setattr(FineTuning, "build", watched)
    tune(tmp_path, replace(labelled(), encoder=encoder()), num_train_epochs=1, bf16=True)
    assert set(seen) == {(True, torch.bfloat16), (False, torch.float32)}


def test_data_that_cannot_be_tuned_on_are_named() -> None:
    with pytest.raises(DataError, match="fine-tuning needs labels"):
        Labelled.split(MoleculeSet(["CC"]))
    with pytest.raises(DataError, match="none of 1 tasks has both classes among 10 molecules"):
        Labelled.split(MoleculeSet(generate(100, seed=0), torch.zeros(100, 1)))


def test_the_parts_are_those_of_the_scaffold_split() -> None:
    data = labelled()
    assert sorted([*data.train.tolist(), *data.valid.tolist(), *data.test.tolist()]) == list(range(300))
    batch = FineTuning(FINE_TUNING).collate(FINE_TUNING.recipe(), data, torch.tensor([3, 0]))
    rows = data.train[[3, 0]]
    expected = labelled_set().labels
    assert expected is not None
    torch.testing.assert_close(batch["labels"], expected[rows], equal_nan=True)
    assert torch.equal(batch["molecules"].atoms, data.molecules.batch(rows).atoms)


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
