"""One thread a tile: work on many tiles at once, whose results come back in the order of the tiles.

Splitting every operation among threads has a barrier hundreds of times a step, each as slow as the slowest thread. Here a
thread works on its tile alone, and the caller adds up the results in the order of the tiles, so that the last digits do not
depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")
# Below so many pairs one thread is done before others have started.
WORTH_THREADS = 1 << 20
# Tiles of each thread whose results may wait for the caller.
AHEAD = 3
_lock = threading.Lock()
_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], threads: int) -> Iterator[Result]:
    """Returns what ``work`` returns of each task, one after the other in their order, from this many threads.

    A task must not touch the data of others. One thread means the caller's, with whatever threads torch uses there.
    """
    return map(work, tasks) if threads == 1 else _from_threads(work, tasks, threads)


def _from_threads(work: Callable[[Task], Result], tasks: Iterable[Task], threads: int) -> Iterator[Result]:
    inference = torch.is_inference_mode_enabled()

    def alone(task: Task) -> Result:
        # Modes of torch belong to the thread that set them.
        with torch.inference_mode(inference), torch.no_grad():
            return work(task)

    pool, caller_threads = _lone_threads(threads), torch.get_num_threads()
    # MKL's number of threads is that of the process, so meanwhile the caller has one as well.
    torch.set_num_threads(1)
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(alone, task))
            # Results that wait for a caller without a core of its own would add up to the memory of the whole matrix.
            if len(waiting) > AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        torch.set_num_threads(caller_threads)


def _lone_threads(count: int) -> ThreadPoolExecutor:
    """Returns threads whose operations have one thread each, made anew after a fork or for another number."""
    global _pool
    with _lock:
        if _pool is None or _pool[:2] != (os.getpid(), count):
            if _pool is not None and _pool[0] == os.getpid():
                _pool[2].shutdown(wait=False)
            _pool = os.getpid(), count, _new_pool(count)
        return _pool[2]


def _new_pool(count: int) -> ThreadPoolExecutor:
    caller_threads, ready = torch.get_num_threads(), threading.Barrier(count + 1)

    def start() -> None:
        # torch sets a thread's number at the first call of this, and would undo the next line.
        torch.get_num_threads()
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="tempplug-tile")
    for _ in range(count):
        pool.submit(start)
    ready.wait()
    # The setting is partly global.
    torch.set_num_threads(caller_threads)
    return pool
