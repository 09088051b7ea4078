"""Runs in processes of their own, several at once: a crash or a lack of memory costs one run, not the program.

A process executes one run after the other, because it loads its frameworks for seconds. It must not know what a run is made of,
nor where results are kept.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
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
    """A process that executes runs, one at a time.

    Args:
        data_dir: folder of real data, None where none was given.
        threads: of torch, at least 1.
    """

    def __init__(self, data_dir: Path | None, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, data_dir, threads))
        self._process.start()
        other.close()  # so that the end of the process ends the pipe
        self._run: Run | None = None

    def start(self, run: Run, work_dir: Path, time_limit: float | None = None) -> None:
        """Hands it a run, where it has none.

        Args:
            run: which one.
            work_dir: folder for checkpoints.
            time_limit: seconds that the run may take, None where it may take as long as it does.
        """
        self._run, self._time_limit = run, time_limit
        self._until = math.inf if time_limit is None else time.monotonic() + time_limit
        with suppress(BrokenPipeError):  # it ended meanwhile, which `hear` tells
            self._connection.send((run, work_dir))

    @property
    def alive(self) -> bool:
        """Whether the process can take another run."""
        return self._process.is_alive()

    @property
    def handles(self) -> tuple[Connection, int]:
        """What `multiprocessing.connection.wait` waits for: a message, or the end of the process."""
        return self._connection, self._process.sentinel

    def left(self) -> float:
        """Returns the seconds that the run has left; infinity without a limit."""
        return self._until - time.monotonic()

    def hear(self) -> Message | None:
        """Returns the next message of the run, None where there is none yet. One that takes too long is ended."""
        assert self._run is not None
        over = self.left() <= 0
        if over:
            self._process.kill()
            self._process.join()
        ended = not self.alive
        while self._connection.poll():  # what it said before its end comes first
            try:
                message: Message = self._connection.recv()
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

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def listen(children: Collection[Child], timeout: float) -> None:
    """Waits until one of them has something to say, or its time is over.

    Args:
        children: to listen to.
        timeout: seconds after which it returns anyhow.
    """
    left = min((child.left() for child in children), default=timeout)
    wait([handle for child in children for handle in child.handles], max(0.0, min(left, timeout)))


class InProcesses:
    """Carries out several runs at once on this machine, in a process each; torch's threads are divided among them.

    Args:
        data_dir: folder of real data, None where none was given.
        workers: processes at once, at least 1.
        time_limit: seconds that a run may take, None where it may take as long as it does.
    """

    attempts = 1

    def __init__(self, data_dir: Path | None, workers: int, time_limit: float | None = None) -> None:
        self._data_dir, self._workers, self._time_limit = data_dir, workers, time_limit
        self._children: dict[Job, Child] = {}
        self._idle: list[Child] = []

    def __enter__(self) -> Self:
        import torch

        self._threads = max(1, torch.get_num_threads() // self._workers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in (*self._children.values(), *self._idle):
            child.close()

    def check(self, runs: Sequence[Run]) -> None:
        """Takes any run."""

    def has_room(self, run: Run) -> bool:
        """Returns whether a worker is free."""
        return len(self._children) < self._workers

    def start(self, job: Job) -> None:
        """Hands the run to a process that has none, or to a new one."""
        child = self._idle.pop() if self._idle else Child(self._data_dir, self._threads)
        child.start(job.run, job.work_dir, self._time_limit)
        self._children[job] = child

    def wait(self, timeout: float) -> list[tuple[Job, Outcome]]:
        """Listens to the processes."""
        listen(self._children.values(), timeout)
        ended: list[tuple[Job, Outcome]] = []
        for job, child in list(self._children.items()):
            message = child.hear()
            if isinstance(message, tuple):
                job.step(*message)
            elif message is not None:
                del self._children[job]
                if isinstance(message, Lost) or not child.alive:
                    child.close()
                else:
                    self._idle.append(child)
                ended.append((job, message))
        return ended


def _work(connection: Connection, data_dir: Path | None, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption reaches the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch  # which takes a while, in which the parent may end

    torch.set_num_threads(threads)
    while True:
        run, work_dir = connection.recv()
        connection.send(perform(run, work_dir, data_dir, lambda fraction, text: connection.send((fraction, text))))


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, so that no orphan works on a run that the same command starts again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
