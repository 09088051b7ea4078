"""Running a plan as tests do: quietly, with what was said; and records of runs that nobody ran."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.progress import Progress
from tempplug_benchmarks.run.runner import create_executor, execute
from tempplug_benchmarks.run.store import Failure, Result, failure_of, result_of, write


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
