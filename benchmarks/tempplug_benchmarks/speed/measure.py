"""Measures a case in this process: time, memory or accuracy of every installed implementation.

Measurements that fail are recorded with the reason.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

import torch

from tempplug.errors import NonFiniteError
from tempplug_benchmarks.run.child import end_with_parent
from tempplug_benchmarks.run.fields import plain
from tempplug_benchmarks.speed.clock import CLOCKS, COUNT, alternate, neighbours
from tempplug_benchmarks.speed.losses import LOSSES, Implementation
from tempplug_benchmarks.speed.machine import executed_operations, limit_memory, matmul_rate, peak_growth
from tempplug_benchmarks.speed.recipe import OURS, SpeedRecipe
from tempplug_benchmarks.speed.step import Step, network_step, views

WARM_UP_ROWS = 64
Made = TypeVar("Made")
Outcome = dict[str, float | str]
"""Numbers by name, the unit in the name, and a ``note``: the engine of tempplug, or why there are no numbers."""
Ways = Mapping[str, Implementation]


def measure_alone(case: SpeedRecipe, figure: str) -> dict[str, Outcome]:
    """Calls `measure` in this process, which must not run anything else, after limiting its memory.

    Memory is measured in a new process for each implementation, so that freed memory does not distort it.

    Args:
        case: the case to measure.
        figure: ``milliseconds``, ``mebibytes`` or ``gradient_error``.
    """
    if case.device == "cpu":
        limit_memory()
    if figure != "mebibytes":
        return measure(case, figure)
    fresh = partial(ProcessPoolExecutor, 1, get_context("spawn"), end_with_parent, max_tasks_per_child=1)
    with fresh() as processes:
        return {name: processes.submit(measure, case, figure, name).result()[name] for name in case.implementations}


def measure(case: SpeedRecipe, figure: str, only: str = "") -> dict[str, Outcome]:
    """Returns the measurement of each implementation of a case, by name.

    Args:
        case: the case to measure.
        figure: ``milliseconds``, ``mebibytes`` or ``gradient_error``.
        only: the only implementation to measure; empty for all.

    Raises:
        Exception: tempplug itself failed; failures of other implementations are recorded.
    """
    torch.set_num_threads(case.threads)
    ways = {name: LOSSES[case.loss_name].implementation(name) for name in case.implementations if only in ("", name)}
    present = {name: way for name, way in ways.items() if way.installed}
    found = {"milliseconds": _time, "mebibytes": _memory, "gradient_error": _accuracy}[figure](case, present)
    return {name: _checked(name, found[name]) if name in found else {"note": "not installed"} for name in ways}


def _time(case: SpeedRecipe, ways: Ways) -> dict[str, Outcome]:
    pair = views(case)

    def ready(way: Implementation) -> Step:
        step = Step(way.make(case.temperature), *pair)
        step()
        if way.is_compiled:
            # Fail here instead of recompiling during the measurement.
            with torch.compiler.set_stance("fail_on_recompile"):
                step()
        return step

    tried = {name: _tried(name, partial(ready, way)) for name, way in ways.items()}
    steps = {name: step for name, step in tried.items() if isinstance(step, Step)}
    outcomes = {name: outcome for name, outcome in tried.items() if not isinstance(outcome, Step)}
    between = network_step(case.device) if case.rows <= case.cold else None
    with neighbours(COUNT if case.busy else 0):
        times = alternate(steps, CLOCKS[case.clock], case.budget, between)
        rate = matmul_rate(case)
    for name, step in steps.items():
        numbers = times[name] | {"loss": float(step.value)}
        if operations := executed_operations(case, step.engine):
            share = operations / (numbers["milliseconds"] * 1e-3) / rate
            numbers |= {"matmul_teraflops": rate * 1e-12, "matmul_share": share}
        outcomes[name] = {**numbers, **step.note}
    return outcomes


def _memory(case: SpeedRecipe, ways: Ways) -> dict[str, Outcome]:
    def one(way: Implementation) -> Outcome:
        function = way.make(case.temperature)
        # Make a small step first: libraries load code and allocate workspaces on their first call.
        Step(function, *views(case, rows=min(WARM_UP_ROWS, case.rows)))()
        step = Step(function, *views(case))
        gc.collect()
        return {"mebibytes": peak_growth(step, case.device), "loss": float(step.value), **step.note}

    return {name: _tried(name, partial(one, way)) for name, way in ways.items()}


def _accuracy(case: SpeedRecipe, ways: Ways) -> dict[str, Outcome]:
    """Compares the gradient with that of the eager formula in float64 on the same embeddings."""
    pair = views(case)
    first, second = (view.detach().double().requires_grad_() for view in pair)
    exact = Step(LOSSES[case.loss_name].eager(case.temperature), first, second)
    exact()
    reference = exact.gradient()

    def one(way: Implementation) -> Outcome:
        step = Step(way.make(case.temperature), *pair)
        step()
        return {
            "gradient_error": float((step.gradient() - reference).abs().max() / reference.abs().max()),
            "loss_error": abs(float(step.value) - float(exact.value)) / abs(float(exact.value)),
            "loss": float(step.value),
            **step.note,
        }

    return {name: _tried(name, partial(one, way)) for name, way in ways.items()}


def _tried(name: str, make: Callable[[], Made]) -> Made | Outcome:
    """Returns the result of a function, or a record of its failure; a failure of tempplug is raised."""
    try:
        return make()
    except Exception as error:
        if name == OURS:
            raise
        return {"note": f"failed: {type(error).__name__}: {plain(str(error))[:200]}"}


def _checked(name: str, outcome: Outcome) -> Outcome:
    """Returns the measurement, or a failure if a number is not finite, because results must contain finite numbers."""
    wrong = [f"{key} is {value}" for key, value in outcome.items() if not isinstance(value, str) and not math.isfinite(value)]
    if wrong and name == OURS:
        raise NonFiniteError(f"{name}: {', '.join(wrong)}, which must be finite.")
    return {"note": f"failed: {', '.join(wrong)}"} if wrong else outcome
