"""`hyperparameter_search` of a Trainer with a ``temperature_space``: each trial has its own strategy and inherits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import Encoder, logged, make

import tempplug
from tempplug_adapters.huggingface.trainer import joint_space


class Trial:
    """Stands for Optuna's trial, which needs a package that these tests do without: it always suggests the lower end."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return self.params.setdefault(name, low)


def trainer(folder: Path, loss: tempplug.ContrastiveLoss, space: tempplug.SearchSpace | None) -> Any:
    fresh = {"model": None, "model_init": lambda: Encoder()}  # a class of one argument would be handed the trial
    more = {"max_steps": 2, "per_device_train_batch_size": 16, "learning_rate": 5e-5}
    return make(folder, loss, keywords={**fresh, "temperature_space": space}, **more)


def test_each_trial_trains_its_own_strategy_and_the_search_leaves_the_first_one(tmp_path: Path) -> None:
    loss = tempplug.ContrastiveLoss("learnable:initial_temperature=0.3", layout="cross-view")
    own = trainer(tmp_path, loss, tempplug.search_space("learnable", initial_temperature=(0.05, 0.5)))
    own.train(trial={"learnable.initial_temperature": 0.05, "learnable.learning_rate": 1e-4})
    assert own.contrastive_loss.strategy.options["initial_temperature"] == 0.05
    # Adam's first steps move ln τ by their learning rate, which the trial's strategy has brought along
    moved = abs(own.contrastive_loss.record.temperature_mean.log() - torch.tensor(0.05).log())
    assert 0 < float(moved) < 3e-4
    own.train(trial={"learnable.initial_temperature": 0.5, "learnable.learning_rate": 0.1})
    assert float(own.contrastive_loss.record.temperature_mean) == pytest.approx(0.5, rel=0.25)
    own.train()
    own.train()
    assert logged(own, "temperature")[0] == pytest.approx(0.3), "a fresh model starts with a fresh loss"
    assert own.contrastive_loss.strategy.options["initial_temperature"] == 0.3


def test_the_space_of_the_trainer_is_searched_with_it() -> None:
    space = tempplug.search_space("fixed")
    trial = Trial()
    found = joint_space(space, lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)})(
        trial
    )
    assert found == {"learning_rate": 1e-4}, "a Trainer warns of what is no argument of its own"
    assert trial.params == {"fixed.temperature": 0.01, "learning_rate": 1e-4}
    for_ray = joint_space(space, lambda trial: {"weight_decay": 0.1})(None)
    assert set(for_ray) == {"fixed.temperature", "weight_decay"}
    assert 0.01 <= for_ray["fixed.temperature"].sample() <= 1


def test_a_search_hands_the_joint_space_to_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        "transformers.Trainer.hyperparameter_search", lambda self, hp_space, *args, **more: seen.append((hp_space, more))
    )
    loss = tempplug.ContrastiveLoss(layout="cross-view")
    trainer(tmp_path, loss, None).hyperparameter_search(n_trials=3)
    assert seen.pop() == (None, {"n_trials": 3})
    trainer(tmp_path, loss, tempplug.search_space("fixed")).hyperparameter_search(direction="maximize")
    hp_space, more = seen.pop()
    assert more == {"direction": "maximize"}
    trial = Trial()
    assert hp_space(trial) == {}
    assert trial.params == {"fixed.temperature": 0.01}
