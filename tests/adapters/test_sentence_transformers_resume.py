"""Kill and resume under a SentenceTransformerTrainer: equal weights and equal temperature to the bit, through both doors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import Kill, Killed
from sentence_transformer_toys import assert_equal, create, logged, through, weights
from transformers import TrainerCallback

from tempplug.errors import DataError

pytestmark = pytest.mark.slow

DOORS = ["trainer", "callback"]
SAVED, STEPS = 3, 6
ARGUMENTS = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": SAVED, "weight_decay": 0.1}
ARGUMENTS |= {"per_device_train_batch_size": 16}


def trainer(door: str, folder: Path, model: Any, loss: Any, *callbacks: TrainerCallback, **options: Any) -> Any:
    keywords = {"callbacks": list(callbacks), **options.pop("keywords", {})}
    return through(door, folder, model, loss, keywords=keywords, **{**ARGUMENTS, **options})


@pytest.mark.parametrize(
    ("door", "size", "strategy"),
    [("trainer", 3, "learnable"), ("callback", None, "learnable"), ("callback", None, "schedule:period=1.7")],
)
def test_a_killed_run_goes_on_to_the_same_weights_and_temperature(
    tiny_bert: Path, tmp_path: Path, door: str, size: int | None, strategy: str
) -> None:
    """Killed in the last of four steps of the first epoch, past a checkpoint, with dropout."""
    (model, loss), killed, (again, again_loss) = (create(tiny_bert, strategy, size, dropout=True) for _ in range(3))
    whole = trainer(door, tmp_path / "whole", model, loss)
    whole.train()
    with pytest.raises(Killed):
        trainer(door, tmp_path / "killed", *killed, Kill(SAVED + 1)).train()
    resumed = trainer(door, tmp_path / "killed", again, again_loss)
    resumed.train(resume_from_checkpoint=True)
    assert_equal(weights(resumed), weights(whole))
    assert_equal(again_loss.contrastive_loss.state_dict(), loss.contrastive_loss.state_dict())
    for key in ("temperature", "loss", "negative_similarity"):
        assert logged(resumed, key) == logged(whole, key)
    assert len(set(logged(whole, "temperature"))) > 4


@pytest.mark.parametrize("door", DOORS)
def test_the_best_model_comes_back_with_its_temperature(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    class EarlierIsBetter(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any) -> None:
            metrics["eval_loss"] = float(state.global_step)

    model, loss = create(tiny_bert, "learnable")
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": SAVED, "load_best_model_at_end": True}
    options |= {"metric_for_best_model": "loss", "greater_is_better": False}
    options["keywords"] = {"eval_dataset": trainer(door, tmp_path, model, loss).train_dataset}
    options["keywords"]["callbacks"] = [EarlierIsBetter()]
    run = trainer(door, tmp_path, model, loss, **options)
    run.train()
    assert Path(run.state.best_model_checkpoint).name == f"checkpoint-{SAVED}"
    saved = [torch.load(tmp_path / f"checkpoint-{n}" / "contrastive_loss.pt", weights_only=True) for n in (SAVED, 2 * SAVED)]
    assert saved[0] != saved[1]
    assert loss.contrastive_loss.state_dict()["strategy.log_scale"] == saved[0]["0.strategy.log_scale"]


@pytest.mark.parametrize("door", DOORS)
def test_a_checkpoint_that_lacks_the_state_or_is_damaged_is_refused(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    def refused(message: str, strategy: str = "learnable") -> None:
        run = trainer(door, tmp_path, *create(tiny_bert, strategy), save_strategy="no")
        with pytest.raises(DataError, match=message):
            run.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SAVED}"))

    trainer(door, tmp_path, *create(tiny_bert, "learnable"), max_steps=SAVED).train()
    own = tmp_path / f"checkpoint-{SAVED}" / "contrastive_loss.pt"
    if door == "trainer":  # the library's own reads the optimizer first, which does not fit either
        refused(r"contrastive_loss\.pt does not fit strategy 'schedule'", "schedule:period=2")
    own.write_bytes(own.read_bytes()[:-1] + b"x")
    refused(r"is damaged: its contrastive_loss\.pt is damaged")
    own.unlink()
    refused(r"its contrastive_loss\.pt is missing")
    own.with_name("manifest.json").unlink()
    refused(r"contrastive_loss\.pt does not exist: the checkpoint was saved by a Trainer without")


def test_either_door_resumes_what_the_other_saved_where_nothing_is_learned(tiny_bert: Path, tmp_path: Path) -> None:
    found = []
    for first, second in (DOORS, DOORS[::-1]):
        with pytest.raises(Killed):
            trainer(first, tmp_path / first, *create(tiny_bert, "schedule"), Kill(SAVED + 1)).train()
        run = trainer(second, tmp_path / first, *create(tiny_bert, "schedule"))
        run.train(resume_from_checkpoint=True)
        found.append(weights(run))
    assert_equal(*found)
