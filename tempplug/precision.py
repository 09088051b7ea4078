"""The precision that everything behind the public door is computed in."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """Returns half-precision values in float32 and everything else as it is."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
