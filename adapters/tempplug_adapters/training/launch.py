"""Reads the environment set by torchrun and accelerate before torch.distributed is initialised, and delays process exit."""

from __future__ import annotations

import os
import time


def first_process() -> bool:
    """Returns whether this process writes files and messages."""
    return int(os.environ.get("RANK", "0")) == 0


def let_threads_end() -> None:
    """Waits for half a second if several processes were launched."""
    # PyTorch 2.13 aborts a process whose interpreter ends while a thread of gloo still holds Python objects of the last
    # collective. The thread needs a millisecond to release them, and longer on a busy machine.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        time.sleep(0.5)
