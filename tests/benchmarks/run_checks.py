"""Running a plan as tests do: quietly, with what was said."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tempplug_benchmarks.executors import create_executor
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.runner import execute
from tempplug_benchmarks.store import Failure


def run_all(
    runs: Sequence[Run], output: Path, executor: str = "local", rerun_changed: bool = False, **options: Any
) -> tuple[list[Failure], str]:
    """Returns the failures and the lines that were printed."""
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=400))
    failures = execute(runs, output, None, progress, create_executor(executor, None, **options), rerun_changed)
    return failures, shown.getvalue()
