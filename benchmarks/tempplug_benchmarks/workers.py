"""Runs in processes of their own, several at once: a crash or a lack of memory costs one run, not the program.

It must not know what a run is made of; `tempplug_benchmarks.perform` does the work and writes the file.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

from tempplug_benchmarks.perform import Outcome, perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.store import write_failure


def execute_in_processes(
    runs: Sequence[Run],
    output: Path,
    data_dir: Path | None,
    workers: int,
    progress: Progress,
    finished: Callable[[Run, Outcome], None],
) -> None:
    """Executes runs, ``workers`` at a time; torch's threads are divided among them.

    Args:
        runs: to be executed, in order.
        output: folder of results.
        data_dir: folder of real data, None where none was given.
        workers: processes at once, at least 1.
        progress: is told of every start and step.
        finished: called in this process with every outcome.
    """
    import torch

    threads = max(1, torch.get_num_threads() // workers)
    context = multiprocessing.get_context("spawn")
    waiting = list(runs)
    active: dict[Connection, tuple[Run, SpawnProcess]] = {}
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(sender, run, output, data_dir, threads))
                process.start()
                sender.close()  # so that the end of the process ends the pipe
                active[receiver] = (run, process)
                progress.start(run.describe())
            for receiver in cast("list[Connection]", wait(list(active))):
                run, process = active[receiver]
                outcome = _receive(receiver, run, process, output, progress)
                if outcome is not None:
                    del active[receiver]
                    process.join()
                    receiver.close()
                    finished(run, outcome)
    finally:
        for _, process in active.values():
            process.terminate()
        for _, process in active.values():
            process.join()


def _receive(receiver: Connection, run: Run, process: SpawnProcess, output: Path, progress: Progress) -> Outcome | None:
    """Returns the outcome where there is one; a process that ended without one has crashed."""
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
