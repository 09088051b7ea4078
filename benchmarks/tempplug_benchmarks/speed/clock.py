"""Clocks, and the alternation that makes their figures comparable. It must not know what is timed."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

MIN_ROUNDS = 3
MAX_ROUNDS = 500
# A sample repeats a fast call until it is longer than this, so that reading a clock costs nothing beside it.
SAMPLE_SECONDS = 2e-3

Clock = Callable[[Callable[[], object], int], float]


@dataclass(frozen=True)
class Times:
    """What one implementation took.

    Attributes:
        median: seconds a call.
        rounds: samples.
        calls: in a sample.
        cpu_per_wall: CPU time of the process over wall time; near the number of threads on a quiet machine.
        cold: median seconds of a call after other work; None where there was none.
    """

    median: float
    rounds: int
    calls: int
    cpu_per_wall: float
    cold: float | None


def cpu_seconds(call: Callable[[], object], calls: int) -> float:
    """Returns the CPU time of the process that a number of calls took, in seconds."""
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) * 1e-9


def wall_seconds(call: Callable[[], object], calls: int) -> float:
    """Returns the wall time that a number of calls took, in seconds."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - start) * 1e-9


def cuda_seconds(call: Callable[[], object], calls: int) -> float:
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


CLOCKS: dict[str, Clock] = {"cpu": cpu_seconds, "wall": wall_seconds, "cuda": cuda_seconds}


def alternate(
    steps: Mapping[str, Callable[[], object]], clock: Clock, budget: float, between: Callable[[], object] | None = None
) -> dict[str, Times]:
    """Times calls in turn, the order reversed every round, so that what changes with time meets all of them alike.

    Args:
        steps: at least one, each called before or not at all.
        clock: of `CLOCKS`.
        budget: seconds of wall time; at least `MIN_ROUNDS` rounds are made.
        between: other work, not timed. Every sample then has a cold call before it: one call, timed alone, after this work.
    """
    calls = {name: _calls(step, clock) for name, step in steps.items()}
    samples: dict[str, list[float]] = {name: [] for name in steps}
    cold: dict[str, list[float]] = {name: [] for name in steps}
    cpu, wall = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    order = list(steps)
    with _without_collector():
        started = time.perf_counter()
        while len(samples[order[0]]) < MIN_ROUNDS or (
            time.perf_counter() - started < budget and len(samples[order[0]]) < MAX_ROUNDS
        ):
            for name in order:
                if between:
                    between()
                    cold[name].append(clock(steps[name], 1))
                    clock(steps[name], calls[name] - 1)  # hot again
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                samples[name].append(clock(steps[name], calls[name]) / calls[name])
                cpu[name] += time.process_time() - cpu_start
                wall[name] += time.perf_counter() - wall_start
            order.reverse()
    return {
        name: Times(
            median=statistics.median(found),
            rounds=len(found),
            calls=calls[name],
            cpu_per_wall=cpu[name] / wall[name],
            cold=statistics.median(cold[name]) if between else None,
        )
        for name, found in samples.items()
    }


def _calls(step: Callable[[], object], clock: Clock) -> int:
    return max(1, math.ceil(SAMPLE_SECONDS / max(clock(step, 1), 1e-9)))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keeps Python's garbage collector from running within a sample."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
