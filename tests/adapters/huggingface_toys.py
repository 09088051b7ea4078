"""A tiny encoder, data set and Trainers, and short runs of them, for the tests of the Hugging Face adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

import tempplug
from tempplug.strategies.maps import ScaleMap
from tempplug_adapters.huggingface import TemperatureTrainerMixin

TEMPERATURE = 0.2


class Encoder(nn.Module):
    """Takes anything beside ``x`` too, so that the Trainer believes that it may scale the loss."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 8))

    def forward(self, x: Tensor, **ignored: Any) -> Tensor:
        return self.layers(x)


class Data(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Pairs of noisy copies; ``labels`` are there because users have them, not because the loss needs them."""

    def __init__(self, items: int = 64, seed: int = 0, sign: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.a = torch.randn(items, 8, generator=generator)
        self.b = sign * self.a + 0.5 * torch.randn(items, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"a": self.a[index], "b": self.b[index], "labels": torch.tensor(index)}


class MyTrainer(TemperatureTrainerMixin, Trainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(model(torch.cat([inputs["a"], inputs["b"]])).chunk(2))


class PlainTrainer(Trainer):
    """What a user would write without tempplug."""

    loss_is_scaled_for_ga = False

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        view_a, view_b = model(torch.cat([inputs["a"], inputs["b"]])).chunk(2)
        similarity = F.normalize(view_a) @ F.normalize(view_b).T
        return F.cross_entropy(similarity / TEMPERATURE, torch.arange(len(view_a)))


class ScaleAndShift(tempplug.Strategy):
    """Two parameters, of which weight decay may have one; counts the calls of `observe`."""

    name = "scale-and-shift"

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        self.log_gain = nn.Parameter(torch.tensor(1.0))
        self.observed = 0

    def prepare(self, batch: tempplug.Batch) -> tempplug.LogitMap:
        return ScaleMap((self.log_scale + self.log_gain).exp())

    def observe(self, batch: tempplug.Batch, statistics: tempplug.RowStatistics) -> None:
        self.observed += 1

    def no_weight_decay(self) -> set[str]:
        return {"log_scale"}


def cross_view(
    strategy: str | tempplug.Strategy = f"fixed:temperature={TEMPERATURE}", objective: str = "infonce"
) -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(strategy, objective, layout="cross-view")


def make(
    folder: Path,
    loss: tempplug.ContrastiveLoss | str | None,
    trainer_class: type[Trainer] = MyTrainer,
    *,
    model_seed: int = 0,
    dropout: float = 0.1,
    keywords: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Returns a trainer; ``loss`` None is for those that take none."""
    given = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 0.02, "save_strategy": "no"}
    given["remove_unused_columns"] = False
    training = TrainingArguments(output_dir=str(folder), **{**given, "logging_steps": 1, **arguments})
    torch.manual_seed(model_seed)
    keywords = {"model": Encoder(dropout), "train_dataset": Data(), **(keywords or {})}
    if loss is not None:
        keywords["contrastive_loss"] = cross_view(loss) if isinstance(loss, str) else loss
    return trainer_class(args=training, **keywords)


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if isinstance(value, Tensor) else value == second[name], name
