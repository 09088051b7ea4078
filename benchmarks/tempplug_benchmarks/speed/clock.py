"""Clocks, alternating measurements that make times comparable, and busy processes for measurements under load."""

from __future__ import annotations

import gc
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

MIN_ROUNDS = 3
MAX_ROUNDS = 500
# A sample repeats a fast call until it is longer than this, so that the cost of reading the clock is negligible.
SAMPLE_SECONDS = 2e-3

Clock = Callable[[Callable[[], object], int], float]


def _seconds(nanoseconds: Callable[[], int], call: Callable[[], object], calls: int) -> float:
    """Returns the duration of a number of calls, in seconds of a system clock."""
    start = nanoseconds()
    for _ in range(calls):
        call()
    return (nanoseconds() - start) * 1e-9


def _cuda_seconds(call: Callable[[], object], calls: int) -> float:
    """Returns the time between two CUDA events around a number of calls, in seconds."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


CLOCKS: dict[str, Clock] = {
    "cpu": partial(_seconds, time.process_time_ns),
    "wall": partial(_seconds, time.perf_counter_ns),
    "cuda": _cuda_seconds,
}
"""CPU time of the process, wall time, or CUDA events, in seconds of so many calls."""


def alternate(
    steps: Mapping[str, Callable[[], object]], clock: Clock, budget: float, between: Callable[[], object] | None = None
) -> dict[str, dict[str, float]]:
    """Times the steps in turn, reversing the order every round, so that drift of the machine affects all of them equally.

    Args:
        steps: at least one; either all or none of them have been called before.
        clock: a key of `CLOCKS`.
        budget: seconds of wall time; at least `MIN_ROUNDS` rounds are made.
        between: other work that is not timed. If given, each round also times one cold call right after this work.

    Returns:
        For each step, the median ``milliseconds`` of a call, ``milliseconds_cold`` with ``between``, ``rounds``, ``calls`` in a
        round, and ``cpu_per_wall``, which is close to the number of threads on an idle machine.
    """
    calls = {name: _calls(step, clock) for name, step in steps.items()}
    hot: dict[str, list[float]] = {name: [] for name in steps}
    cold: dict[str, list[float]] = {name: [] for name in steps}
    cpu, wall = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    order = list(steps)
    gc.collect()
    gc.disable()  # garbage collection would otherwise run within a sample
    try:
        started, rounds = time.perf_counter(), 0
        while rounds < MIN_ROUNDS or (time.perf_counter() - started < budget and rounds < MAX_ROUNDS):
            rounds += 1
            for name in order:
                if between:
                    between()
                    cold[name].append(clock(steps[name], 1))
                    clock(steps[name], calls[name] - 1)  # warm up again
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                hot[name].append(clock(steps[name], calls[name]) / calls[name])
                cpu[name] += time.process_time() - cpu_start
                wall[name] += time.perf_counter() - wall_start
            order.reverse()
    finally:
        gc.enable()
    return {
        name: {
            "milliseconds": statistics.median(hot[name]) * 1e3,
            **({"milliseconds_cold": statistics.median(cold[name]) * 1e3} if between else {}),
            "rounds": rounds,
            "calls": calls[name],
            "cpu_per_wall": cpu[name] / wall[name],
        }
        for name in steps
    }


def _calls(step: Callable[[], object], clock: Clock) -> int:
    return max(1, math.ceil(SAMPLE_SECONDS / max(clock(step, 1), 1e-9)))


COUNT = 2
# Each process polls its parent, so that it exits even if the measurement is killed.
_SPIN = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    for _ in range(100_000):\n        pass\n"


@contextmanager
def neighbours(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runs ``count`` (at least 0) busy processes during the block and yields them; they also end with this process."""
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]) for _ in range(count)]
    try:
        yield spinners
    finally:
        for spinner in spinners:
            spinner.terminate()
        for spinner in spinners:
            spinner.wait()
