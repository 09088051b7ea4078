"""Executes a plan: skips finished runs, executes the others and writes their results.

Every result is written before the next run starts, so that killing the program loses at most the runs in progress. An exception
in one run does not stop the others. Runs that another process has locked are tried last. Progress is shown as bars on a
terminal, otherwise as one line for each run.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as Bars, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import remove_leftovers
from tempplug_adapters.storage.manifest import locked
from tempplug_benchmarks.run.executor import INTERVAL, Executor, InProcesses, Job, Lost, Outcome
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.ray_executor import OnRay
from tempplug_benchmarks.run.store import Failure, Result, difference_from, failure_of, write
from tempplug_benchmarks.run.task_file import stored_result


class Progress:
    """Shows when runs start, advance and end; a context manager.

    Args:
        console: the output; bars on a terminal, plain lines otherwise, for example in a log file.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar_of: dict[str, TaskID] = {}
        self._total = self._done = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def begin(self, total: int, finished: int, messages: Sequence[str]) -> None:
        """Shows the number of runs, the number of finished ones and problems with stored files."""
        self._total, self._done = total, finished
        for message in messages:
            self.note(f"{message} It is run again.")
        if finished:
            self.note(f"{finished} of {total} runs are finished already.")
        self._all = self._bars.add_task(self._count(), total=total, completed=finished)

    def start(self, name: str) -> None:
        """Shows that the named run starts."""
        self._bar_of[name] = self._bars.add_task(f"  {escape(name)}", total=1.0)

    def step(self, name: str) -> Callable[[float, str], None]:
        """Returns the callback that receives the progress of a run: a fraction in [0, 1] and a short description."""

        def step(fraction: float, text: str) -> None:
            if name in self._bar_of:
                words = f"  {escape(name)} {escape(text)}"
                self._bars.update(self._bar_of[name], completed=min(max(fraction, 0.0), 1.0), description=words)

        return step

    def finish(self, name: str, line: str) -> None:
        """Shows in one line that a run ended and its outcome."""
        self._done += 1
        self.note(f"{self._count()} {line}")
        self._bars.remove_task(self._bar_of.pop(name))
        self._bars.update(self._all, completed=self._done, description=self._count())

    def _count(self) -> str:
        return f"[{self._done}/{self._total}]"

    def note(self, text: str) -> None:
        """Prints a line while runs continue."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


EXECUTORS = ("local", "ray")


def create_executor(
    name: str,
    data_dir: Path | None,
    workers: int | None = None,
    time_limit: float | None = None,
    ray_address: str | None = None,
) -> Executor:
    """Returns an executor of runs.

    Args:
        name: ``local`` for this machine or ``ray`` for a cluster.
        data_dir: folder of real data, under the same path on all machines; None if none was given.
        workers: maximum number of simultaneous runs, at least 1; None means 1 on this machine, and no limit on a cluster. With
            one worker and no time limit, runs are executed in this process.
        time_limit: seconds after which a run is terminated and recorded as failed; None for no limit.
        ray_address: address of the cluster; None uses RAY_ADDRESS, or the cluster that runs on this machine.

    Raises:
        ConfigError: ``workers`` is less than 1, the time limit is not positive, or an address was given without ``ray``.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} must be at least 1.")
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit={time_limit} must be above 0 seconds.")
    if name == "ray":
        return OnRay(data_dir, workers, time_limit, ray_address)
    if ray_address is not None:
        raise ConfigError(f"ray_address={ray_address} goes with --executor ray.")
    if workers in (None, 1) and time_limit is None:
        return Executor(data_dir)
    return InProcesses(data_dir, workers or 1, time_limit)


def claim(run: Run, output: Path) -> ExitStack | Result | None:
    """Locks a run, so that other processes do not execute it.

    Returns:
        The lock, which `ExitStack.close` releases; the result if another process has finished the run; None if another process
        is executing it.
    """
    work_dir = run.work_dir(output)
    work_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as lock:
        try:
            lock.enter_context(locked(work_dir))
        except (ConfigError, FileNotFoundError):  # another process is executing it, or is just removing its folder
            return None
        if (finished := _finished(run, output)) is not None:
            shutil.rmtree(work_dir, ignore_errors=True)
            return finished
        remove_leftovers(run.path(output).parent)
        run.path(output).unlink(missing_ok=True)  # corrupt or of another experiment, otherwise the run would have been skipped
        return lock.pop_all()


def _finished(run: Run, output: Path) -> Result | None:
    """Returns the stored result of exactly this experiment, or None."""
    try:
        result = stored_result(run, output)
    except DataError:
        return None
    return None if result is None or difference_from(run, result) else result


def outcome_line(run: Run, outcome: Result | Failure) -> str:
    """Returns one line about a finished or failed run."""
    if isinstance(outcome, Failure):
        return f"{run.describe()}: failed: {outcome.error}"
    metric = run.sizes.primary_metric()
    return f"{run.describe()}: {metric.name} {outcome.metrics[metric.name]:.{metric.decimals}f} ({outcome.seconds:.1f} s)"


def remaining(runs: Sequence[Run], output: Path, rerun_changed: bool = False) -> tuple[list[Run], list[str]]:
    """Returns the runs to execute, and messages about unreadable result files, whose runs are executed again.

    Args:
        runs: the plan.
        output: folder of results.
        rerun_changed: whether to replace results of another recipe, data set or spec.

    Raises:
        ConfigError: there is such a result and ``rerun_changed`` is false; the message gives the file and the difference.
    """
    left: list[Run] = []
    corrupt: list[str] = []
    changed: list[str] = []
    for run in runs:
        try:
            stored = stored_result(run, output)
            found = None if stored is None else difference_from(run, stored)
        except DataError as error:
            corrupt.append(str(error))
            found = None
        if found:
            changed.append(f"{run.path(output)} is of another experiment: {found}.")
        if found != "":
            left.append(run)
    if changed and not rerun_changed:
        more = f" So are {len(changed) - 1} more." if len(changed) > 1 else ""
        raise ConfigError(f"{changed[0]}{more} Pass --rerun-changed to replace it, or choose another --output.")
    return left, corrupt


def execute(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    progress: Progress,
    executor: Executor,
    rerun_changed: bool = False,
) -> list[Failure]:
    """Executes the unfinished runs of a plan.

    Args:
        runs: the plan.
        output: folder of results.
        data_dir: folder of real data; None if none was given.
        progress: receives the start and the end of every run.
        executor: executes the runs.
        rerun_changed: see `remaining`.

    Returns:
        The failed runs; executing the plan again retries them.

    Raises:
        ConfigError: see `remaining`; or the executor cannot execute a run.
        DataError: required data are missing; no run was executed.
    """
    left, corrupt = remaining(runs, output, rerun_changed)
    for run in {(run.task.name, run.profile): run for run in left}.values():
        run.sizes.check_data(run.task.name, data_dir)
    failures: list[Failure] = []

    def finished(run: Run, outcome: Result | Failure) -> None:
        progress.finish(run.describe(), outcome_line(run, outcome))
        if isinstance(outcome, Failure):
            failures.append(outcome)

    with ExitStack() as stack:  # release the locks only after all work has stopped
        claims = stack.enter_context(ExitStack())
        if left:
            stack.enter_context(executor)
            executor.check(left)
        stack.enter_context(progress)
        progress.begin(len(runs), len(runs) - len(left), corrupt)
        _go_through(left, output, executor, progress, finished, claims)
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
    at_work: dict[Future[Outcome], tuple[Job, ExitStack]] = {}
    lost: Counter[Job] = Counter()
    while waiting or at_work:
        for _ in range(len(waiting)):
            run = waiting.popleft()
            has_room = executor.has_room(run, [job.run for job, _ in at_work.values()])
            claimed = claim(run, output) if has_room else None
            if claimed is None:
                waiting.append(run)
                continue
            progress.start(run.describe())
            if isinstance(claimed, Result):
                finished(run, claimed)
                continue
            held.callback(claimed.close)
            job = Job(run, run.work_dir(output) / "training", progress.step(run.describe()))
            at_work[executor.submit(job)] = job, claimed
        if waiting and not at_work:
            time.sleep(INTERVAL)
        for future in wait(at_work, INTERVAL, FIRST_COMPLETED).done:
            job, lock = at_work.pop(future)
            outcome = future.result()
            if isinstance(outcome, Lost):
                lost[job] += 1
                if lost[job] < executor.attempts:
                    progress.note(f"{job.run.describe()}: {outcome.cause}; it is run again.")
                    at_work[executor.submit(job)] = job, lock
                    continue
                often = f", {lost[job]} times" if lost[job] > 1 else ""
                outcome = failure_of(job.run, f"{outcome.cause}{often}.")
            write(job.run, output, outcome)
            if isinstance(outcome, Result):  # checkpoints are kept after a failure
                shutil.rmtree(job.run.work_dir(output), ignore_errors=True)
            lock.close()
            finished(job.run, outcome)
