"""Hugging Face: flags for `HfArgumentParser`, a mixin for `Trainer` subclasses, and the callbacks that it installs.

All adapters that train with a `Trainer` share them. Importing this package loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tempplug_adapters.huggingface.arguments import TemperatureArguments
    from tempplug_adapters.huggingface.callback import GainCallback, TemperatureCallback
    from tempplug_adapters.huggingface.trainer import TemperatureTrainerMixin, Views

_HOMES = {
    "GainCallback": "callback",
    "TemperatureArguments": "arguments",
    "TemperatureCallback": "callback",
    "TemperatureTrainerMixin": "trainer",
    "Views": "trainer",
}

__all__ = ["GainCallback", "TemperatureArguments", "TemperatureCallback", "TemperatureTrainerMixin", "Views"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
