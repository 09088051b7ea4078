"""One training on several processes: how they meet, which device each has, and what wraps the module.

It must not know methods or data. torchrun starts the processes; without it there is one, and everything here does nothing.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tempplug.errors import ConfigError

PATIENCE = timedelta(hours=12)
"""How long processes wait for one another: the first one measures alone, which takes hours on a million images."""


def active() -> bool:
    """Returns whether there is a process group of more than one process."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def rank() -> int:
    """Returns the number of this process, 0 where there is one."""
    return distributed.get_rank() if active() else 0


def world() -> int:
    """Returns the number of processes."""
    return distributed.get_world_size() if active() else 1


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Lets the processes that torchrun started meet, for as long as the block runs; gives the device of this one.

    Args:
        device: ``cuda`` gives every process a GPU of its own and NCCL, another device serves all and they meet by gloo.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or distributed.is_initialized():
        yield device
        return
    own = device
    if device.type == "cuda":
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield own
    finally:
        distributed.destroy_process_group()


def distribute(module: nn.Module, *, sync_batch_norm: bool, find_unused: bool, device: torch.device) -> nn.Module:
    """Returns the module as the processes train it together; the module itself where there is one process.

    Buffers are not sent around: queues and temperatures are equal on all processes by themselves, and running statistics are
    only used in evaluation, which the first process does.

    Args:
        module: the same on all processes.
        sync_batch_norm: normalise over the batches of all processes.
        find_unused: some parameters may have no part in the loss.
        device: where it is.

    Raises:
        ConfigError: ``sync_batch_norm`` without a GPU.
    """
    if not active():
        return module
    if sync_batch_norm:
        if device.type != "cuda":
            raise ConfigError("sync_batch_norm=True needs GPUs: leave it out on the CPU.")
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    # torch 2.13 has a new name for it and warns of the old one
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    buffers: dict[str, Any] = {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
    return DistributedDataParallel(
        module, device_ids=[device] if device.type == "cuda" else None, find_unused_parameters=find_unused, **buffers
    )


def mean(value: Tensor) -> Tensor:
    """Returns the mean of a detached tensor over the processes.

    Args:
        value: of one shape on all of them.
    """
    if not active():
        return value
    total = value.detach().clone()
    distributed.all_reduce(total)
    return total / world()


def wait() -> None:
    """Returns when all processes have come this far."""
    if active():
        distributed.barrier()
