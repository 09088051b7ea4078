"""What torchrun and accelerate tell each process that they launch, before torch.distributed knows; and how it ends."""

from __future__ import annotations

import os
import time


def first_process() -> bool:
    """Returns whether this is the process that writes and speaks for all."""
    return int(os.environ.get("RANK", "0")) == 0


def let_threads_end() -> None:
    """Waits half a second where several processes were launched."""
    # PyTorch 2.13 aborts a process whose interpreter ends while a thread of gloo still holds Python objects of the last
    # collective. The thread needs a millisecond to release them, and longer on a busy machine.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        time.sleep(0.5)
