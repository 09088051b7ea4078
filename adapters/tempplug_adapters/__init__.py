"""Attachments of tempplug to frameworks, one package each; importing this loads none of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tempplug_adapters.training.trained import Trained


def load(folder: str | Path, method: Any = None, *, trust: bool = False) -> Trained:
    """Returns what ``tempplug train`` left in a folder, with ``embed`` and ``evaluate``; see `training.trained.load`."""
    from tempplug_adapters.training.trained import load as load_folder

    return load_folder(folder, method, trust=trust)
