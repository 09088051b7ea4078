"""What commands share: where data are, which device to use, how warnings look.

It must not know any particular command.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tempplug.errors import ConfigError


def data_folder(given: str | None) -> Path | None:
    """Returns the folder of ``--data-dir``, else of TEMPPLUG_DATA, else None; raises ConfigError where it is no folder."""
    name = given or os.environ.get("TEMPPLUG_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise ConfigError(f"{'--data-dir' if given else 'TEMPPLUG_DATA'} {name} is not a folder.")
    return Path(name)


def choose_device(name: str) -> torch.device:
    """Returns the device of that name; ``auto`` is a GPU where there is one.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, or ``cuda:N`` for the GPU of that number, from 0.

    Raises:
        ConfigError: there is no such device.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,9})?", name):
        raise ConfigError(f"device='{name}' must be auto, cpu, cuda or cuda:N.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name != "cpu" and int(name.partition(":")[2] or 0) >= gpus:
        raise ConfigError(f"device='{name}' is not there, there are {gpus} GPUs: pass --device cpu, or leave it out.")
    return torch.device(name)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Shows warnings as lines ``warning: …`` for as long as the block runs: a command's user has no use for places in code."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *place, **more: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before
