"""Goes through a plan: what is finished stays, what is left is executed, and what came of it is written, by this process.

Every finished run is on disk before the next one starts, so that killing the program loses at most the runs in flight and
the same command goes on where it stopped. A run that raises is noted and the others go on; one that another process is at
work on comes last, so that two commands share a folder. This module must not know what a task trains, nor where runs are
executed.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tempplug_benchmarks.claim import Claim, claim
from tempplug_benchmarks.executor import Executor, Job, Lost
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.resume import Todo, left_of
from tempplug_benchmarks.store import Failure, Result, difference_from, failure_of, read_result

PATIENCE = 1.0
"""Seconds between two looks at runs that other processes have."""


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


def execute(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    progress: Progress,
    executor: Executor,
    rerun_changed: bool = False,
) -> list[Failure]:
    """Executes what is left of a plan.

    Args:
        runs: the plan.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        progress: is told of every start and end.
        executor: what carries out the runs.
        rerun_changed: see `remaining`.

    Returns:
        The runs that failed.

    Raises:
        ConfigError: a stored result is of another experiment, or the executor cannot carry out a run.
        DataError: real data are needed and missing; nothing was run.
    """
    todo = remaining(runs, output, rerun_changed)
    check_data(todo.runs, data_dir)
    failures: list[Failure] = []

    def finished(run: Run, outcome: Result | Failure) -> None:
        progress.finish(run.describe(), outcome_line(run, outcome))
        if isinstance(outcome, Failure):
            failures.append(outcome)

    if not todo.runs:
        with progress:
            progress.begin(len(runs), todo.finished, todo.corrupt)
        return failures
    with ExitStack() as claims, executor:  # runs are released when nothing is at work on them any more
        executor.check(todo.runs)
        with progress:
            progress.begin(len(runs), todo.finished, todo.corrupt)
            _go_through(todo.runs, output, executor, progress, finished, claims)
    return failures


def _go_through(
    runs: Sequence[Run],
    output: Path,
    executor: Executor,
    progress: Progress,
    finished: Callable[[Run, Result | Failure], None],
    held: ExitStack,
) -> None:
    waiting = deque(runs)
    claims: dict[Job, Claim] = {}
    lost: Counter[Job] = Counter()
    while waiting or claims:
        for _ in range(len(waiting)):
            run = waiting.popleft()
            claimed = claim(run, output) if executor.has_room(run) else None
            if claimed is None:
                waiting.append(run)
                continue
            progress.start(run.describe())
            if isinstance(claimed, Result):
                finished(run, claimed)
                continue
            job = Job(run, claimed.work_dir / "training", progress.step(run.describe()))
            claims[job] = claimed
            held.callback(claimed.release)
            executor.start(job)
        if not claims and waiting:
            time.sleep(PATIENCE)
        for job, outcome in executor.wait(PATIENCE):
            if isinstance(outcome, Lost):
                lost[job] += 1
                if lost[job] < executor.attempts:
                    progress.note(f"{job.run.describe()}: {outcome.cause}; it is run again.")
                    executor.start(job)
                    continue
                often = f", {lost[job]} times" if lost[job] > 1 else ""
                outcome = failure_of(job.run, f"{outcome.cause}{often}.")
            claims.pop(job).settle(outcome)
            finished(job.run, outcome)
