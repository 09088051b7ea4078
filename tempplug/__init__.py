"""tempplug: every published temperature strategy for contrastive losses, behind one name.

``import tempplug`` loads no torch; the names below are imported on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tempplug import metrics, negatives, objectives, strategies, testing
    from tempplug.arguments import add_temperature_arguments
    from tempplug.create import create_negatives, create_objective, create_strategy
    from tempplug.loss import ContrastiveLoss
    from tempplug.negatives.base import NegativeTerm, Pairs, TermMap
    from tempplug.objectives.base import Objective
    from tempplug.preset_losses import preset, presets
    from tempplug.search import SearchSpace, search_space
    from tempplug.strategies.base import Strategy
    from tempplug.strategies.maps import LogitMap
    from tempplug.types import Batch, RowStatistics, StepRecord

_HOMES = {
    "Batch": "tempplug.types",
    "ContrastiveLoss": "tempplug.loss",
    "LogitMap": "tempplug.strategies.maps",
    "NegativeTerm": "tempplug.negatives.base",
    "Objective": "tempplug.objectives.base",
    "Pairs": "tempplug.negatives.base",
    "RowStatistics": "tempplug.types",
    "SearchSpace": "tempplug.search",
    "StepRecord": "tempplug.types",
    "Strategy": "tempplug.strategies.base",
    "TermMap": "tempplug.negatives.base",
    "add_temperature_arguments": "tempplug.arguments",
    "create_negatives": "tempplug.create",
    "create_objective": "tempplug.create",
    "create_strategy": "tempplug.create",
    "preset": "tempplug.preset_losses",
    "presets": "tempplug.preset_losses",
    "search_space": "tempplug.search",
}
_MODULES = ("metrics", "negatives", "objectives", "strategies", "testing")

__all__ = [
    "Batch",
    "ContrastiveLoss",
    "LogitMap",
    "NegativeTerm",
    "Objective",
    "Pairs",
    "RowStatistics",
    "SearchSpace",
    "StepRecord",
    "Strategy",
    "TermMap",
    "__version__",
    "add_temperature_arguments",
    "create_negatives",
    "create_objective",
    "create_strategy",
    "metrics",
    "negatives",
    "objectives",
    "preset",
    "presets",
    "search_space",
    "strategies",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tempplug.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tempplug' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
