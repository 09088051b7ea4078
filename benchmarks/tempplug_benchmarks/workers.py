"""Runs in processes of their own, several at once: a crash or a lack of memory costs one run, not the program.

It must not know what a run is made of; `tempplug_benchmarks.perform` does the work and writes the file.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

from tempplug_benchmarks.perform import Outcome, Taken, finished_result, perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.store import Failure, Result, write_failure

PATIENCE = 1.0
"""Seconds between two looks at runs that other processes have."""


def execute_in_processes(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    workers: int,
    progress: Progress,
    finished: Callable[[Run, Result | Failure], None],
    time_limit: float | None = None,
) -> None:
    """Executes runs, ``workers`` at a time; torch's threads are divided among them.

    Args:
        runs: to be executed, in order.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        workers: processes at once, at least 1.
        progress: is told of every start and step.
        finished: called in this process with every outcome.
        time_limit: seconds that a run may take, None where it may take as long as it does.
    """
    import torch

    threads = max(1, torch.get_num_threads() // workers)
    context = multiprocessing.get_context("spawn")
    waiting = deque(runs)
    active: dict[Connection, _Work] = {}
    in_vain = 0
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(sender, run, output, data_dir, threads))
                process.start()
                sender.close()  # so that the end of the process ends the pipe
                active[receiver] = _Work(run, process, None if time_limit is None else time.monotonic() + time_limit)
                progress.start(run.describe())
            for receiver in _ready(active):
                work = active[receiver]
                outcome = _receive(receiver, work, output, progress, time_limit)
                if outcome is None:
                    continue
                del active[receiver]
                work.process.join()
                receiver.close()
                if not isinstance(outcome, Taken):
                    in_vain = 0
                    finished(work.run, outcome)
                    continue
                progress.leave(work.run.describe())
                waiting.append(work.run)
                in_vain += 1
                if in_vain >= len(waiting) and not active:
                    time.sleep(PATIENCE)
    finally:
        for work in active.values():
            work.process.terminate()
        for work in active.values():
            work.process.join()


@dataclass(frozen=True)
class _Work:
    run: Run
    process: SpawnProcess
    until: float | None
    """When its time is over, by the clock of `time.monotonic`."""


def _ready(active: Mapping[Connection, _Work]) -> list[Connection]:
    """Returns those that have something to say, or whose time is over, as soon as there are any."""
    ends = [work.until for work in active.values() if work.until is not None]
    heard = wait(list(active), max(0.0, min(ends) - time.monotonic()) if ends else None)
    now = time.monotonic()
    over = [receiver for receiver, work in active.items() if work.until is not None and work.until <= now]
    return list(dict.fromkeys([*cast("list[Connection]", heard), *over]))


def _receive(receiver: Connection, work: _Work, output: Path, progress: Progress, time_limit: float | None) -> Outcome | None:
    """Returns the outcome where there is one; a process that ended without one has crashed."""
    run, process = work.run, work.process
    if not receiver.poll():
        process.kill()
        process.join()
        if (finished := finished_result(run, output)) is not None:
            return finished  # it was written in the last moment
        return write_failure(run, output, f"it took longer than the time limit of {time_limit:g} s.", "")
    try:
        message = receiver.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        return write_failure(run, output, f"its process ended without a result ({cause}).", "")
    if isinstance(message, tuple):
        progress.step(run.describe())(*message)
        return None
    outcome: Outcome = message
    return outcome


def _work(sender: Connection, run: Run, output: Path, data_dir: Path | None, threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption reaches the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    sender.send(perform(run, output, data_dir, lambda fraction, text: sender.send((fraction, text))))


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, so that no orphan works on a run that the same command starts again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
