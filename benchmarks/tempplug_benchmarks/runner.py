"""Executes runs: one after the other, or several at once in processes of their own.

Every finished run is on disk before the next one starts, so that killing the program loses at most the runs in flight and
the same command goes on where it stopped. A run that raises is noted and the others go on; one that another process is at
work on comes last, so that two commands share a folder. This module must not know what
a task trains.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tempplug.errors import ConfigError
from tempplug_benchmarks.perform import Taken, perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.resume import Todo, left_of
from tempplug_benchmarks.store import Failure, Result, difference_from, read_result
from tempplug_benchmarks.workers import PATIENCE, execute_in_processes


def outcome_line(run: Run, outcome: Result | Failure) -> str:
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


def _execute_here(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    progress: Progress,
    finished: Callable[[Run, Result | Failure], None],
) -> None:
    waiting, in_vain = deque(runs), 0
    while waiting:
        run = waiting.popleft()
        progress.start(run.describe())
        outcome = perform(run, output, data_dir, progress.step(run.describe()))
        if not isinstance(outcome, Taken):
            in_vain = 0
            finished(run, outcome)
            continue
        progress.leave(run.describe())
        waiting.append(run)
        in_vain += 1
        if in_vain >= len(waiting):
            time.sleep(PATIENCE)


def execute(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    progress: Progress,
    workers: int = 1,
    rerun_changed: bool = False,
    time_limit: float | None = None,
) -> list[Failure]:
    """Executes what is left of a plan.

    Args:
        runs: the plan.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        progress: is told of every start and end.
        workers: how many runs at once, at least 1; with 1 and no limit they run in this process.
        rerun_changed: see `remaining`.
        time_limit: seconds that a run may take; one that takes longer is ended and noted as failed. None is no limit.

    Returns:
        The runs that failed.

    Raises:
        ConfigError: a stored result is of another experiment, ``workers`` is less than 1, or the limit not above 0.
        DataError: real data are needed and missing; nothing was run.
    """
    if workers < 1:
        raise ConfigError(f"workers={workers} must be at least 1.")
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit={time_limit} must be above 0 seconds.")
    todo = remaining(runs, output, rerun_changed)
    check_data(todo.runs, data_dir)
    failures: list[Failure] = []
    with progress:
        progress.begin(len(runs), todo.finished, todo.corrupt)

        def finished(run: Run, outcome: Result | Failure) -> None:
            progress.finish(run.describe(), outcome_line(run, outcome))
            if isinstance(outcome, Failure):
                failures.append(outcome)

        if workers == 1 and time_limit is None:
            _execute_here(todo.runs, output, data_dir, progress, finished)
        else:
            execute_in_processes(todo.runs, output, data_dir, workers, progress, finished, time_limit)
    return failures
