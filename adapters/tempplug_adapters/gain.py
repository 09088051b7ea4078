"""What a training gained, on standard error: a table where that is a terminal, otherwise events, a JSON object a line each.

An event has the key ``event``: ``measuring`` (the untrained model), ``untrained`` (its ``figures``), ``progress`` (``step`` of
``steps``, ``seconds``, ``seconds_left``) and, for each metric, ``gain`` (``metric``, ``untrained``, ``trained``,
``difference``, ``meaning``). Figures that are not finite are null. Only the first process may call what writes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from tqdm.auto import tqdm

from tempplug_adapters.ending import LINES, number
from tempplug_adapters.metric_names import explain, legend

_PREFIX = "eval_"
_NO_FIGURES = ("_runtime", "_per_second", "_time", "_seconds")
_NAME, _CELL = 36, 12
"""Columns of a name and of a figure in the table."""


def write_event(event: str, text: str = "", **fields: Any) -> None:
    """Writes ``text`` where standard error is a terminal, above the progress bar; otherwise the event with its fields."""
    line = text if sys.stderr.isatty() else json.dumps({"event": event, **fields})
    if line:
        tqdm.write(line, file=sys.stderr)


def figures_at(history: Iterable[Mapping[str, Any]], step: int | None) -> dict[str, float]:
    """Returns the figures of the evaluations that a Trainer's history has of a step; of the last evaluation if it is None."""
    evaluations = [(entry.get("step"), figures) for entry in history if (figures := _figures(entry))]
    if step is None and evaluations:
        step = evaluations[-1][0]
    return {name: value for place, figures in evaluations if place == step for name, value in figures.items()}


def _figures(entry: Mapping[str, Any]) -> dict[str, float]:
    return {
        name.removeprefix(_PREFIX): value
        for name, value in entry.items()
        if name.startswith(_PREFIX) and not name.endswith(_NO_FIGURES) and isinstance(value, int | float)
    }


def report_gain(untrained: Mapping[str, float], trained: Mapping[str, float]) -> None:
    """Writes the metrics that were measured before and after a training, with their differences and in words.

    Args:
        untrained: figures of the model before the training.
        trained: of the model after it.
    """
    rows = {name: (untrained[name], after) for name, after in trained.items() if name in untrained}
    for name, (before, after) in () if sys.stderr.isatty() else rows.items():
        values = {"untrained": before, "trained": after, "difference": after - before}
        fields: dict[str, Any] = {key: _finite(value) for key, value in values.items()}
        write_event("gain", metric=name, **fields, meaning="; ".join(explain(name).values()) or None)
    if not rows or not sys.stderr.isatty():
        return
    shown = list(rows.items())[:LINES]
    lines = [_row("gain of the training", "untrained", "trained", "difference")]
    lines += [_row(name, number(before), number(after), _signed(after - before)) for name, (before, after) in shown]
    lines += [f"and {len(rows) - len(shown)} more in the log"] if len(rows) > len(shown) else []
    lines += [f"{metric}: {clause}" for metric, clause in legend(name for name, _ in shown).items()]
    write_event("gain", "\n".join(lines))


def _row(name: str, *cells: str) -> str:
    return f"{name[:_NAME]:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _signed(value: float) -> str:
    return f"{'+' * (value >= 0)}{number(value)}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
