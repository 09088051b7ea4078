"""The training loop: a plain loop bit for bit, with the additions of contrastive training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import METHOD, Points, ToyMethod, plain_loop, run, weights
from transformers import TrainerCallback

from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoints import COMPLETE
from tempplug_adapters.training.train import train, training_arguments
from tempplug_adapters.training.trainer import MethodTrainer

SCHEDULE = "schedule:temperature_min=0.2,temperature_max=0.9,period=4"
BEST = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}


@pytest.mark.parametrize(
    ("optimizer", "accumulation", "workers"),
    [("adam", 1, 0), ("adamw", 2, 0), ("sgd", 3, 0), pytest.param("lars", 1, 2, marks=pytest.mark.slow)],
)
def test_a_training_is_a_plain_loop_to_the_bit(tmp_path: Path, optimizer: str, accumulation: int, workers: int) -> None:
    """Processes that read ahead change nothing; a logged loss is the mean of an epoch's three batches."""
    changes: dict[str, Any] = {"optimizer": optimizer, "weight_decay": 0.1}
    given = {"gradient_accumulation_steps": accumulation, "dataloader_num_workers": workers, "save_steps": 1}
    results, losses = run(tmp_path, "learnable", training=given, **changes), []
    recipe = METHOD.recipe(**changes)
    plain = plain_loop(METHOD.load(), recipe, Points(), "learnable", accumulation=accumulation, losses=losses).state_dict()
    expected, found = {name: value for name, value in plain.items() if isinstance(value, torch.Tensor)}, weights(tmp_path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert results["steps"] == 3 * math.ceil(3 / accumulation)
    means = [sum(losses[start : start + 3]) / 3 for start in (0, 3, 6)]
    assert [entry["loss"] for entry in results["history"] if "loss" in entry] == pytest.approx(means, rel=1e-6)


def test_a_folder_is_of_one_run(tmp_path: Path) -> None:
    def go(rate: float | None = 0.1, strategy: str = "amcl", items: int = 20, **more: Any) -> Any:
        noise, temperature = more.pop("noise", 0.1), TemperatureArguments(strategy, temperature_learning_rate=rate)
        return train(METHOD.load(), METHOD.recipe(noise=noise), Points(items), temperature, tmp_path, **more)

    assert go()["temperature_learning_rate"] == 0.1
    with pytest.raises(ConfigError, match=r"holds checkpoint-9 of an earlier run: pass --resume-from-checkpoint auto"):
        go()
    for changes, message in [
        ({"noise": 0.2}, "noise=0.2 differs from the checkpoint's 0.1"),
        ({"rate": None, "strategy": "macl"}, "strategy=macl:.* differs from the checkpoint's amcl:"),
        ({"items": 21}, "items=21 differs from the checkpoint's 20"),
        ({"rate": None}, "temperature_learning_rate=None differs from the checkpoint's 0.1"),
        ({"training": {"max_steps": 8}}, "max_steps=8 differs from the checkpoint's -1"),
        ({"training": {"gradient_accumulation_steps": 2}}, "gradient_accumulation_steps=2 differs from the checkpoint's 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            go(resume_from_checkpoint="auto", **changes)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is not a complete checkpoint"):
        run(tmp_path / "other", resume_from_checkpoint=str(tmp_path))


def test_a_checkpoint_that_cannot_be_completed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: MethodTrainer, folder: str) -> None:
        if self.state.global_step == 9:
            raise OSError(28, "No space left on device", f"{folder}/rng_state.pth")
        original(self, folder)

    original = MethodTrainer._save_rng_state
    monkeypatch.setattr(MethodTrainer, "_save_rng_state", fail)
    told = r"/checkpoint-9/rng_state\.pth cannot be written: No space left on device\. .* goes on from checkpoint-8\.$"
    with pytest.raises(DataError, match=told):
        run(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"settings.json", "log.jsonl", "checkpoint-6", "checkpoint-8"}
    listed = json.loads((tmp_path / "checkpoint-8" / "manifest.json").read_text())["files"]
    assert {*listed, "manifest.json"} == {each.name for each in (tmp_path / "checkpoint-8").iterdir()}
    assert {*COMPLETE, "rng_state.pth"} == listed.keys()
    assert training_arguments(METHOD.recipe(), str(tmp_path), save_total_limit=1).save_total_limit == 2, "one may be damaged"


def test_logs_have_the_loss_and_its_record_every_epoch(tmp_path: Path) -> None:
    results = run(tmp_path, SCHEDULE, training={"eval_strategy": "epoch"})
    lines = [entry for entry in results["history"] if "loss" in entry]
    assert [entry["epoch"] for entry in lines] == [1.0, 2.0, 3.0]
    assert results["loss"] == lines[-1]["loss"]
    names = {"temperature", "positive_similarity", "negative_similarity", "gradient_scale"}
    assert lines[0].keys() == {*names, "loss", "learning_rate", "epoch", "step"}
    full = run(tmp_path / "full", SCHEDULE, training={"eval_strategy": "epoch"}, log_record="full")
    more = {"infonce", "uniformity", "alignment", "effective_negatives", "positive_probability"}
    whole = [entry for entry in full["history"] if "loss" in entry]
    assert [each.keys() - lines[0].keys() for each in whole] == [more] * 3, "one temperature has no smallest and largest"
    assert [{name: each[name] for name in lines[0]} for each in whole] == lines
    assert {**full, "history": [], "seconds_per_epoch": 0} == {**results, "history": [], "seconds_per_epoch": 0}
    # the last step of an epoch of three begins two thirds into it
    told = [0.2 + 0.7 * (1 + math.cos(math.tau * (epoch + 2 / 3) / 4)) / 2 for epoch in range(3)]
    assert [entry["temperature"] for entry in lines] == pytest.approx(told, abs=1e-5)
    assert [entry["eval_final"] for entry in results["history"] if "eval_final" in entry] == [0.0, 0.0, 0.0, 1.0]
    assert results["evaluation"].keys() == {"spread", "final"}


def test_a_training_ends_with_a_log(tmp_path: Path) -> None:
    for strategy, steps in (("steps", [5, 9]), ("", [5, 9]), ("epoch", [3, 6, 9]), ("no", [])):  # "": by logging_steps
        given = {"logging_strategy": strategy} if strategy else {}
        results = run(tmp_path / f"by {strategy}", training={**given, "logging_steps": 5})
        assert [entry["step"] for entry in results["history"] if "loss" in entry] == steps
        assert (results["loss"] is None) == (not steps)


class Groups(TrainerCallback):
    """Notes the learning rates of the optimizer's groups after each step, and the groups."""

    def __init__(self) -> None:
        self.rates: list[list[float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.groups = optimizer.param_groups
        self.rates.append([group["lr"] for group in self.groups])


def test_a_group_may_keep_its_learning_rate_and_temperatures_never_decay(tmp_path: Path) -> None:
    watch = Groups()
    run(tmp_path / "cosine", lr_scheduler_type="cosine", callbacks=[watch])
    assert watch.rates[-1][-1] == pytest.approx(0.01)
    assert watch.rates[0][0] > watch.rates[4][0] > 0.001 > 1e-4 > watch.rates[8][0]
    for optim in ({}, {"optim": "adagrad"}):
        watch = Groups()
        folder = tmp_path / str(len(optim))
        run(folder, "learnable", weight_decay=0.5, learning_rate=0.005, training=optim, callbacks=[watch])
        decays = {group["weight_decay"] for group in watch.groups if any(each.ndim > 1 for each in group["params"])}
        assert decays == {0.5}
        assert [each.numel() for each in watch.groups[-1]["params"]] == [1]
        assert (watch.groups[-1]["weight_decay"], watch.rates[0][-1], watch.rates[0][0]) == (0.0, 0.01, 0.005)


@pytest.mark.parametrize(
    ("step", "told"), [(4, "view_a holds NaN or infinite values"), (8, "the mean loss is nan")], ids=["weights", "last-step"]
)
def test_a_loss_that_is_not_finite_gives_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, told: str) -> None:
    original = MethodTrainer.compute_loss

    def spoiled(self: MethodTrainer, *given: Any, **more: Any) -> Any:
        loss = original(self, *given, **more)
        return loss * float("nan") if self.state.global_step == step else loss

    monkeypatch.setattr(MethodTrainer, "compute_loss", spoiled)
    with pytest.raises(NonFiniteError, match=rf"the training diverged at epoch .*: {told}.* Lower the learning rate"):
        run(tmp_path)
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values()), "no lost weights are kept"


def test_errors_of_data_and_of_metrics_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^point 3 is damaged\.$"):
        run(tmp_path / "broken", kind="broken")
    for name, metric in (("loss", {}), ("accuracy", {"metric_for_best_model": "accuracy"})):
        wanted = f"metric_for_best_model='{name}' is not among the metrics: spread, final"
        with pytest.raises(ConfigError, match=wanted):
            run(tmp_path / name, training={**BEST, **metric})


def test_training_ends_early_where_nothing_gets_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyMethod, "evaluate", lambda self, recipe, module, data, run: {"score": 1.0})
    early = {"metric_for_best_model": "score", "greater_is_better": True, "early_stopping_patience": 2}
    assert run(tmp_path, num_train_epochs=9, training={**BEST, **early})["epochs"] == 3.0


def test_no_epoch_trains_nothing_but_measures(tmp_path: Path) -> None:
    results = run(tmp_path, num_train_epochs=0)
    assert (results["steps"], results["loss"], results["seconds_per_epoch"]) == (0, None, None)
    assert results["evaluation"]["final"] == 1.0
    state = torch.load(tmp_path / "encoder.pt", weights_only=True)
    torch.manual_seed(0)
    assert torch.equal(state["weight"], torch.nn.Linear(6, 4).weight)
