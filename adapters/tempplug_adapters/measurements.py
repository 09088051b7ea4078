"""Statistics of the last training batch, as numbers for a log."""

from __future__ import annotations

from typing import Any

from torch import nn

from tempplug import StepRecord
from tempplug.plugins import registry

# A training has a loss of its own, and a loss that is not finite ends it.
_NOT_LOGGED = ("loss", "finite")


def numbers_of(record: StepRecord) -> dict[str, float]:
    """Returns the numbers of a record without its loss, ``temperature_mean`` as ``temperature``; waits for the device."""
    numbers = {name: value for name, value in record.numbers().items() if name not in _NOT_LOGGED}
    temperature = {"temperature": numbers.pop("temperature_mean")} if "temperature_mean" in numbers else {}
    return {**temperature, **numbers}


def measure(module: nn.Module, *, log: bool = False) -> dict[str, float]:
    """Returns the numbers of a module's last batch: from its method ``measure``, or else from its loss's record.

    Args:
        module: module of a method.
        log: whether to also pass the record to the ``tempplug_log`` plugins.
    """
    loss: Any = getattr(module, "loss_fn", None)
    if loss is not None and log:
        registry().log(loss.record)
    own: Any = getattr(module, "measure", None)
    if own is not None:
        return dict(own())
    return {} if loss is None else numbers_of(loss.record)
