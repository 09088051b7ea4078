"""Checkpoints of the mixin: resuming is exact, also with the best model, and damage is found before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import Data, Encoder, MyTrainer, assert_equal, cross_view, logged, make, weights
from objective_toys import BIAS, Biased, assert_learns
from safetensors.torch import load_file
from transformers import TrainerCallback

from tempplug.errors import DataError
from tempplug_adapters.huggingface.loss_files import read_loss

pytestmark = pytest.mark.slow

EVERY_STEP = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("strategy", "bias", "stop"),  # at the end of an epoch and within one
    [
        ("learnable", None, 8),
        ("macl:base_temperature=0.1,alpha=0.5", None, 11),
        ("schedule:temperature_min=0.1,temperature_max=0.5,period=1.7", None, 8),
        ("schedule:shape=random,temperature_min=0.1,temperature_max=0.5", None, 11),
        ("fixed", 0.5, 11),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_exactly(
    tmp_path: Path, strategy: str, bias: float | None, stop: int
) -> None:
    """Eight steps an epoch and two epochs, with dropout; the period of the schedules does not fit the epochs.

    With a bias, the objective is one that learns it.
    """
    arguments: dict[str, Any] = {"max_steps": 16, "weight_decay": 0.1, "lr_scheduler_type": "constant", "save_steps": stop}
    losses = [cross_view(strategy, "infonce" if bias is None else Biased(start)) for start in (bias, -3.0)]
    whole = make(tmp_path, losses[0], save_strategy="steps", **arguments)
    whole.train()
    resumed = make(tmp_path, losses[1], model_seed=1, **arguments)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    for state in (weights, lambda each: each.contrastive_loss.state_dict()):
        assert_equal(state(resumed), state(whole))
    for key in ("temperature", "loss", "negative_similarity", BIAS):
        assert logged(resumed, key) == logged(whole, key)
    assert len(set(logged(whole, BIAS if bias else "temperature"))) > 1
    if bias:
        assert_learns(logged(whole, BIAS))


def test_the_best_model_comes_back_with_its_loss_also_after_resuming(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"max_steps": 12, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps"}
    arguments |= {"eval_steps": 4, "load_best_model_at_end": True, "metric_for_best_model": "loss"}

    class EarlierIsBetter(MyTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            return {"eval_loss": float(self.state.global_step)}

    keywords = {"eval_dataset": Data(16)}
    trainer = make(tmp_path, "learnable", EarlierIsBetter, keywords=keywords, **arguments)
    trainer.train()
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-4"
    states = {n: torch.load(tmp_path / f"checkpoint-{n}" / "contrastive_loss.pt", weights_only=True) for n in (4, 12)}
    assert not torch.equal(states[4]["strategy.log_scale"], states[12]["strategy.log_scale"])
    assert_equal(trainer.contrastive_loss.state_dict(), states[4])
    resumed = make(tmp_path, "learnable", EarlierIsBetter, model_seed=1, keywords=keywords, **arguments)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert_equal(resumed.contrastive_loss.state_dict(), states[4])
    assert_equal(weights(resumed), weights(trainer))


def test_saving_writes_the_loss_beside_a_model_that_is_untouched(tmp_path: Path) -> None:
    trainer, folder = make(tmp_path, "learnable", max_steps=2), tmp_path / "final"
    trainer.train()
    trainer.save_model(str(folder))
    assert load_file(folder / "model.safetensors").keys() == Encoder().state_dict().keys()
    file = folder / "contrastive_loss.pt"
    assert_equal(torch.load(file, weights_only=True), trainer.contrastive_loss.state_dict())
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"contrastive_loss\.pt is damaged: "):
        read_loss(trainer.contrastive_loss, folder)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path: Path) -> None:
    for strategy in ("learnable", "fixed"):
        make(tmp_path / strategy, strategy, **EVERY_STEP).train()
        for file in ("contrastive_loss.pt", "manifest.json") if strategy == "fixed" else ():
            (tmp_path / strategy / "checkpoint-1" / file).unlink()  # as a Trainer without the mixin saves
    without, checkpoint = str(tmp_path / "fixed" / "checkpoint-1"), str(tmp_path / "learnable" / "checkpoint-1")
    missing = r"contrastive_loss\.pt does not exist: the checkpoint was saved by a Trainer without"
    other = r"contrastive_loss\.pt does not fit strategy 'macl', objective 'infonce', so it was saved with others"
    for strategy, folder, message in (("learnable", without, missing), ("macl", checkpoint, other)):
        with pytest.raises(DataError, match=message):
            make(tmp_path, strategy, max_steps=2).train(resume_from_checkpoint=folder)
    resumed = make(tmp_path, "fixed", max_steps=2)
    resumed.train(resume_from_checkpoint=without)
    assert resumed.state.global_step == 2, "a loss without a state needs none"


def test_what_is_damaged_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    make(tmp_path, "fixed", **EVERY_STEP).train()
    folder = tmp_path / "checkpoint-1"
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {*listed, "manifest.json"} == {each.name for each in folder.iterdir()}
    assert {"model.safetensors", "contrastive_loss.pt", "optimizer.pt", "training_args.bin"} < listed.keys()
    resumed = make(tmp_path, "fixed", max_steps=2)
    before = weights(resumed)
    (folder / "scheduler.pt").write_bytes(b"")
    with pytest.raises(DataError, match=rf"^checkpoint '{folder}' is damaged: its scheduler.pt .* Resume from the one"):
        resumed.train(resume_from_checkpoint=True)
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"is damaged: it is incomplete: it has no manifest\.json"):
        resumed.train(resume_from_checkpoint=str(folder))
    assert_equal(weights(resumed), before)


def test_the_best_model_is_not_loaded_from_a_damaged_checkpoint(tmp_path: Path) -> None:
    class Damages(TrainerCallback):
        def on_save(self, *given: Any, **kwargs: Any) -> None:
            (tmp_path / "checkpoint-1" / "model.safetensors").write_bytes(b"")

    keywords = {"eval_dataset": Data(16), "callbacks": [Damages()]}
    arguments = {**EVERY_STEP, "eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}
    with pytest.raises(DataError, match=r"checkpoint-1' is damaged: its model\.safetensors has 0 bytes instead of \d+"):
        make(tmp_path, "fixed", keywords=keywords, **arguments).train()
