"""Executes runs: one after the other, or several at once in processes of their own.

Every finished run is on disk before the next one starts, so that killing the program loses at most the runs in flight and
the same command goes on where it stopped. A run that raises is noted and the others go on. This module must not know what
a task trains.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tempplug.errors import ConfigError, TempplugError
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.resume import Todo, left_of
from tempplug_benchmarks.store import (
    Failure,
    Result,
    difference_from,
    read_result,
    write_failure,
    write_result,
)
from tempplug_benchmarks.task import RunContext

Outcome = Result | Failure


def outcome_line(run: Run, outcome: Outcome) -> str:
    """Returns one line about a run that ended."""
    if isinstance(outcome, Failure):
        return f"{run.describe()}: failed: {outcome.error}"
    metric = run.sizes.primary_metric()
    return f"{run.describe()}: {metric.name} {outcome.metrics[metric.name]:.{metric.decimals}f} ({outcome.seconds:.1f} s)"


def remaining(runs: Sequence[Run], output: Path, rerun_changed: bool = False) -> Todo[Run]:
    """Returns which runs are to be executed.

    Args:
        runs: the plan.
        output: folder of results.
        rerun_changed: whether results of other specs, data or another recipe are replaced.

    Raises:
        ConfigError: there is such a result and ``rerun_changed`` is false; the message names the file and what differs.
    """
    return left_of(runs, output, lambda run, path: difference_from(run, read_result(path)), rerun_changed)


def check_data(runs: Sequence[Run], data_dir: Path | None) -> None:
    """Makes sure, before anything is trained, that every run has its data.

    Raises:
        DataError: see `Profile.check_data`.
    """
    for run in {(run.task.name, run.profile): run for run in runs}.values():
        run.sizes.check_data(run.task.name, data_dir)


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
    run.path(output).unlink(missing_ok=True)  # corrupt or of another experiment, or it would not be run
    context = RunContext(
        arm=run.arm,
        seed=run.seed,
        profile=run.profile,
        recipe=run.sizes.recipe,
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
    result = write_result(run, output, metrics, time.perf_counter() - started)
    shutil.rmtree(work_dir, ignore_errors=True)
    return result


def execute(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    progress: Progress,
    workers: int = 1,
    rerun_changed: bool = False,
) -> list[Failure]:
    """Executes what is left of a plan.

    Args:
        runs: the plan.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        progress: is told of every start and end.
        workers: how many runs at once, at least 1; with 1 they run in this process.
        rerun_changed: see `remaining`.

    Returns:
        The runs that failed.

    Raises:
        ConfigError: a stored result is of another experiment, or ``workers`` is less than 1.
        DataError: real data are needed and missing; nothing was run.
    """
    if workers < 1:
        raise ConfigError(f"workers={workers} must be at least 1.")
    todo = remaining(runs, output, rerun_changed)
    check_data(todo.runs, data_dir)
    failures: list[Failure] = []
    with progress:
        progress.begin(len(runs), todo.finished, todo.corrupt)

        def finished(run: Run, outcome: Outcome) -> None:
            progress.finish(run.describe(), outcome_line(run, outcome))
            if isinstance(outcome, Failure):
                failures.append(outcome)

        if workers == 1:
            for run in todo.runs:
                progress.start(run.describe())
                finished(run, perform(run, output, data_dir, progress.step(run.describe())))
        else:
            from tempplug_benchmarks.workers import execute_in_processes

            execute_in_processes(todo.runs, output, data_dir, workers, progress, finished)
    return failures
