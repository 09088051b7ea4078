"""Executes one run in this process and returns its outcome."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tempplug.errors import TempplugError
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Failure, Result, failure_of, result_of
from tempplug_benchmarks.run_method import RunContext

NOTED = ("temperature", "course", "resampled", "launch", "implementations")
"""Fields of `RunContext` that a run fills for its result."""


def perform(run: Run, work_dir: Path, data_dir: Path | None, progress: Callable[[float, str], None]) -> Result | Failure:
    """Executes one run.

    Args:
        run: the run to execute.
        work_dir: folder for checkpoints; checkpoints of an earlier attempt are resumed.
        data_dir: folder of real data; None if none was given.
        progress: called with the completed fraction and a short description.

    Returns:
        The result, or a record of the exception.
    """
    context = RunContext(
        method=run.task.method,
        profile=run.sizes,
        recipe=run.recipe,
        strategy=run.specs.strategy,
        objective=run.specs.objective,
        negatives=run.specs.negatives,
        data_dir=data_dir,
        work_dir=work_dir,
        progress=progress,
    )
    started = time.perf_counter()
    try:
        run.sizes.check_data(run.task.name, data_dir)  # the run may have been planned on another machine
        metrics = run.task.run(context)
    except TempplugError as error:
        return failure_of(run, str(error))
    except Exception as error:
        return failure_of(run, f"{type(error).__name__}: {error}", traceback.format_exc())
    noted = {name: getattr(context, name) for name in NOTED}
    return result_of(run, metrics, time.perf_counter() - started, **noted)
