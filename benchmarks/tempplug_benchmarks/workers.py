"""Runs in processes of their own, several at once: a crash or a lack of memory costs one run, not the program.

It must not know what a run is made of, nor where results are kept.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Collection, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from tempplug_benchmarks.executor import Job, Lost, Outcome
from tempplug_benchmarks.perform import perform
from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.store import failure_of

Message = tuple[float, str] | Outcome
"""What is heard of a run: how far it is, and at the end what came of it."""


class Child:
    """A process that executes one run.

    Args:
        run: which one.
        work_dir: folder for checkpoints.
        data_dir: folder of real data, None where none was given.
        threads: of torch, at least 1.
        time_limit: seconds that the run may take, None where it may take as long as it does.
    """

    def __init__(self, run: Run, work_dir: Path, data_dir: Path | None, threads: int, time_limit: float | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._run, self._time_limit = run, time_limit
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(sender, run, work_dir, data_dir, threads))
        self._process.start()
        sender.close()  # so that the end of the process ends the pipe
        self._until = math.inf if time_limit is None else time.monotonic() + time_limit

    @property
    def handles(self) -> tuple[Connection, int]:
        """What `multiprocessing.connection.wait` waits for: a message, or the end of the process."""
        return self._receiver, self._process.sentinel

    def left(self) -> float:
        """Returns the seconds that the run has left; infinity without a limit."""
        return self._until - time.monotonic()

    def hear(self) -> Message | None:
        """Returns the next message, None where there is none yet. One that takes too long is ended."""
        over = self.left() <= 0
        if over:
            self._process.kill()
            self._process.join()
        ended = not self._process.is_alive()
        while self._receiver.poll():  # what it said before its end comes first
            try:
                message: Message = self._receiver.recv()
            except (EOFError, OSError):
                self._process.join()
                ended = True
                break
            if not (over and isinstance(message, tuple)):
                return message
        if over:
            return failure_of(self._run, f"it took longer than the time limit of {self._time_limit:g} s.")
        if not ended:
            return None
        code = self._process.exitcode or 0
        return Lost(f"its process ended without a result ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def close(self, kill: bool = False) -> None:
        """Waits for the end of the process.

        Args:
            kill: whether it is ended, whatever it is at.
        """
        if kill:
            self._process.kill()
        self._process.join()
        self._receiver.close()


def listen(children: Collection[Child], timeout: float) -> None:
    """Waits until one of them has something to say, or its time is over.

    Args:
        children: to listen to.
        timeout: seconds after which it returns anyhow.
    """
    left = min((child.left() for child in children), default=timeout)
    wait([handle for child in children for handle in child.handles], max(0.0, min(left, timeout)))


class InProcesses:
    """Carries out several runs at once on this machine, each in a process of its own; torch's threads are divided among them.

    Args:
        data_dir: folder of real data, None where none was given.
        workers: processes at once, at least 1.
        time_limit: seconds that a run may take, None where it may take as long as it does.
    """

    attempts = 1

    def __init__(self, data_dir: Path | None, workers: int, time_limit: float | None = None) -> None:
        self._data_dir, self._workers, self._time_limit = data_dir, workers, time_limit
        self._children: dict[Job, Child] = {}

    def __enter__(self) -> Self:
        import torch

        self._threads = max(1, torch.get_num_threads() // self._workers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children.values():
            child.close(kill=True)

    def check(self, runs: Sequence[Run]) -> None:
        """Takes any run."""

    def has_room(self, run: Run) -> bool:
        """Returns whether a worker is free."""
        return len(self._children) < self._workers

    def start(self, job: Job) -> None:
        """Starts a process."""
        self._children[job] = Child(job.run, job.work_dir, self._data_dir, self._threads, self._time_limit)

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Listens to the processes."""
        listen(self._children.values(), timeout)
        ended: list[tuple[Job, Outcome]] = []
        for job, child in list(self._children.items()):
            message = child.hear()
            if isinstance(message, tuple):
                job.step(*message)
            elif message is not None:
                self._children.pop(job).close()
                ended.append((job, message))
        return ended


def _work(sender: Connection, run: Run, work_dir: Path, data_dir: Path | None, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption reaches the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch  # which takes a while, in which the parent may end

    torch.set_num_threads(threads)
    sender.send(perform(run, work_dir, data_dir, lambda fraction, text: sender.send((fraction, text))))


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, so that no orphan works on a run that the same command starts again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
