"""SimCSE: sentence embeddings from BERT- and RoBERTa-family encoders, with any temperature strategy.

Importing this package loads no framework; ``tempplug train simcse`` is its command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tempplug_adapters.simcse.arguments import DataArguments, ModelArguments, SimCSETrainingArguments
    from tempplug_adapters.simcse.model import SimCSEModel
    from tempplug_adapters.simcse.train import train_simcse
    from tempplug_adapters.simcse.trainer import SimCSETrainer

_HOMES = {
    "DataArguments": "arguments",
    "ModelArguments": "arguments",
    "SimCSEModel": "model",
    "SimCSETrainer": "trainer",
    "SimCSETrainingArguments": "arguments",
    "train_simcse": "train",
}

__all__ = ["DataArguments", "ModelArguments", "SimCSEModel", "SimCSETrainer", "SimCSETrainingArguments", "train_simcse"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
