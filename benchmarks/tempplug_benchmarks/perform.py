"""Executes one run and leaves its file: the result, or a note of its failure. It must not know what a task trains."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tempplug.errors import TempplugError
from tempplug_adapters.storage.files import remove_leftovers
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.store import Failure, Result, write_failure, write_result

Outcome = Result | Failure


def perform(run: Run, output: Path, data_dir: Path | None, progress: Callable[[float, str], None]) -> Outcome:
    """Executes one run and writes its file: the result, or a note of its failure.

    Args:
        run: what to execute.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        progress: called with the fraction done and a few words.
    """
    work_dir = run.work_dir(output)
    work_dir.mkdir(parents=True, exist_ok=True)
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
    result = write_result(run, output, metrics, time.perf_counter() - started, context.temperature)
    shutil.rmtree(work_dir, ignore_errors=True)
    return result
