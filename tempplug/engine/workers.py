"""One thread a tile: work on many tiles at once, with sums that come out the same whatever the number of threads.

Splitting every operation among threads makes each of them wait at a barrier hundreds of times a step, and on a busy machine
each wait lasts as long as the slowest thread is kept from its core. Here a thread works on its tile alone; it waits only where
an earlier tile has yet to add to the same sums, because additions in another order would give other last digits.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Task = TypeVar("Task")
_lock = threading.Lock()
_pool: tuple[int, int, ThreadPoolExecutor] | None = None


class Turns:
    """Lets the tiles add to a shared sum one after the other, in the order of their numbers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: dict[Hashable, int] = defaultdict(int)
        self.failed = False

    def take(self, key: Hashable, turn: int, add: Callable[[Tensor], object], summand: Tensor) -> None:
        """Waits for the turn of this sum, adds, and lets the next one in.

        Raises:
            RuntimeError: another tile failed, so that the turn will not come.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.failed or self._next[key] == turn)
            if self.failed:
                raise RuntimeError("another tile failed.")
        add(summand)
        with self._changed:
            self._next[key] += 1
            self._changed.notify_all()

    def fail(self) -> None:
        """Releases everybody who waits."""
        with self._changed:
            self.failed = True
            self._changed.notify_all()


class InOrder:
    """The turns of a single thread, which comes to every tile in order."""

    def take(self, key: Hashable, turn: int, add: Callable[[Tensor], object], summand: Tensor) -> None:
        """Adds."""
        add(summand)


def run(tasks: Sequence[Task], work: Callable[[Task, Turns | InOrder], None], threads: int) -> None:
    """Does all tasks, each on one thread, in the order in which they are given as far as threads allow.

    Args:
        tasks: the tiles.
        work: what to do with one; it adds to shared sums through the turns that it is handed.
        threads: how many at once; 1 runs them in the caller's thread, with whatever threads torch uses there.

    Raises:
        Exception: the first that a task raised.
    """
    if threads == 1 or len(tasks) == 1:
        in_order = InOrder()
        for task in tasks:
            work(task, in_order)
        return
    turns, waiting, errors = Turns(), iter(tasks), []
    inference = torch.is_inference_mode_enabled()

    def loop() -> None:
        # Modes of torch belong to the thread that set them.
        with torch.inference_mode(inference), torch.no_grad():
            while not turns.failed:
                with _lock:
                    task = next(waiting, None)
                if task is None:
                    return
                try:
                    work(task, turns)
                except Exception as error:
                    if not turns.failed:
                        errors.append(error)
                    turns.fail()

    pool, own = lone_threads(threads), torch.get_num_threads()
    # MKL's number of threads is that of the process, so meanwhile the caller has one as well.
    torch.set_num_threads(1)
    try:
        for future in [pool.submit(loop) for _ in range(threads)]:
            future.result()
    finally:
        torch.set_num_threads(own)
    if errors:
        raise errors[0]


def lone_threads(count: int) -> ThreadPoolExecutor:
    """Returns the pool of threads whose operations have one thread each.

    Made anew where the number of threads changed or this process is a fork of the one that made it.

    Args:
        count: of the threads, at least 1.
    """
    global _pool
    with _lock:
        if _pool is None or _pool[:2] != (os.getpid(), count):
            if _pool is not None and _pool[0] == os.getpid():
                _pool[2].shutdown(wait=False)
            _pool = os.getpid(), count, _new_pool(count)
        return _pool[2]


def _new_pool(count: int) -> ThreadPoolExecutor:
    own = torch.get_num_threads()
    ready = threading.Barrier(count + 1)

    def alone() -> None:
        # Each worker computes on its own. Asking first matters: torch sets a thread's number when it is first asked for, and
        # would undo ours. The setting is partly global, so the caller restores it once all have started.
        torch.get_num_threads()
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="tempplug-tile")
    for _ in range(count):
        pool.submit(alone)
    ready.wait()
    torch.set_num_threads(own)
    return pool
