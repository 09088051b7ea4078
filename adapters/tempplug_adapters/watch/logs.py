"""Reads the logs of a training folder: those written during training, or those of the newest checkpoint.

It needs no framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tempplug.errors import DataError

LOG_FILE, STATE_FILE, SETTINGS_FILE = "log.jsonl", "trainer_state.json", "settings.json"


@dataclass(frozen=True)
class Logs:
    """The logs of a training so far.

    Attributes:
        entries: logs of steps with a loss, in order.
        evaluation: the newest value of each metric.
        strategy: resolved spec string, if the folder contains it.
        max_steps: number of steps of the whole training, 0 if unknown.
        ended: whether the training has ended.
    """

    entries: list[Mapping[str, Any]] = field(default_factory=list)
    evaluation: dict[str, float] = field(default_factory=dict)
    strategy: str | None = None
    max_steps: int = 0
    ended: bool = False


def read_logs(folder: Path) -> Logs:
    """Returns the logs of a training; empty if it has not begun.

    Args:
        folder: the ``output_dir`` of a tempplug command or of a Trainer with the mixin (``log.jsonl``); for any other Trainer,
            the newest checkpoint is read.

    Raises:
        DataError: the folder does not exist, or a file in it is not a valid log.
    """
    if not folder.is_dir():
        raise DataError(f"output_dir={folder} does not exist or is no folder.")
    if (folder / LOG_FILE).is_file():
        lines = _lines(folder / LOG_FILE)
        ended = any(each.get("ended") for each in lines)
        max_steps = max((int(each.get("max_steps", 0)) for each in lines), default=0)
    else:
        states = [file for file in (*folder.glob(f"checkpoint-*/{STATE_FILE}"), folder / STATE_FILE) if file.is_file()]
        state = _json(max(states, key=lambda file: file.stat().st_mtime)) if states else {}
        lines, max_steps = list(state.get("log_history", [])), int(state.get("max_steps", 0))
        ended = bool(lines) and int(state.get("global_step", 0)) >= max_steps
    settings = _json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    evaluation = {
        name: value
        for each in lines
        for name, value in each.items()
        if name.startswith("eval_") and isinstance(value, int | float) and "runtime" not in name and "per_second" not in name
    }
    entries = [each for each in lines if "loss" in each]
    return Logs(entries, evaluation, settings.get("strategy"), max_steps, ended)


def _lines(file: Path) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break  # it is being written
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file}, line {number} is not a valid log entry: {error}.") from error
        if not isinstance(entry, dict):
            raise DataError(f"{file}, line {number} is not a valid log entry: it must be a JSON object.")
        found.append(entry)
    return found


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the second is raised for deeply nested lists
        raise DataError(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must hold a JSON object.")
    return content
