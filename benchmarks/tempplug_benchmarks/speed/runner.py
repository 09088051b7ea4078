"""Measures the cases of a plan one after the other, never two at once, each result on disk before the next one starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.resume import left_of
from tempplug_benchmarks.speed.case import MAIN_NUMBER, OURS, Case, Setting
from tempplug_benchmarks.speed.child import ChildError, in_child
from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.store import SpeedResult, SpeedRun, difference, write_speed_result

UNITS = {"milliseconds": "ms", "mebibytes": "MiB", "gradient_error": "gradient error"}


def plan(suite: str, profile: str, cases: Sequence[Case], setting: Setting) -> tuple[SpeedRun, ...]:
    """Returns the runs of these cases, each with the optional packages that are installed now.

    Args:
        suite: name of the suite.
        profile: name of the profile.
        cases: what to measure.
        setting: how.
    """
    return tuple(SpeedRun(suite, profile, case, setting, _installed(case)) for case in cases)


def _installed(case: Case) -> tuple[str, ...]:
    ways = [LOSSES[case.loss].implementation(name) for name in case.implementations]
    return tuple(sorted({way.package for way in ways if way.package and way.installed}))


def execute(runs: Sequence[SpeedRun], output: Path, progress: Progress, rerun_changed: bool = False) -> list[SpeedResult]:
    """Measures what is left of a plan.

    Args:
        runs: the plan.
        output: folder of results.
        progress: is told of every start and end.
        rerun_changed: whether stored results of other cases or settings are replaced.

    Returns:
        The cases that failed; the same command tries them again.

    Raises:
        ConfigError: a stored result is of another experiment and ``rerun_changed`` is false.
    """
    todo = left_of(runs, output, difference, rerun_changed)
    failures: list[SpeedResult] = []
    with progress:
        progress.begin(len(runs), todo.finished, todo.corrupt)
        for run in todo.runs:
            progress.start(run.describe())
            run.path(output).unlink(missing_ok=True)
            started = time.perf_counter()
            try:
                answer = in_child(run.case, run.setting)
            except ChildError as error:
                answer = {"error": str(error)}
            result = write_speed_result(run, output, answer, time.perf_counter() - started)
            if result.error:
                failures.append(result)
            progress.finish(run.describe(), f"{run.describe()}: {outcome_words(result)} ({result.seconds:.1f} s)")
    return failures


def outcome_words(result: SpeedResult) -> str:
    """Returns tempplug's number of a case and how it compares, in a few words."""
    if result.error:
        return f"failed: {result.error.splitlines()[-1]}"
    name = MAIN_NUMBER[result.run.case.quantity]
    own = result.number(OURS, name)
    if own is None:
        return "nothing measured"
    parts = [f"{own:.3g} {UNITS[name]}"]
    for other in result.run.case.implementations[1:]:
        value = result.number(other, name)
        if value is not None and own > 0:
            parts.append(f"{value / own:.2f}× {other}")
    return ", ".join(parts)
