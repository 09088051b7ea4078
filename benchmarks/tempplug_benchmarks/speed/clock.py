"""Clocks, the alternation that makes their figures comparable, and busy processes beside it. It must not know what is timed."""

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
# A sample repeats a fast call until it is longer than this, so that reading a clock costs nothing beside it.
SAMPLE_SECONDS = 2e-3

Clock = Callable[[Callable[[], object], int], float]


def _seconds(nanoseconds: Callable[[], int], call: Callable[[], object], calls: int) -> float:
    """Returns the seconds that a number of calls took by a clock of the system."""
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
    """Times calls in turn, the order reversed every round, so that what changes with time meets all of them alike.

    Args:
        steps: at least one, each called before or not at all.
        clock: of `CLOCKS`.
        budget: seconds of wall time; at least `MIN_ROUNDS` rounds are made.
        between: other work, not timed. Every sample then has a cold call before it: one call, timed alone, after this work.

    Returns:
        For each the median ``milliseconds`` of a call, ``milliseconds_cold`` where there was other work, ``rounds``, ``calls``
        in a round, and ``cpu_per_wall``, near the number of threads on a quiet machine.
    """
    calls = {name: _calls(step, clock) for name, step in steps.items()}
    hot: dict[str, list[float]] = {name: [] for name in steps}
    cold: dict[str, list[float]] = {name: [] for name in steps}
    cpu, wall = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    order = list(steps)
    gc.collect()
    gc.disable()  # it would run within a sample
    try:
        started, rounds = time.perf_counter(), 0
        while rounds < MIN_ROUNDS or (time.perf_counter() - started < budget and rounds < MAX_ROUNDS):
            rounds += 1
            for name in order:
                if between:
                    between()
                    cold[name].append(clock(steps[name], 1))
                    clock(steps[name], calls[name] - 1)  # hot again
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
# A process looks for its parent now and then, so that none is left behind however the measurement ends.
_SPIN = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    for _ in range(100_000):\n        pass\n"


@contextmanager
def neighbours(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runs that many spinning processes beside the block; they end with it, or with this process. Gives them.

    Args:
        count: at least 0.
    """
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]) for _ in range(count)]
    try:
        yield spinners
    finally:
        for spinner in spinners:
            spinner.terminate()
        for spinner in spinners:
            spinner.wait()
