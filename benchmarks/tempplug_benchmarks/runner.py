"""Executes runs: one after the other, or several at once in processes of their own.

Every finished run is on disk before the next one starts, so that killing the program loses at most the runs in flight and
the same command goes on where it stopped. A run that raises is noted and the others go on. This module must not know what
a task trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tempplug.errors import ConfigError
from tempplug_benchmarks.perform import Outcome, perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.resume import Todo, left_of
from tempplug_benchmarks.store import Failure, difference_from, read_result
from tempplug_benchmarks.workers import execute_in_processes


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
            execute_in_processes(todo.runs, output, data_dir, workers, progress, finished)
    return failures
