"""sentence-transformers: ranking losses with any temperature strategy, a Trainer and a callback that manage them, and centring.

Importing this package loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tempplug_adapters.sentence_transformers.cached import CachedTemperatureRankingLoss
    from tempplug_adapters.sentence_transformers.centring import subtract_mean
    from tempplug_adapters.sentence_transformers.columns import NamedColumns
    from tempplug_adapters.sentence_transformers.loss import TemperatureRankingLoss
    from tempplug_adapters.sentence_transformers.trainer import (
        TemperatureRankingCallback,
        TemperatureSentenceTransformerTrainer,
    )

_HOMES = {
    "CachedTemperatureRankingLoss": "cached",
    "NamedColumns": "columns",
    "TemperatureRankingCallback": "trainer",
    "TemperatureRankingLoss": "loss",
    "TemperatureSentenceTransformerTrainer": "trainer",
    "subtract_mean": "centring",
}

LIBRARY_TEMPERATURE = 0.05
"""1 / 20, from the library's default scale; default options of strategies are set around it."""

__all__ = [
    "LIBRARY_TEMPERATURE",
    "CachedTemperatureRankingLoss",
    "NamedColumns",
    "TemperatureRankingCallback",
    "TemperatureRankingLoss",
    "TemperatureSentenceTransformerTrainer",
    "subtract_mean",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
