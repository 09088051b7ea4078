"""The figure that a training has left behind: in a JSON file of its folder, in the Trainer's state, or in what it printed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from tempplug.errors import DataError

STATE, OWN = "trainer_state.json", "sweep_result.json"


def read_metric(folder: Path, printed: str, metric: str) -> float:
    """Returns the newest value of a metric.

    Args:
        folder: of the training. Its JSON files are looked at first, newest first, for the name at the top or below
            ``evaluation``; then the Trainer's states in it and its checkpoints, for the last log that has the name.
        printed: by the training; the last ``NAME: VALUE``, ``NAME = VALUE`` or ``"NAME": VALUE`` counts where no file has it.
        metric: its name.

    Raises:
        DataError: the training has left none, or none that is finite.
    """
    found = _of_files(folder, metric)
    if found is None:
        number = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|[+-]?inf"
        pattern = re.compile(rf"(?<![\w.-]){re.escape(metric)}['\"]?\s*[:=]?\s*['\"]?({number})(?![\w])", re.IGNORECASE)
        hits = pattern.findall(printed)
        found = float(hits[-1]) if hits else None
    if found is None:
        raise DataError(f"metric={metric} is in no JSON file of {folder}, and was not printed as '{metric}: VALUE'.")
    if not math.isfinite(found):
        raise DataError(f"metric={metric} of {folder} is {found}.")
    return found


def _of_files(folder: Path, metric: str) -> float | None:
    files = sorted((each for each in folder.glob("*.json") if each.name not in (STATE, OWN)), key=_age, reverse=True)
    for content in map(_content, files):
        for place in (content, content.get("evaluation")):
            if isinstance(place, dict) and isinstance(place.get(metric), int | float):
                return float(place[metric])
    for content in map(_content, sorted(folder.rglob(STATE), key=_age, reverse=True)):
        logs = content.get("log_history")
        for entry in reversed(logs if isinstance(logs, list) else []):
            if isinstance(entry, dict) and isinstance(entry.get(metric), int | float):
                return float(entry[metric])
    return None


def _age(file: Path) -> float:
    return file.stat().st_mtime


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return {}  # another file may have it
    return content if isinstance(content, dict) else {}
