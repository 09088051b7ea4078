"""Code shared by commands: data folder, device and display of warnings."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tempplug.errors import ConfigError


def data_folder(given: str | None) -> Path | None:
    """Returns the folder of ``--data-dir`` or else TEMPPLUG_DATA, or None; raises ConfigError if it is not a folder."""
    name = given or os.environ.get("TEMPPLUG_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise ConfigError(f"{'--data-dir' if given else 'TEMPPLUG_DATA'} {name} is not a folder.")
    return Path(name)


def choose_device(name: str) -> torch.device:
    """Returns the device of that name; ``auto`` selects a GPU if there is one.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, or ``cuda:N`` for GPU number N, counted from 0.

    Raises:
        ConfigError: the device does not exist.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,9})?", name):
        raise ConfigError(f"device='{name}' must be auto, cpu, cuda or cuda:N.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name != "cpu" and int(name.partition(":")[2] or 0) >= gpus:
        raise ConfigError(f"device='{name}' is not available ({gpus} GPUs found): pass --device cpu, or omit it.")
    return torch.device(name)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Prints warnings as ``warning: …`` during the block, without source locations."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *place, **more: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextmanager
def quietly() -> Iterator[None]:
    """Prints warnings plainly and hides progress bars of weights during the block."""
    with plain_warnings(), without_loading_bars():
        yield


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Hides transformers' progress bars for reading and writing weights during the block; those of downloads are kept."""
    from huggingface_hub import utils
    from transformers.utils import logging

    bars: Any = logging
    hub: Any = utils
    shown, downloads = bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    bars.disable_progress_bar()
    if downloads:
        hub.enable_progress_bars()  # transformers has hidden them too
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
