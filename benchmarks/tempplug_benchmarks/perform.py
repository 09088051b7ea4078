"""Executes one run and leaves its file: the result, or a note of its failure. It must not know what a task trains.

A run that another process is at work on is left to that process.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug_adapters.storage.files import remove_leftovers
from tempplug_adapters.storage.lock import locked
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.store import Failure, Result, difference_from, read_result, write_failure, write_result


class Taken:
    """Another process is at work on the run."""


Outcome = Result | Failure | Taken


def perform(run: Run, output: Path, data_dir: Path | None, progress: Callable[[float, str], None]) -> Outcome:
    """Executes one run and writes its file: the result, or a note of its failure.

    Args:
        run: what to execute.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        progress: called with the fraction done and a few words.

    Returns:
        The result, a failure, or that another process has the run. What another process has finished meanwhile is its result.
    """
    work_dir = run.work_dir(output)
    work_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(work_dir))
        except (ConfigError, FileNotFoundError):  # in work, or removed after it in this very moment
            return Taken()
        finished = finished_result(run, output)
        outcome = _train(run, output, work_dir / "training", data_dir, progress) if finished is None else finished
        if isinstance(outcome, Result):
            shutil.rmtree(work_dir, ignore_errors=True)
    return outcome


def finished_result(run: Run, output: Path) -> Result | None:
    """Returns the result of this very experiment where it is on disk, whole."""
    try:
        result = read_result(run.path(output)) if run.path(output).exists() else None
    except DataError:
        return None
    return None if result is None or difference_from(run, result) else result


def _train(run: Run, output: Path, work_dir: Path, data_dir: Path | None, progress: Callable[[float, str], None]) -> Outcome:
    remove_leftovers(run.path(output).parent)
    run.path(output).unlink(missing_ok=True)  # corrupt or of another experiment, or it would not be run
    context = RunContext(
        method=run.task.method,
        profile=run.sizes,
        recipe=run.sizes.recipe.changed(**run.arm.changes, seed=run.seed),
        strategy=run.specs.strategy,
        objective=run.specs.objective,
        data_dir=data_dir,
        work_dir=work_dir,
        progress=progress,
    )
    started = time.perf_counter()
    try:
        metrics = run.task.run(context)
    except TempplugError as error:
        return write_failure(run, output, str(error), "")
    except Exception as error:
        return write_failure(run, output, f"{type(error).__name__}: {error}", traceback.format_exc())
    return write_result(run, output, metrics, time.perf_counter() - started, context.temperature)
