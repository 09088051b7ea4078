"""A tiny SentenceTransformer, made-up sentences and short trainings, for the tests of the sentence-transformers adapter."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor, nn

from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
    TemperatureSentenceTransformerTrainer,
)
from tempplug_adapters.sentence_transformers.library import modules

# of the tiny BERT's vocabulary
WORDS = ("man", "woman", "dog", "horse", "plays", "runs", "sleeps", "guitar", "piano", "park", "red", "green")
COLUMNS = ("anchor", "positive", "negative", "another_negative")


def tiny(folder: Path, *, dropout: bool = False) -> SentenceTransformer:
    """Returns the tiny BERT with mean pooling, on CPU."""
    transformer = modules.Transformer(str(folder))
    pooling = modules.Pooling(transformer.auto_model.config.hidden_size)
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    if not dropout:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout_prob"):  # attention of transformers 4
                module.dropout_prob = 0.0
    return model


def sentences(items: int, seed: int = 0, columns: int = 3) -> dict[str, list[str]]:
    """Returns random sentences by column, those of a row with words in common."""
    chance = random.Random(seed)
    rows = [[chance.choices(WORDS, k=chance.randint(3, 9)) for _ in range(columns)] for _ in range(items)]
    return {name: [" ".join(row[place]) for row in rows] for place, name in enumerate(COLUMNS[:columns])}


def features(model: SentenceTransformer, items: int = 12, columns: int = 3) -> list[dict[str, Tensor]]:
    """Returns a batch as a Trainer hands it to a loss."""
    return [read(model, column) for column in sentences(items, columns=columns).values()]


def read(model: SentenceTransformer, texts: list[str]) -> dict[str, Tensor]:
    """Returns the features of a column; before 5.4 the method has another name."""
    features: dict[str, Tensor] = (getattr(model, "preprocess", None) or model.tokenize)(texts)
    return features


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def watched(loss: nn.Module) -> list[list[dict[str, Tensor]]]:
    """Returns a list that will hold the batches with which the loss is called, as they were."""
    batches: list[list[dict[str, Tensor]]] = []
    loss.register_forward_pre_hook(lambda _, inputs: batches.append(copy.deepcopy(list(inputs[0]))))
    return batches


def make(
    folder: Path,
    model: SentenceTransformer,
    loss: nn.Module | dict[str, nn.Module],
    trainer_class: type[SentenceTransformerTrainer] = TemperatureSentenceTransformerTrainer,
    *,
    data: Any = None,
    keywords: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Returns a trainer over 64 triplets: eight steps an epoch, a log a step."""
    given: dict[str, Any] = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 0.01}
    given |= {"per_device_train_batch_size": 8, "save_strategy": "no", "logging_steps": 1}
    training = SentenceTransformerTrainingArguments(output_dir=str(folder), **{**given, **arguments})
    data = Dataset.from_dict(sentences(64)) if data is None else data
    return trainer_class(model, training, train_dataset=data, loss=loss, **(keywords or {}))


def through(door: str, folder: Path, model: SentenceTransformer, loss: Any, **arguments: Any) -> Any:
    """Returns a trainer: ours ("trainer"), the library's with our callback ("callback"), or the library's alone ("library")."""
    if door == "trainer":
        return make(folder, model, loss, **arguments)
    keywords = arguments.pop("keywords", {})
    ours = [TemperatureRankingCallback(loss)] if door == "callback" else []
    keywords = {**keywords, "callbacks": [*ours, *keywords.get("callbacks", [])]}
    return make(folder, model, loss, SentenceTransformerTrainer, keywords=keywords, **arguments)


def create(folder: Path, strategy: str, size: int | None = None, **options: Any) -> tuple[SentenceTransformer, Any]:
    """Returns the tiny model and its loss, cached in mini-batches of a size where one is given."""
    model = tiny(folder, **options)
    cached = {} if size is None else {"mini_batch_size": size}
    return model, (CachedTemperatureRankingLoss if cached else TemperatureRankingLoss)(model, strategy, **cached)


def log_scale(loss: Any) -> float:
    scale: float = loss.contrastive_loss.strategy.log_scale.item()
    return scale


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if isinstance(value, Tensor) else value == second[name], name
