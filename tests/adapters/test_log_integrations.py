"""The record of the loss reaches TensorBoard, W&B, MLflow and Trackio by the Trainer's ``report_to``."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from huggingface_toys import make as make_trainer
from method_toys import METHOD
from sentence_transformer_toys import create, make
from sentence_transformers import SentenceTransformerTrainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers.integrations import integration_utils

RECORD = ("temperature", "positive_similarity", "negative_similarity", "gradient_scale")
STEPS: dict[str, Any] = {"max_steps": 2, "logging_steps": 1}


def scalars(folder: Path) -> dict[str, list[float]]:
    """Returns the scalars of TensorBoard's event files below a folder, by tag."""
    found: dict[str, list[float]] = {}
    for file in folder.rglob("events.out.tfevents.*"):  # an evaluation after the training begins another one
        events = EventAccumulator(str(file)).Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend(each.value for each in events.Scalars(tag))
    return found


@pytest.mark.parametrize("door", ["sentence-transformers", "mixin", "command"])
def test_tensorboard_has_the_record_of_every_log(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    if door == "sentence-transformers":
        make(tmp_path, *create(tiny_bert, "fixed"), report_to="tensorboard", **STEPS).train()
    elif door == "mixin":
        make_trainer(tmp_path, "fixed:temperature=0.05", report_to="tensorboard", **STEPS).train()
    else:
        words = "--temperature-strategy fixed:temperature=0.05 --report-to tensorboard --max-steps 2 --logging-steps 1"
        assert METHOD(["--dataset", "points", "--output-dir", str(tmp_path), *words.split()]) == 0
    found = scalars(tmp_path)
    assert found["train/temperature"] == pytest.approx([0.05, 0.05])
    assert [len(found[f"train/{name}"]) for name in RECORD] == [2] * len(RECORD)
    assert all(-1 <= value <= 1 for value in found["train/positive_similarity"])


def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, float]]]:
    """Puts modules that note what they are to log in the place of W&B, MLflow and Trackio; returns the notes by module."""
    seen: dict[str, list[dict[str, float]]] = defaultdict(list)
    modules = {name: MagicMock(name=name) for name in ("wandb", "mlflow", "trackio")}
    modules["wandb"].log = lambda entry, **more: seen["wandb"].append(entry)
    modules["trackio"].log = lambda entry, **more: seen["trackio"].append(entry)
    modules["mlflow"].log_metrics = lambda metrics, **more: seen["mlflow"].append(metrics)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(integration_utils, f"is_{name}_available", lambda: True)
    for callback in (integration_utils.WandbCallback, integration_utils.MLflowCallback, integration_utils.TrackioCallback):
        monkeypatch.setattr(callback, "setup", begin)
    return seen


def begin(callback: Any, *args: Any, **kwargs: Any) -> None:
    """Stands for what an integration does with its service before the first log."""
    callback._initialized, callback._async_log = True, False


def test_other_integrations_have_the_record_of_every_log(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stand_ins(monkeypatch)
    trainer = make(tmp_path, *create(tiny_bert, "fixed"), report_to=["wandb", "mlflow", "trackio"], **STEPS)
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    for name, prefix in (("wandb", "train/"), ("mlflow", ""), ("trackio", "train/")):
        logged = [entry for entry in seen[name] if f"{prefix}loss" in entry]
        assert len(logged) == 2, name
        for entry, written in zip(logged, history, strict=True):
            assert {each: entry[f"{prefix}{each}"] for each in RECORD} == {each: written[each] for each in RECORD}


def test_a_loss_without_our_trainer_says_that_its_temperature_is_not_logged(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, loss = create(tiny_bert, "fixed")
    trainer = make(tmp_path, model, loss, SentenceTransformerTrainer, **STEPS)
    trainer.train()
    said = capsys.readouterr().err
    spec = "strategy fixed:temperature=0.05, objective infonce, layout cross-view"
    assert said.count(f"{spec}; not in the logs: TemperatureSentenceTransformerTrainer adds its temperature") == 1
    assert not any("temperature" in entry for entry in trainer.state.log_history)
    make(tmp_path, *create(tiny_bert, "fixed"), **STEPS).train()
    assert "not in the logs" not in capsys.readouterr().err
