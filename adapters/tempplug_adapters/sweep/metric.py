"""The figure that a training has left behind: in a JSON file of its folder, in the Trainer's state, or in what it printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tempplug.errors import DataError, nearest

STATE, OWN = "trainer_state.json", "sweep_result.json"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|[+-]?inf)"
_PRINTED_NAME = re.compile(rf"(?<![\w.-])([A-Za-z_][\w.@/-]*)(?:['\"]?\s*[:=]\s*['\"]?|\s+){_NUMBER}(?!\w)", re.IGNORECASE)
_LISTED = 30


class MissingMetricError(DataError):
    """A finished training has left no metric of that name."""


def read_metric(folder: Path, printed: str, metric: str) -> float:
    """Returns the newest value of a metric.

    Args:
        folder: of the training. Its JSON files are looked at first, newest first, for the name at the top or below
            ``evaluation``; then the Trainer's states in it and its checkpoints, for the last log that has the name.
        printed: by the training; the last ``NAME: VALUE``, ``NAME = VALUE`` or ``"NAME": VALUE`` counts where no file has it.
        metric: its name.

    Raises:
        MissingMetricError: the training has left none; the message names those that it has left, and the nearest.
        DataError: it is not finite.
    """
    found = next((float(each[metric]) for each in _figures(folder) if metric in each), None)
    if found is None:
        pattern = re.compile(rf"(?<![\w.-]){re.escape(metric)}['\"]?\s*[:=]?\s*['\"]?{_NUMBER}(?![\w])", re.IGNORECASE)
        hits = pattern.findall(printed)
        found = float(hits[-1]) if hits else None
    if found is None:
        known = _names(folder, printed)
        left = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "") if known else "none"
        raise MissingMetricError(
            f"metric={metric} is in no JSON file of {folder}, and was not printed as '{metric}: VALUE'."
            f"{nearest(metric, known)} It has: {left}."
        )
    if not math.isfinite(found):
        raise DataError(f"metric={metric} of {folder} is {found}.")
    return found


def _figures(folder: Path) -> Iterator[dict[str, float]]:
    """Gives the numbers by name of each place that counts, the one that comes first before the others."""
    files = sorted((each for each in folder.glob("*.json") if each.name not in (STATE, OWN)), key=_age, reverse=True)
    for content in map(_content, files):
        yield from (_numbers(content), _numbers(content.get("evaluation")))
    for content in map(_content, sorted(folder.rglob(STATE), key=_age, reverse=True)):
        logs = content.get("log_history")
        yield from map(_numbers, reversed(logs if isinstance(logs, list) else []))


def _names(folder: Path, printed: str) -> list[str]:
    """Returns the names of all metrics that a training has left."""
    found = [name for each in _figures(folder) for name in each]
    return list(dict.fromkeys([*found, *(name for name, _ in _PRINTED_NAME.findall(printed))]))


def _numbers(content: object) -> dict[str, float]:
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, int | float)}


def _age(file: Path) -> float:
    return file.stat().st_mtime


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}  # another file may have it
    return content if isinstance(content, dict) else {}
