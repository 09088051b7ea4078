"""What a Trainer with the mixin logs and evaluates."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import TEMPERATURE, Data, ScaleAndShift, cross_view, logged, make
from torch.nn import functional as F
from transformers import EvalPrediction, TrainerCallback

import tempplug
from tempplug.errors import UnknownNameError
from tempplug.plugins import Registry, hookimpl


class Reporter(TrainerCallback):
    """What a logging integration sees."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def on_log(self, *args: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.seen.append(dict(logs))


def test_training_logs_measure_the_last_batch_and_reach_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[tempplug.StepRecord] = []

    class Plugin:
        @hookimpl
        def tempplug_log(self, record: tempplug.StepRecord) -> None:
            records.append(record)

    registry = Registry()
    registry.register(Plugin(), name="collector")
    monkeypatch.setattr("tempplug.plugins.manager._registry", registry)
    reporter, data = Reporter(), Data(8)
    keywords = {"train_dataset": data, "callbacks": [reporter], "log_record": "full"}
    trainer = make(tmp_path, "macl:base_temperature=0.1", dropout=0.0, keywords=keywords, max_steps=1, learning_rate=0.0)
    trainer.train()

    history = trainer.state.log_history[0]
    assert "temperature_min" not in history, "one temperature for all pairs has no smallest and largest"
    a, b = F.normalize(trainer.model(data.a)), F.normalize(trainer.model(data.b))
    similarity = (a * b).sum(1).mean().item()
    assert history["positive_similarity"] == pytest.approx(similarity, rel=1e-5)
    assert history["temperature"] == pytest.approx(0.1 * (1 + 0.5 * similarity), rel=1e-5)
    assert history["alignment"] == pytest.approx(2 - 2 * similarity, rel=1e-5)
    potential = torch.exp(-2 * torch.cdist(a, a).square())[~torch.eye(8, dtype=torch.bool)]
    assert history["uniformity"] == pytest.approx(potential.mean().log().item(), rel=1e-4)
    logits = a @ b.T / history["temperature"]
    assert history["infonce"] == pytest.approx(F.cross_entropy(logits, torch.arange(8)).item(), rel=1e-4)
    assert history["gradient_scale"] == pytest.approx(1 - history["positive_probability"], rel=1e-5)
    assert reporter.seen[0] == {key: value for key, value in history.items() if key != "step"}
    assert "temperature" not in trainer.state.log_history[-1]
    assert [record.positive_similarity.item() for record in records] == [history["positive_similarity"]]
    json.dumps(history)


def test_a_brief_log_has_temperature_similarities_gradient_scale_and_what_goes_wrong(tmp_path: Path) -> None:
    names = {"temperature", "positive_similarity", "negative_similarity", "gradient_scale"}
    wrong = {"floor_hits", "temperature_at_bound"}
    for strategy, more in (("macl", set()), ("macl:base_temperature=0.1,alpha=5,threshold=1", wrong)):
        with warnings.catch_warnings(action="ignore"):
            trainer = make(tmp_path, strategy, max_steps=1)
            trainer.train()
        of_trainer = {"loss", "grad_norm", "learning_rate", "epoch", "step"}
        assert trainer.state.log_history[0].keys() - of_trainer == names | more, strategy
    with pytest.raises(UnknownNameError, match="log_record='fall' must be one of brief, full"):
        make(tmp_path, "macl", keywords={"log_record": "fall"})


def test_a_log_due_after_an_evaluation_still_describes_the_last_training_batch(tmp_path: Path) -> None:
    keywords = {"eval_dataset": Data(16, sign=-1.0)}
    arguments: dict[str, Any] = {"num_train_epochs": 1, "logging_strategy": "epoch", "eval_strategy": "steps", "eval_steps": 8}
    trainer = make(tmp_path, f"fixed:temperature={TEMPERATURE}", dropout=0.0, keywords=keywords, **arguments)
    trainer.train()
    order = [next(key for key in ("eval_loss", "loss", "train_loss") if key in entry) for entry in trainer.state.log_history]
    assert order == ["eval_loss", "eval_loss", "loss", "train_loss"], "the first evaluation is of the untrained model"
    assert logged(trainer, "positive_similarity")[0] > 0.3
    trainer.evaluate()
    assert trainer.contrastive_loss.record.positive_similarity < 0


def test_the_record_is_built_only_when_something_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    record, numbers = tempplug.ContrastiveLoss.record.fget, tempplug.StepRecord.numbers

    def count_record(loss: tempplug.ContrastiveLoss) -> tempplug.StepRecord:
        read.append("record")
        return record(loss)

    def count_numbers(step: tempplug.StepRecord) -> dict[str, float]:
        read.append("numbers")
        return numbers(step)

    monkeypatch.setattr(tempplug.ContrastiveLoss, "record", property(count_record))
    monkeypatch.setattr(tempplug.StepRecord, "numbers", count_numbers)
    make(tmp_path, "fixed", num_train_epochs=1, logging_steps=4).train()
    assert read == ["record", "numbers"] * 2


def test_evaluation_reports_the_loss_of_the_views_in_evaluation_mode(tmp_path: Path) -> None:
    strategy, data = ScaleAndShift(), Data(16, seed=1)
    seen: list[EvalPrediction] = []

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(prediction)
        return {"count": float(len(prediction.label_ids))}

    keywords = {"eval_dataset": data, "compute_metrics": compute_metrics}
    trainer = make(tmp_path, cross_view(strategy), dropout=0.5, keywords=keywords, max_steps=3, label_names=["labels"])
    gradients: list[bool] = []
    hook = trainer.model.register_forward_hook(lambda module, inputs, output: gradients.append(output.requires_grad))
    metrics = trainer.evaluate()
    hook.remove()
    assert gradients == [False, False]
    model, loss = trainer.model.eval(), trainer.contrastive_loss
    a, b = model(data.a), model(data.b)
    expected = torch.stack([loss(a[:8], b[:8]), loss(a[8:], b[8:])]).mean()
    assert metrics["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["eval_count"] == 16
    torch.testing.assert_close(torch.from_numpy(seen[0].predictions[0]), a)
    torch.testing.assert_close(torch.from_numpy(seen[0].predictions[1]), b)
    assert strategy.observed == 0
    trainer.train()
    assert strategy.observed == 3
    trainer.evaluate()
    assert strategy.observed == 3
