"""The callback and the groups for Lightning, in trainings of a linear encoder on points."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from objective_toys import BIAS, Biased, assert_learns
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.plugins import registry
from tempplug_adapters import lightning as adapter
from tempplug_adapters.lightning import TemperatureCallback, losses_of, optimizer_groups

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(many workers|logging interval)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


SILENT = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


class Points(pl.LightningModule):
    """Points to the loss, which is also evaluated; notes the temperature of every batch."""

    def __init__(self, strategy: str = "fixed", *, second: str | None = None, objective: Any = "infonce") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(6, 4)
        self.loss_fn = tempplug.ContrastiveLoss(strategy, objective)
        if second is not None:
            self.other = tempplug.ContrastiveLoss(second)
        self.temperatures: list[float] = []

    def contrast(self, batch: list[Tensor]) -> Tensor:
        view_a, view_b = (self.encoder(view) for view in batch)
        loss = self.loss_fn(view_a, view_b)
        return loss + self.other(view_a, view_b) if hasattr(self, "other") else loss

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        loss = self.contrast(batch)
        self.temperatures.append(float(self.loss_fn.record.temperature_mean))
        return loss

    def validation_step(self, batch: list[Tensor], number: int) -> None:
        self.contrast(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(optimizer_groups(self), lr=0.05, weight_decay=0.5)


class Log(DummyLogger):
    """Keeps what is logged, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, float]] = {}

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rows.setdefault(step, {}).update(metrics)


def loader(count: int = 20, batch_size: int = 5) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(count, 6, generator=generator)
    return DataLoader(TensorDataset(points, points + 0.3 * torch.randn(count, 6, generator=generator)), batch_size=batch_size)


def fit(
    module: Points, folder: Path, *, checkpoint: Path | None = None, batches: DataLoader[Any] | None = None, **more: Any
) -> pl.Trainer:
    more.setdefault("callbacks", [TemperatureCallback()])
    options = {"accelerator": "cpu", "default_root_dir": folder, "max_epochs": 3, "log_every_n_steps": 1, **SILENT, **more}
    trainer = pl.Trainer(logger=Log(), **options)
    trainer.fit(module, batches or loader(), batches or loader(), ckpt_path=checkpoint)
    return trainer


def cosine(epoch: float, period: float) -> float:
    return 0.1 + 0.9 * (1 + math.cos(2 * math.pi * epoch / period)) / 2


def test_deterministic_true_trains_to_the_same_weights(tmp_path: Path) -> None:
    """With batches large enough that the loss sets single pairs of a tile to zero."""
    weights = []
    for deterministic in (False, True):
        module = Points("macl")
        try:
            fit(module, tmp_path, batches=loader(200, 100), max_epochs=1, deterministic=deterministic)
        finally:
            torch.use_deterministic_algorithms(False)
        weights.append(module.encoder.weight.detach().clone())
    assert torch.equal(*weights)


STOPPED = {"max_epochs": -1, "max_steps": 10}


@pytest.mark.parametrize(
    ("given", "more", "epochs", "said"),
    [
        # four batches an epoch: three epochs are 12 steps, or 6 of two batches
        (None, {}, 3, ""),
        (None, STOPPED, 2.5, "2 different temperatures, .* has 2 steps, the training 10. "),
        (1, {}, 3, "3 different temperatures, from 0.1 to 1, .* has 4 steps, the training 12. The remedy: period=3 or longer"),
        (1, {"accumulate_grad_batches": 2}, 3, "2 different temperatures, from 0.1 to 1, .* has 2 steps, the training 6. "),
        (3, {}, 3, ""),
    ],
)
def test_a_schedule_goes_by_the_training_and_warns_once_if_most_of_it_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: int | None, more: dict[str, Any], epochs: float, said: str
) -> None:
    module = Points("schedule" if given is None else f"schedule:period={given}")
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        fit(module, tmp_path, **more)
    # all micro-batches of a step have one progress
    accumulated = more.get("accumulate_grad_batches", 1)
    begins = [batch // 4 + (batch % 4 - batch % 4 % accumulated) / 4 for batch in range(round(4 * epochs))]
    expected = [cosine(epoch, epochs / 5 if given is None else given) for epoch in begins]
    assert module.temperatures == pytest.approx(expected, rel=1e-5)
    found = [message for record in caplog.records if "different" in (message := record.getMessage())]
    assert len(found) == bool(said)
    if said:
        assert re.search(said, found[0]), found
        assert f" {len({round(each, 4) for each in module.temperatures})} different" in found[0]


def test_the_record_is_logged_when_a_log_is_due_and_after_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, told = Points("learnable:initial_temperature=0.2"), []
    monkeypatch.setattr(registry(), "log", told.append)
    trainer = fit(module, tmp_path, log_every_n_steps=3)
    assert [module.temperatures.index(float(record.temperature_mean)) for record in told] == [2, 3, 5, 7, 8, 11]
    rows = trainer.logger.rows
    assert sorted(rows) == [2, 5, 8, 11]
    for step, row in rows.items():
        assert row["temperature"] == pytest.approx(module.temperatures[step])
    names = {"temperature", "positive_similarity", "negative_similarity", "gradient_scale"}
    assert rows[2].keys() & {each.name for each in fields(tempplug.StepRecord)} == names - {"temperature"}
    module = Points("learnable:initial_temperature=0.2")
    full = fit(module, tmp_path / "full", log_every_n_steps=3, callbacks=[TemperatureCallback("full")]).logger.rows
    assert {*names, "infonce", "effective_negatives"} <= full[2].keys()
    with pytest.raises(UnknownNameError, match=r"log_record='ful' must be one of brief, full\. Did you mean 'full'"):
        TemperatureCallback("ful")
    assert rows[2]["temperature"] != rows[11]["temperature"]
    assert float(trainer.callback_metrics["temperature"]) == pytest.approx(module.temperatures[-1])
    seldom = Points("learnable:initial_temperature=0.2")
    last = fit(seldom, tmp_path, log_every_n_steps=50).callback_metrics
    assert float(last["temperature"]) == pytest.approx(seldom.temperatures[-1])


def test_several_losses_are_logged_under_their_names(tmp_path: Path) -> None:
    rows = fit(Points("macl", second="fixed:temperature=0.4"), tmp_path, max_epochs=1).logger.rows
    assert rows[0]["other/temperature"] == pytest.approx(0.4)
    assert "loss_fn/temperature" in rows[0]
    assert "temperature" not in rows[0]
    with pytest.raises(ConfigError, match=r"Linear holds no tempplug\.ContrastiveLoss: make it an attribute"):
        losses_of(nn.Linear(2, 2))


def test_temperatures_learn_at_their_own_rate_without_decay(tmp_path: Path) -> None:
    module = Points("learnable:initial_temperature=0.2")
    model, temperatures = optimizer_groups(module)
    assert [id(each) for each in model["params"]] == [id(each) for each in module.encoder.parameters()]
    assert temperatures["params"] == [module.loss_fn.strategy.log_scale]
    assert (temperatures["weight_decay"], temperatures["lr"]) == (0.0, 0.01)
    assert len(optimizer_groups(Points("macl"))) == 1
    shared = optimizer_groups(Points("learnable:learning_rate=none"))[1]
    assert shared.keys() == {"params", "weight_decay"}
    fit(module, tmp_path, max_epochs=1, max_steps=1)
    # Adam's first step is the learning rate; decay would take half of ln 5 times the rate more
    assert abs(module.loss_fn.strategy.log_scale.item() - math.log(5)) == pytest.approx(0.01, rel=1e-3)


def test_a_training_goes_on_from_its_checkpoint_and_logs_what_an_objective_learns(tmp_path: Path) -> None:
    whole, first, resumed = (Points("schedule:period=2", objective=Biased(bias)) for bias in (0.5, 0.5, -3.0))
    rows = fit(whole, tmp_path).logger.rows
    assert_learns([row[BIAS] for _, row in sorted(rows.items()) if BIAS in row])
    fit(first, tmp_path, max_epochs=2).save_checkpoint(tmp_path / "two.ckpt")
    fit(resumed, tmp_path, checkpoint=tmp_path / "two.ckpt")
    assert first.temperatures + resumed.temperatures == whole.temperatures
    assert all(torch.equal(*each) for each in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_the_other_spelling_of_lightning_takes_the_callback_too(tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")
    spec = importlib.util.spec_from_file_location("adapter_of_both", adapter.__file__)
    both = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(both)
    assert issubclass(both.TemperatureCallback, other.Callback)
    assert issubclass(both.TemperatureCallback, pl.Callback)

    class Theirs(other.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.points = Points("schedule")
            self.training_step, self.configure_optimizers = self.points.training_step, self.points.configure_optimizers

    module, log = Theirs(), Log()
    more = {"accelerator": "cpu", "default_root_dir": tmp_path, "max_epochs": 2, "log_every_n_steps": 1, **SILENT}
    other.Trainer(logger=log, callbacks=[both.TemperatureCallback()], **more).fit(module, loader())
    expected = [cosine(batch / 4, 2 / 5) for batch in range(8)]
    assert module.points.temperatures == pytest.approx(expected, rel=1e-5)
    assert [log.rows[step]["temperature"] for step in range(8)] == pytest.approx(expected, rel=1e-5)
