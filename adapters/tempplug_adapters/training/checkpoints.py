"""Where an interrupted run goes on: the newest checkpoint that was written to its end, of the same settings.

This module must not know any method.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import make_folder, write_json

STATE_FILE = "training_state.pt"
"""In a checkpoint: the state of the module, its loss included."""
SETTINGS_FILE = "settings.json"
"""In a checkpoint and in the output folder: what the run was started with."""
# The Trainer writes these too, its state last of all.
_TRAINER_STATE = "trainer_state.json"
COMPLETE = (STATE_FILE, SETTINGS_FILE, "optimizer.pt", "scheduler.pt", _TRAINER_STATE)


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Returns the complete checkpoints of a folder, oldest first; one that was being written when a run died is left out."""
    found = [each for each in Path(output_dir).glob("checkpoint-*") if each.name.removeprefix("checkpoint-").isdigit()]
    return sorted(filter(_complete, found), key=lambda each: int(each.name.removeprefix("checkpoint-")))


def _complete(folder: Path) -> bool:
    if not all((folder / name).is_file() for name in COMPLETE):
        return False
    try:
        json.loads((folder / _TRAINER_STATE).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def resume_point(output_dir: str | Path, asked: str | None) -> Path | None:
    """Returns the checkpoint to resume from, or None for a new run.

    To be asked before any work: the output folder is made, so that a run does not end where it should be written.

    Args:
        output_dir: of the run.
        asked: ``--resume-from-checkpoint``: a folder, ``auto`` (or ``true``) for the newest where there is one, None (or
            ``false``) for a new run.

    Raises:
        ConfigError: a new run, but the folder holds the checkpoints of an earlier one.
        DataError: the folder asked for is no complete checkpoint, or the output folder cannot be written.
    """
    make_folder(output_dir)
    present = checkpoints(output_dir)
    if asked is None or asked.lower() == "false":
        if present:
            raise ConfigError(
                f"output_dir='{output_dir}' holds {present[-1].name} of an earlier run: pass --resume-from-checkpoint auto "
                "to go on with it, or choose another folder."
            )
        return None
    if asked.lower() in ("auto", "true"):
        return present[-1] if present else None
    if not _complete(Path(asked)):
        raise DataError(f"resume_from_checkpoint='{asked}' is not a complete checkpoint, a folder with {', '.join(COMPLETE)}.")
    return Path(asked)


def check_settings(checkpoint: Path, settings: Mapping[str, Any]) -> None:
    """Makes sure that a checkpoint is of the same settings.

    Args:
        checkpoint: folder.
        settings: of the run that would go on with it, as JSON holds them; their ``recipe`` by name too.

    Raises:
        ConfigError: one differs; the message names it with both values.
        DataError: the checkpoint's cannot be read.
    """
    try:
        theirs = json.loads((checkpoint / SETTINGS_FILE).read_text(encoding="utf-8"))
        ours, theirs = _flat(json.loads(json.dumps(settings))), _flat(theirs)
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise DataError(
            f"{checkpoint / SETTINGS_FILE} is damaged: {error}. Delete {checkpoint.name} to go on without it."
        ) from error
    for name in (*ours, *(theirs.keys() - ours.keys())):
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"{name}={ours.get(name)} differs from the checkpoint's {theirs.get(name)}: pass the settings that it was "
                "trained with, or choose another output folder."
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in settings.items() if name != "recipe"}, **settings["recipe"]}


def write_settings(folder: str | Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a run into a folder.

    Raises:
        DataError: the file cannot be written.
    """
    write_json(Path(folder) / SETTINGS_FILE, settings)


def weights_checksum(state: Mapping[str, Tensor]) -> str:
    """Returns a word that is another one where a name, a shape, a type or a bit of the weights is: 16 hexadecimal digits.

    Args:
        state: of a module, ``state_dict()``; on which device it is does not matter.
    """
    found = hashlib.sha256()
    for name, values in state.items():
        plain = values.detach().cpu().contiguous()
        found.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
