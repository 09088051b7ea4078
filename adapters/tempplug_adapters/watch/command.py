"""``tempplug watch OUTPUT_DIR``: shows the progress of a training on a terminal and warns of known problems.

The logs are those written during the training, or those of the newest checkpoint. It imports no framework to read them.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug.parser import Parser, columns
from tempplug_adapters.watch.problems import problems

LOG_FILE, STATE_FILE, SETTINGS_FILE = "log.jsonl", "trainer_state.json", "settings.json"
SHOWN = ("loss", "temperature", "positive_similarity", "negative_similarity", "gradient_scale")
FULL = ("alignment", "uniformity", "effective_negatives")
"""Only in logs of trainings with ``--log-record full``."""
OF_TERMS = ("negatives_left_out", "negative_weight")
"""Only in logs of trainings with terms on negatives."""
_COLUMNS = 48
_LEVELS = "▁▂▃▄▅▆▇█"
_CLEAR = "\x1b[H\x1b[J"
_LINES = {
    "temperature": "mean over the pairs of the last batch; at a bound, it no longer adapts",
    "positive_similarity": "mean similarity of the two views of an item; alignment is the same as a squared distance",
    "negative_similarity": "mean similarity of other items; near 1, all embeddings lie on one point",
    "gradient_scale": "1 - probability of the positive; near 0, a pair has no gradient any more",
    "uniformity": "lower values are more spread; -2 to -4 is usual, 0 is a single point (with --log-record full)",
    "effective_negatives": "effective number of negatives in an anchor's gradient (with --log-record full)",
    "negatives_left_out": "share of the negatives that terms on negatives leave out; negative_weight is the mean weight of the "
    "others; both only with such terms",
}
_HELP = """\
OUTPUT_DIR is the folder of `tempplug train`, of a Trainer with the mixin, or of any other Trainer with checkpoints.
The effect of the temperature on a training shows in these lines, which should be read together:

{lines}

Lines that begin with ! report a known problem that appears in the last three logs, and its remedy. Frequent logs
(--logging-steps) show problems early.
"""


def main(arguments: list[str]) -> int:
    """Runs ``tempplug watch`` with the words after it and returns 0; raises TempplugError for invalid input."""
    parser = Parser(
        prog="tempplug watch",
        description="Show temperature, similarities and gradient of a training over its steps, and report problems.",
        epilog=_HELP.format(lines="\n".join(columns(_LINES.items()))),
    )
    parser.add_argument("output_dir", type=Path, metavar="OUTPUT_DIR", help="folder of the training")
    parser.add_argument("--once", action="store_true", help="show the current state and exit, instead of waiting for more")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="time between two updates (default: 2)")
    options = parser.parse_args(arguments)
    if not (math.isfinite(options.interval) and options.interval > 0):
        raise ConfigError(f"interval={options.interval:g} must be a number of seconds greater than 0.")
    seen = -1
    while True:
        logs = read_logs(options.output_dir)
        if options.once and not logs.entries:
            raise DataError(f"output_dir={options.output_dir} holds no log of a training step yet.")
        if len(logs.entries) != seen or logs.ended:
            seen = len(logs.entries)
            clear = _CLEAR if sys.stdout.isatty() and not options.once else ""
            print(clear + "\n".join(view(options.output_dir, logs)), flush=True)
        if logs.ended or options.once:
            return 0
        time.sleep(options.interval)


def view(folder: Path, logs: Logs) -> list[str]:
    """Returns the output lines for the logs of a training folder."""
    if not logs.entries:
        return [f"{folder}: no log of a training step yet"]
    last = logs.entries[-1]
    step = f"step {last.get('step', '?')}" + (f" of {logs.max_steps}" if logs.max_steps else "")
    epoch = f", epoch {float(last['epoch']):.3g}" if "epoch" in last else ""
    lines = [f"{folder}: {step}{epoch}{', ended' if logs.ended else ''}" + (f", {logs.strategy}" if logs.strategy else "")]
    for name in (*SHOWN, *FULL, *OF_TERMS):
        values = [float(each[name]) for each in logs.entries if name in each]
        if values:
            course = f"{values[0]:.4g} to {values[-1]:.4g}"
            lines.append(f"  {name:<20} {curve(values):<{_COLUMNS}} {course}, between {min(values):.4g} and {max(values):.4g}")
    if logs.evaluation:
        lines.append("  " + "  ".join(f"{name} {value:.4g}" for name, value in logs.evaluation.items()))
    bounds, remedy = _of_strategy(logs.strategy)
    found = problems(logs.entries, bounds, remedy)
    lines += [f"! {each.name}: {each.seen}. Remedy: {each.remedy}." for each in found]
    return lines if found else [*lines, "nothing harmful is seen"]


def curve(values: Sequence[float], columns: int = _COLUMNS) -> str:
    """Returns values as block characters of eight heights; averages values if there are more than columns.

    >>> curve([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    groups = min(len(values), columns)
    ends = [round(number * len(values) / groups) for number in range(groups + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    finite = [each for each in means if math.isfinite(each)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = (high - low) or 1.0
    return "".join(_LEVELS[int((each - low) / span * 7.999)] if math.isfinite(each) else "?" for each in means)


def _of_strategy(spec: str | None) -> tuple[Mapping[str, float], str]:
    """Returns the bounds of a strategy, and its advice for temperatures at a bound."""
    if spec is not None:
        from tempplug import create_strategy  # imports torch

        # a plugin's strategy may not be installed here
        with suppress(TempplugError), warnings.catch_warnings(action="ignore"):
            strategy = create_strategy(spec)
            return strategy.bounds(), strategy.remedy
    return {}, "choose other bounds"


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

    entries: Sequence[Mapping[str, Any]] = ()
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


def _lines(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()  # it is being written
    return [_object(line, f"{file}, line {number} is not a valid log entry") for number, line in enumerate(lines, 1)]


def _json(file: Path) -> dict[str, Any]:
    return _object(file.read_text(encoding="utf-8"), f"{file} cannot be read")


def _object(text: str, fault: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # the second is raised for deeply nested lists
        raise DataError(f"{fault}: {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{fault}: it must be a JSON object.")
    return content
