"""The precision that everything behind the public door is computed in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

HALF = frozenset({torch.float16, torch.bfloat16})


def at_least_float32(values: Tensor) -> Tensor:
    """Returns half-precision values in float32 and everything else as it is."""
    return values.float() if values.dtype.itemsize < 4 else values


def plain_precision(device: str) -> AbstractContextManager[Any]:
    """Returns a context without autocast: half precision loses whole nats at small temperatures."""
    device = "cpu" if device == "meta" else device
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
