"""Kill and resume under a SentenceTransformerTrainer: equal weights and equal temperature to the bit, through both doors."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformer_toys import assert_equal, logged, make, tiny, weights
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from transformers import TrainerCallback

from tempplug.errors import DataError
from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
)

pytestmark = pytest.mark.slow

DOORS = ["trainer", "callback"]
SAVED, STEPS = 3, 6
ARGUMENTS: dict[str, Any] = {
    "max_steps": STEPS,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "weight_decay": 0.1,
    "per_device_train_batch_size": 16,
}


class Killed(Exception):
    """Stands for a signal that no program sees."""


class Killer(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == SAVED + 1:
            raise Killed


@pytest.fixture(autouse=True, scope="module")
def _collect_little() -> Iterator[None]:
    """The Trainer collects garbage at its start, which takes longer than these trainings where much is alive."""
    gc.freeze()
    yield
    gc.unfreeze()


def trainer(
    door: str, folder: Path, model: SentenceTransformer, loss: TemperatureRankingLoss, *more: TrainerCallback, **options: Any
) -> Any:
    callbacks = [*([TemperatureRankingCallback(loss)] if door == "callback" else []), *more]
    arguments = {**ARGUMENTS, **options}
    keywords = {"callbacks": callbacks, **arguments.pop("keywords", {})}
    if door == "callback":
        return make(folder, model, loss, SentenceTransformerTrainer, keywords=keywords, **arguments)
    return make(folder, model, loss, keywords=keywords, **arguments)


def state(loss: TemperatureRankingLoss) -> dict[str, Any]:
    return loss.contrastive_loss.state_dict()


@pytest.mark.parametrize(
    ("door", "cached", "strategy"),
    [
        ("trainer", False, "learnable"),
        ("callback", False, "learnable"),
        ("trainer", True, "learnable"),
        ("trainer", False, "schedule:period=1.7"),
        ("callback", False, "schedule:period=1.7"),
    ],
)
def test_a_killed_run_goes_on_to_the_same_weights_and_temperature(
    tiny_bert: Path, tmp_path: Path, door: str, cached: bool, strategy: str
) -> None:
    """Killed in the last of four steps of the first epoch, past a checkpoint, with dropout."""

    def fresh() -> tuple[SentenceTransformer, TemperatureRankingLoss]:
        model = tiny(tiny_bert, dropout=True)
        return model, (
            CachedTemperatureRankingLoss(model, strategy, mini_batch_size=3)
            if cached
            else TemperatureRankingLoss(model, strategy)
        )

    whole_model, whole_loss = fresh()
    whole = trainer(door, tmp_path / "whole", whole_model, whole_loss)
    whole.train()
    with pytest.raises(Killed):
        trainer(door, tmp_path / "killed", *fresh(), Killer()).train()
    model, loss = fresh()
    resumed = trainer(door, tmp_path / "killed", model, loss)
    resumed.train(resume_from_checkpoint=True)
    assert_equal(weights(resumed), weights(whole))
    assert_equal(state(loss), state(whole_loss))
    for key in ("temperature", "loss", "uniformity"):
        assert logged(resumed, key) == logged(whole, key)
    assert len(set(logged(whole, "temperature"))) > 4


@pytest.mark.parametrize("door", DOORS)
def test_the_best_model_comes_back_with_its_temperature(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    class EarlierIsBetter(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any) -> None:
            metrics["eval_loss"] = float(state.global_step)

    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "learnable")
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": SAVED, "load_best_model_at_end": True}
    options |= {"metric_for_best_model": "loss", "greater_is_better": False}
    options["keywords"] = {"eval_dataset": make(tmp_path, model, loss).train_dataset}
    run = trainer(door, tmp_path, model, loss, EarlierIsBetter(), **options)
    run.train()
    assert Path(run.state.best_model_checkpoint).name == f"checkpoint-{SAVED}"
    saved = [torch.load(tmp_path / f"checkpoint-{n}" / "contrastive_loss.pt", weights_only=True) for n in (SAVED, 2 * SAVED)]
    assert saved[0] != saved[1]
    assert state(loss)["strategy.log_scale"] == saved[0]["0.strategy.log_scale"]


@pytest.mark.parametrize("door", DOORS)
def test_a_checkpoint_that_lacks_the_state_or_is_damaged_is_refused(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    def resume(strategy: str = "learnable") -> None:
        model = tiny(tiny_bert)
        run = trainer(door, tmp_path, model, TemperatureRankingLoss(model, strategy), save_strategy="no")
        run.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SAVED}"))

    model = tiny(tiny_bert)
    trainer(door, tmp_path, model, TemperatureRankingLoss(model, "learnable"), max_steps=SAVED).train()
    folder = tmp_path / f"checkpoint-{SAVED}"
    if door == "trainer":  # the library's own reads the optimizer first, which does not fit either
        with pytest.raises(DataError, match=r"contrastive_loss\.pt does not fit strategy 'schedule'"):
            resume("schedule:period=2")
    own = folder / "contrastive_loss.pt"
    content = own.read_bytes()
    own.write_bytes(content[:-1] + b"x")
    with pytest.raises(DataError, match=r"is damaged: its contrastive_loss\.pt is damaged"):
        resume()
    own.unlink()
    with pytest.raises(DataError, match=r"its contrastive_loss\.pt is missing"):
        resume()
    (folder / "manifest.json").unlink()
    with pytest.raises(
        DataError, match=r"contrastive_loss\.pt does not exist: the checkpoint was not saved by a training that"
    ):
        resume()


def test_either_door_resumes_what_the_other_saved_where_nothing_is_learned(tiny_bert: Path, tmp_path: Path) -> None:
    found = []
    for first, second in (DOORS, DOORS[::-1]):
        folder = tmp_path / first
        model = tiny(tiny_bert)
        killed = trainer(first, folder, model, TemperatureRankingLoss(model, "schedule"), Killer())
        with pytest.raises(Killed):
            killed.train()
        model = tiny(tiny_bert)
        run = trainer(second, folder, model, TemperatureRankingLoss(model, "schedule"))
        run.train(resume_from_checkpoint=True)
        found.append(weights(run))
    assert_equal(*found)
