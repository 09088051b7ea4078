"""The one training loop: the Trainer's own steps to the bit, exact after a kill, with what a contrastive loss needs added."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import METHOD, Kill, Killed, Points, ToyMethod, plain_loop, run, weights, without_seconds
from transformers import TrainerCallback

from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoints import COMPLETE, checkpoints
from tempplug_adapters.training.train import train
from tempplug_adapters.training.trainer import MethodTrainer

SCHEDULE = "schedule:temperature_min=0.2,temperature_max=0.9,period=4"


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "lars"])
def test_a_training_is_a_plain_loop_to_the_bit(tmp_path: Path, optimizer: str) -> None:
    changes: dict[str, Any] = {"optimizer": optimizer, "weight_decay": 0.1}
    run(tmp_path, "learnable", **changes)
    plain = plain_loop(METHOD.load(), METHOD.recipe(**changes), Points(), "learnable").state_dict()
    found = weights(tmp_path)
    assert all(torch.equal(found[name], value) for name, value in plain.items() if isinstance(value, torch.Tensor))
    assert found.keys() == {name for name, value in plain.items() if isinstance(value, torch.Tensor)}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [SCHEDULE, "learnable", "individual"])
@pytest.mark.parametrize("step", [3, 4, 6, 8])
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path, strategy: str, step: int) -> None:
    whole = run(tmp_path / "whole", strategy)
    with pytest.raises(Killed):
        run(tmp_path / "killed", strategy, callbacks=[Kill(step)])
    torch.manual_seed(99)
    again = run(tmp_path / "killed", strategy, resume_from_checkpoint="auto")
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert without_seconds(again) == without_seconds(whole)
    written = json.loads((tmp_path / "killed" / "metrics.json").read_text())
    assert without_seconds(written) == json.loads(json.dumps(without_seconds(whole)))


def test_what_is_finished_is_only_measured_again(tmp_path: Path) -> None:
    first = run(tmp_path, SCHEDULE, training={"max_steps": 4})
    trained = {file: file.read_bytes() for file in tmp_path.glob("checkpoint-*/*")}
    again = run(tmp_path, SCHEDULE, training={"max_steps": 4}, resume_from_checkpoint="auto")
    assert (first["steps"], again["steps"]) == (4, 4)
    assert again["seconds_per_epoch"] is None
    assert without_seconds(again) == without_seconds(first)
    assert {file: file.read_bytes() for file in tmp_path.glob("checkpoint-*/*")} == trained


def test_a_schedule_goes_by_the_steps_where_those_are_given(tmp_path: Path) -> None:
    """Three steps an epoch: nine in the recipe's three epochs."""
    for steps, period in ((-1, "0.6"), (6, "0.4")):
        results = run(tmp_path / str(steps), "schedule", training={"max_steps": steps})
        assert f"period={period}," in results["strategy"]


def test_a_training_that_misses_most_of_a_schedule_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Three steps an epoch, nine in all: at thirds of a period a cosine has two heights, 1 and 1/4; 0.851 has 48 degrees."""
    for period, said in (
        (1, "2 different temperatures, from 0.325 to 1, where its options say 0.1 to 1: a period has 3 steps, the training 9."),
        (20, "from 0.851 to 1, where its options say 0.1 to 1: a period has 60 steps, the training 9. "),
        (3, ""),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
            results = run(tmp_path / str(period), f"schedule:temperature_min=0.1,temperature_max=1,period={period}")
        found = [record.getMessage() for record in caplog.records]
        assert len(found) == bool(said)
        if said:
            assert said in found[0]
            assert f" {len({round(each, 4) for each in results['course']['temperature']})} different" in found[0]


def test_another_learning_rate_of_the_temperature_is_another_run(tmp_path: Path) -> None:
    def amcl(**more: Any) -> Any:
        return TemperatureArguments("amcl", **more)

    def train_with(temperature: TemperatureArguments, **more: Any) -> Any:
        return train(METHOD.load(), METHOD.recipe(), Points(), temperature, tmp_path, **more)

    assert train_with(amcl(temperature_learning_rate=0.1))["temperature_learning_rate"] == 0.1
    with pytest.raises(ConfigError, match=r"temperature_learning_rate=None differs from the checkpoint's 0\.1"):
        train_with(amcl(), resume_from_checkpoint="auto")


def test_a_folder_is_of_one_run(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match=r"holds checkpoint-9 of an earlier run: pass --resume-from-checkpoint auto"):
        run(tmp_path)
    for changes, message in [
        ({"noise": 0.2}, "noise=0.2 differs from the checkpoint's 0.1"),
        ({"strategy": "macl"}, "strategy=macl:.* differs from the checkpoint's fixed:temperature=0.3"),
        ({"data": Points(21)}, "items=21 differs from the checkpoint's 20"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run(tmp_path, resume_from_checkpoint="auto", **changes)
    with pytest.raises(DataError, match="is not a complete checkpoint"):
        run(tmp_path / "other", resume_from_checkpoint=str(tmp_path))


def test_a_checkpoint_gets_its_name_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: MethodTrainer, folder: str) -> None:
        if self.state.global_step == 9:
            raise OSError(28, "No space left on device")
        original(self, folder)

    original = MethodTrainer._save_rng_state
    monkeypatch.setattr(MethodTrainer, "_save_rng_state", fail)
    with pytest.raises(DataError, match=r"checkpoint-9 cannot be written: No space left on device\.$"):
        run(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"settings.json", "log.jsonl", "checkpoint-6", "checkpoint-8"}
    listed = json.loads((tmp_path / "checkpoint-8" / "manifest.json").read_text())["files"]
    assert {*listed, "manifest.json"} == {each.name for each in (tmp_path / "checkpoint-8").iterdir()}
    assert {*COMPLETE, "rng_state.pth"} == listed.keys()


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", SCHEDULE)
    with pytest.raises(Killed):
        run(tmp_path / "killed", SCHEDULE, callbacks=[Kill(8)], training={"save_total_limit": 1})
    assert [each.name for each in checkpoints(tmp_path / "killed")] == ["checkpoint-6", "checkpoint-8"], "1 is too few"
    damaged = tmp_path / "killed" / "checkpoint-8"
    (damaged / "rng_state.pth").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"checkpoint-8' is not a complete checkpoint: its rng_state\.pth has 0 bytes instead of \d+"
    ):
        run(tmp_path / "killed", SCHEDULE, resume_from_checkpoint=str(damaged))
    with pytest.warns(UserWarning, match=r"checkpoint-8 is damaged: .* the training goes on from checkpoint-6\.$"):
        again = run(tmp_path / "killed", SCHEDULE, resume_from_checkpoint="auto")
    assert without_seconds(again) == without_seconds(whole)
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_logs_have_the_loss_and_its_record_every_epoch(tmp_path: Path) -> None:
    results = run(tmp_path, SCHEDULE, training={"eval_strategy": "epoch"})
    lines = [entry for entry in results["history"] if "loss" in entry]
    assert [entry["epoch"] for entry in lines] == [1.0, 2.0, 3.0]
    assert results["loss"] == lines[-1]["loss"]
    names = {"temperature", "positive_similarity", "negative_similarity", "gradient_scale", "infonce", "learning_rate"}
    assert names <= lines[0].keys()
    # The last step of an epoch of three begins two thirds into it.
    told = [0.2 + 0.7 * (1 + math.cos(math.tau * (epoch + 2 / 3) / 4)) / 2 for epoch in range(3)]
    assert [entry["temperature"] for entry in lines] == pytest.approx(told, abs=1e-5)
    assert [entry["eval_final"] for entry in results["history"] if "eval_final" in entry] == [0.0, 0.0, 0.0, 1.0]
    assert results["evaluation"].keys() == {"spread", "final"}


@pytest.mark.parametrize(
    ("strategy", "steps"),
    [
        ({"logging_strategy": "steps"}, [5, 9]),
        ({}, [5, 9]),  # the number of steps says that steps are meant
        ({"logging_strategy": "epoch"}, [3, 6, 9]),
        ({"logging_strategy": "no"}, []),
    ],
)
def test_a_training_ends_with_a_log(tmp_path: Path, strategy: dict[str, str], steps: list[int]) -> None:
    results = run(tmp_path, training={**strategy, "logging_steps": 5})
    assert [entry["step"] for entry in results["history"] if "loss" in entry] == steps
    assert (results["loss"] is None) == (not steps)


def test_the_logged_loss_is_the_mean_of_the_epochs_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    original = MethodTrainer.compute_loss

    def watched(self: MethodTrainer, *given: Any, **more: Any) -> Any:
        loss = original(self, *given, **more)
        seen.append(float(loss.detach()))
        return loss

    monkeypatch.setattr(MethodTrainer, "compute_loss", watched)
    results = run(tmp_path, training={"gradient_accumulation_steps": 2})
    assert len(seen) == 9
    assert results["steps"] == 6
    means = [sum(seen[start : start + 3]) / 3 for start in (0, 3, 6)]
    assert [entry["loss"] for entry in results["history"] if "loss" in entry] == pytest.approx(means, rel=1e-6)


def test_accumulation_is_the_mean_of_the_micro_batches_gradients(tmp_path: Path) -> None:
    results = run(
        tmp_path,
        optimizer="sgd",
        momentum=0.0,
        num_train_epochs=1,
        training={"gradient_accumulation_steps": 3, "save_steps": 1},
    )
    assert results["steps"] == 1
    method, recipe, data = METHOD.load(), METHOD.recipe(optimizer="sgd", momentum=0.0, num_train_epochs=1), Points()
    start = plain_loop(method, METHOD.recipe(num_train_epochs=0), data)
    before = {name: value.clone() for name, value in start.state_dict().items() if isinstance(value, torch.Tensor)}
    moved = {name: before[name] - value for name, value in weights(tmp_path).items()}
    from tempplug_adapters.training.batches import BatchOrder, seed_of

    start.train()
    for number, draw in enumerate(BatchOrder(20, 8, 0)):
        torch.manual_seed(draw.seed)
        batch = method.collate(recipe, data, draw.index)
        torch.manual_seed(seed_of(0, "step", 0, number, 0))
        (start(**batch) / 3).backward()
    for name, parameter in start.named_parameters():
        torch.testing.assert_close(moved[name], 0.01 * parameter.grad, rtol=1e-4, atol=1e-7)


def test_a_group_may_keep_its_learning_rate(tmp_path: Path) -> None:
    rates: list[list[float]] = []

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            rates.append([group["lr"] for group in optimizer.param_groups])

    run(tmp_path, lr_scheduler_type="cosine", callbacks=[Watch()])
    constant, falling = rates[-1][-1], rates[-1][0]
    assert constant == pytest.approx(0.01)
    assert falling < 1e-4
    assert rates[0][0] > rates[4][0] > rates[8][0]


def test_temperatures_never_decay_and_always_follow_the_optimizer(tmp_path: Path) -> None:
    groups: list[dict[str, Any]] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            groups.extend(optimizer.param_groups)

    for optim in ({}, {"optim": "adagrad"}):
        groups.clear()
        folder = tmp_path / str(len(optim))
        run(folder, "learnable", weight_decay=0.5, learning_rate=0.005, training=optim, callbacks=[Watch()])
        decays = {group["weight_decay"] for group in groups if any(each.ndim > 1 for each in group["params"])}
        assert decays == {0.5}
        assert [each.numel() for each in groups[-1]["params"]] == [1]
        assert (groups[-1]["weight_decay"], groups[-1]["lr"]) == (0.0, 0.01)
        assert groups[0]["lr"] == 0.005


@pytest.mark.parametrize(
    ("step", "told"), [(4, "view_a holds NaN or infinite values"), (8, "the mean loss is nan")], ids=["weights", "last-step"]
)
def test_a_loss_that_is_not_finite_ends_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, told: str
) -> None:
    original = MethodTrainer.compute_loss

    def spoiled(self: MethodTrainer, *given: Any, **more: Any) -> Any:
        loss = original(self, *given, **more)
        return loss * float("nan") if self.state.global_step == step else loss

    monkeypatch.setattr(MethodTrainer, "compute_loss", spoiled)
    with pytest.raises(NonFiniteError, match=rf"the training diverged at epoch .*: {told}.* Lower the learning rate"):
        run(tmp_path)
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values()), "no lost weights are kept"


def test_what_a_batch_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^point 3 is damaged\.$"):
        run(tmp_path, kind="broken")


def test_training_ends_early_where_nothing_gets_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyMethod, "evaluate", lambda self, recipe, module, data, run: {"score": 1.0})
    early = {
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "score",
        "greater_is_better": True,
        "early_stopping_patience": 2,
    }
    results = run(tmp_path, num_train_epochs=9, training=early)
    assert results["epochs"] == 3.0


@pytest.mark.parametrize("metric", [{}, {"metric_for_best_model": "accuracy"}])
def test_the_best_is_chosen_by_what_is_measured(tmp_path: Path, metric: dict[str, str]) -> None:
    chosen = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, **metric}
    wanted = metric.get("metric_for_best_model", "loss")
    with pytest.raises(ConfigError, match=f"metric_for_best_model='{wanted}' is none of what is measured here: spread, final"):
        run(tmp_path, training=chosen)


def test_no_epoch_trains_nothing_but_measures(tmp_path: Path) -> None:
    results = run(tmp_path, num_train_epochs=0)
    assert (results["steps"], results["loss"], results["seconds_per_epoch"]) == (0, None, None)
    assert results["evaluation"]["final"] == 1.0
    state = torch.load(tmp_path / "encoder.pt", weights_only=True)
    torch.manual_seed(0)
    assert torch.equal(state["weight"], torch.nn.Linear(6, 4).weight)


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, seed=seed)
    first, same, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_processes_that_read_ahead_change_nothing(tmp_path: Path) -> None:
    run(tmp_path / "none")
    run(tmp_path / "two", training={"dataloader_num_workers": 2})
    alone, helped = weights(tmp_path / "none"), weights(tmp_path / "two")
    assert all(torch.equal(alone[name], helped[name]) for name in alone)


def test_bf16_trains(tmp_path: Path) -> None:
    results = run(tmp_path, bf16=True)
    assert math.isfinite(results["loss"])
    exact = run(tmp_path / "exact")
    assert results["loss"] == pytest.approx(exact["loss"], rel=0.1)
    assert results["loss"] != exact["loss"]


def test_curves_go_to_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, SCHEDULE, training={"report_to": "tensorboard"})
    file = min(tmp_path.rglob("events.out.*"), key=lambda each: len(each.parts))  # another, deeper, holds the options
    events = EventAccumulator(str(file.parent))  # the evaluation at the end has a file of its own
    events.Reload()
    scalars = set(events.Tags()["scalars"])
    wanted = ("loss", "temperature", "positive_similarity", "negative_similarity", "gradient_scale", "infonce")
    assert {f"train/{name}" for name in wanted} <= scalars
    assert len(events.Scalars("train/temperature")) == 3
