"""Reads a metric of a finished training: from its JSON files, the Trainer's state, or what it printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tempplug.errors import DataError, nearest

RESULT = "sweep_result.json"
"""The file that marks a run as finished; it has no metric."""
_STATE = "trainer_state.json"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|[+-]?inf)"
_PRINTED_NAME = re.compile(rf"(?<![\w.-])([A-Za-z_][\w.@/-]*)(?:['\"]?\s*[:=]\s*['\"]?|\s+){_NUMBER}(?!\w)", re.IGNORECASE)
_LISTED = 30


class MissingMetricError(DataError):
    """A finished training has no metric with the given name."""


def read_metric(folder: Path, printed: str, metric: str) -> float:
    """Returns the newest value of a metric.

    Args:
        folder: folder of the training. JSON files are searched first, newest first, for the name at the top level or below
            ``evaluation``; then the Trainer's states in the folder and its checkpoints, for the last log with the name.
        printed: output of the training; if no file has the metric, the last ``NAME: VALUE``, ``NAME = VALUE`` or
            ``"NAME": VALUE`` is used.
        metric: its name.

    Raises:
        MissingMetricError: the metric was not found; the message lists the metrics found and the nearest name.
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
            f"metric={metric} was not found in the JSON files of {folder}, nor printed as '{metric}: VALUE'."
            f"{nearest(metric, known)} It has: {left}."
        )
    if not math.isfinite(found):
        raise DataError(f"metric={metric} of {folder} is {found}.")
    return found


def _figures(folder: Path) -> Iterator[dict[str, float]]:
    """Yields the numbers by name from each source, in order of precedence."""
    files = sorted((each for each in folder.glob("*.json") if each.name not in (RESULT, _STATE)), key=_age, reverse=True)
    for content in map(_content, files):
        yield from (_numbers(content), _numbers(content.get("evaluation")))
    for content in map(_content, sorted(folder.rglob(_STATE), key=_age, reverse=True)):
        logs = content.get("log_history")
        yield from map(_numbers, reversed(logs if isinstance(logs, list) else []))


def _names(folder: Path, printed: str) -> list[str]:
    """Returns the names of all metrics of a training."""
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
