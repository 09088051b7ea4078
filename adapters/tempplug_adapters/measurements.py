"""Statistics of the last training batch, as numbers for a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tempplug.errors import UnknownNameError, nearest
from tempplug.plugins import registry

if TYPE_CHECKING:
    from torch import nn

    from tempplug import StepRecord

RECORDS = ("brief", "full")
"""How much of a record is logged, see `logged`."""
BRIEF = ("temperature", "positive_similarity", "negative_similarity", "gradient_scale", "negatives_left_out", "negative_weight")
# Counts of faults, and the share of temperatures at a bound.
_ZERO = ("temperature_at_bound", "zero_norm_rows", "anchors_without_negative", "floor_hits")
# The Trainer logs its own loss, and a loss that is not finite ends the training.
_NOT_LOGGED = ("loss", "finite")


def check_record(log_record: str) -> str:
    """Returns ``log_record``; raises UnknownNameError unless it is one of `RECORDS`."""
    if log_record not in RECORDS:
        known = ", ".join(RECORDS)
        raise UnknownNameError(f"log_record='{log_record}' must be one of {known}.{nearest(str(log_record), RECORDS)}")
    return log_record


def numbers_of(record: StepRecord) -> dict[str, float]:
    """Returns the numbers of a record without its loss, ``temperature_mean`` as ``temperature``; waits for the device."""
    numbers = {name: value for name, value in record.numbers().items() if name not in _NOT_LOGGED}
    temperature = {"temperature": numbers.pop("temperature_mean")} if "temperature_mean" in numbers else {}
    return {**temperature, **numbers}


def logged(numbers: Mapping[str, float], log_record: str) -> dict[str, float]:
    """Returns the numbers of a batch that are logged.

    Counts of zero-norm rows, anchors without negatives and floor hits, and the share of temperatures at a bound, are left out
    while they are 0; the smallest and largest temperature, if they are equal.

    Args:
        numbers: result of `numbers_of`, and further numbers under other names, which are all logged.
        log_record: ``full``, or ``brief``: only temperature, similarities, gradient scale, and the share of negatives that
            terms leave out.

    >>> logged({"temperature": 0.1, "temperature_min": 0.1, "temperature_max": 0.1, "infonce": 2.0, "floor_hits": 0}, "full")
    {'temperature': 0.1, 'infonce': 2.0}
    >>> logged({"temperature": 0.1, "infonce": 2.0, "floor_hits": 3, "mlm_loss": 4.0}, "brief")
    {'temperature': 0.1, 'floor_hits': 3, 'mlm_loss': 4.0}
    """
    from tempplug import StepRecord

    constant = {name for name in _ZERO if not numbers.get(name)}
    if numbers.get("temperature_min") == numbers.get("temperature_max"):
        constant |= {"temperature_min", "temperature_max"}
    if log_record == "brief":
        constant |= {each.name for each in fields(StepRecord)} - {*BRIEF, *_ZERO}
    return {name: value for name, value in numbers.items() if name not in constant}


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
