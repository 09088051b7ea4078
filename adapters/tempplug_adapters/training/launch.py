"""Which process of a launch this is, as torchrun and accelerate tell it, before torch.distributed knows."""

from __future__ import annotations

import os


def first_process() -> bool:
    """Returns whether this is the process that writes and speaks for all."""
    return int(os.environ.get("RANK", "0")) == 0
