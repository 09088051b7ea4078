"""Runs of a plan whose printed lines are returned, records of runs that did not take place, and the toy suite's figures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.runner import Progress, create_executor, execute
from tempplug_benchmarks.run.store import Failure, Result, failure_of, result_of, write

FIGURES = {
    "fixed+infonce": ((70.0, 0.5), (72.0, 0.4), (77.0, 0.3), (71.0, 0.5), (75.0, 0.3)),
    "macl+infonce": ((71.0, 0.4), (73.5, 0.3), (78.5, 0.2), (72.0, 0.4), (76.5, 0.2)),
    "fixed+dcl": ((69.0, 0.5), (70.5, 0.5), (76.0, 0.5), (69.5, 0.5), (74.0, 0.5)),
    "temperature-free+infonce": ((60.0, 0.9), (75.0, 0.1)),
}
"""Score and error by arm and seed."""
SEEDS = (0, 1, 2, 3, 4)


def run_all(
    runs: Sequence[Run], output: Path, executor: str = "local", rerun_changed: bool = False, **options: Any
) -> tuple[list[Failure], str]:
    """Returns the failures and the lines that were printed."""
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=400))
    failures = execute(runs, output, None, progress, create_executor(executor, None, **options), rerun_changed)
    return failures, shown.getvalue()


def write_result(run: Run, output: Path, metrics: Mapping[str, float], seconds: float, **noted: Any) -> Result:
    """Writes and returns what `result_of` returns."""
    result = result_of(run, metrics, seconds, **noted)
    write(run, output, result)
    return result


def write_failure(run: Run, output: Path, error: str, trace: str) -> Failure:
    """Writes and returns what `failure_of` returns."""
    failure = failure_of(run, error, trace)
    write(run, output, failure)
    return failure
