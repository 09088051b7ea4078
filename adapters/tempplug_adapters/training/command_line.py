"""What training commands share: where data are, which device to use, how metrics are written.

It must not know any particular command.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from tempplug.errors import ConfigError


def data_folder(given: str | None) -> Path | None:
    """Returns the folder of ``--data-dir``, else of the environment's TEMPPLUG_DATA; None where neither is set.

    Raises:
        ConfigError: it is not a folder.
    """
    name = given or os.environ.get("TEMPPLUG_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise ConfigError(f"{'--data-dir' if given else 'TEMPPLUG_DATA'} {name} is not a folder.")
    return Path(name)


def choose_device(name: str) -> torch.device:
    """Returns the device of that name; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device='{name}' must be auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device='{name}' is not there: pass --device cpu.")
    return device


def write_metrics(path: Path, metrics: dict[str, Any]) -> None:
    """Writes the metrics as JSON, all of them or none."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
