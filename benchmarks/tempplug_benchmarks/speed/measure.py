"""Measures a case in this process: time, memory or exactness of every implementation that is installed.

What cannot be measured is kept with its reason, never left out. It must not know where results are stored.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import torch

from tempplug_benchmarks.speed.case import OURS, Case, Outcome, Setting
from tempplug_benchmarks.speed.clock import CLOCKS, alternate
from tempplug_benchmarks.speed.losses import LOSSES, Implementation, Loss
from tempplug_benchmarks.speed.matmul import executed_operations, matmul_rate
from tempplug_benchmarks.speed.memory import peak_growth
from tempplug_benchmarks.speed.neighbours import COUNT, neighbours
from tempplug_benchmarks.speed.step import Step, network_step, views

WARM_UP_ROWS = 64
Made = TypeVar("Made")


def measure(case: Case, setting: Setting, only: str = "") -> dict[str, Outcome]:
    """Returns the outcome of every implementation of a case, by name.

    Args:
        case: what to measure.
        setting: how.
        only: measure this implementation alone, as memory wants it: each in a fresh process. Empty for all.

    Raises:
        Exception: tempplug itself failed; what another implementation raises is its outcome.
    """
    torch.set_num_threads(setting.threads)
    loss = LOSSES[case.loss]
    ways = {name: loss.implementation(name) for name in case.implementations if only in ("", name)}
    outcomes = {name: Outcome("not installed", note="not installed") for name, way in ways.items() if not way.installed}
    present = {name: way for name, way in ways.items() if way.installed}
    by_quantity = {"time": _time, "memory": _memory, "accuracy": _accuracy}
    outcomes |= by_quantity[case.quantity](case, setting, loss, present)
    return {name: outcomes[name] for name in ways}


def _time(case: Case, setting: Setting, loss: Loss, ways: Mapping[str, Implementation]) -> dict[str, Outcome]:
    pair = views(case.rows, case.dimension, setting)

    def ready(way: Implementation) -> Step:
        step = Step(way.make(case.temperature), *pair)
        step()
        if way.is_compiled:
            # What would compile again when it is timed fails here.
            with torch.compiler.set_stance("fail_on_recompile"):
                step()
        return step

    tried = {name: _tried(name, partial(ready, way)) for name, way in ways.items()}
    steps = {name: step for name, step in tried.items() if isinstance(step, Step)}
    outcomes = {name: outcome for name, outcome in tried.items() if isinstance(outcome, Outcome)}
    between = network_step(setting.device) if case.rows <= setting.cold else None
    with neighbours(COUNT if setting.busy else 0):
        times = alternate(steps, CLOCKS[setting.clock], setting.budget, between)
        rate = matmul_rate(setting)
    for name, step in steps.items():
        each = times[name]
        numbers = {
            "milliseconds": each.median * 1e3,
            "rounds": each.rounds,
            "calls": each.calls,
            "cpu_per_wall": each.cpu_per_wall,
            "loss": float(step.value),
        }
        if each.cold is not None:
            numbers["milliseconds_cold"] = each.cold * 1e3
        if operations := executed_operations(case, step.engine):
            numbers |= {"matmul_teraflops": rate * 1e-12, "matmul_share": operations / each.median / rate}
        outcomes[name] = Outcome("measured", numbers, step.engine)
    return outcomes


def _memory(case: Case, setting: Setting, loss: Loss, ways: Mapping[str, Implementation]) -> dict[str, Outcome]:
    def one(way: Implementation) -> Outcome:
        function = way.make(case.temperature)
        # A small step first: libraries load code and keep workspaces at their first call.
        Step(function, *views(min(WARM_UP_ROWS, case.rows), case.dimension, setting))()
        step = Step(function, *views(case.rows, case.dimension, setting))
        gc.collect()
        numbers = {"mebibytes": peak_growth(step, setting.device)}
        return Outcome("measured", {**numbers, "loss": float(step.value)}, step.engine)

    return {name: _tried(name, partial(one, way)) for name, way in ways.items()}


def _accuracy(case: Case, setting: Setting, loss: Loss, ways: Mapping[str, Implementation]) -> dict[str, Outcome]:
    """Compares with the eager formula in float64 on the same embeddings."""
    pair = views(case.rows, case.dimension, setting)
    first, second = (view.detach().double().requires_grad_() for view in pair)
    exact = Step(loss.eager(case.temperature), first, second)
    exact()
    reference = exact.gradient()

    def one(way: Implementation) -> Outcome:
        step = Step(way.make(case.temperature), *pair)
        step()
        numbers = {
            "gradient_error": float((step.gradient() - reference).abs().max() / reference.abs().max()),
            "loss_error": abs(float(step.value) - float(exact.value)) / abs(float(exact.value)),
            "loss": float(step.value),
        }
        return Outcome("measured", numbers, step.engine)

    return {name: _tried(name, partial(one, way)) for name, way in ways.items()}


def _tried(name: str, make: Callable[[], Made]) -> Made | Outcome:
    """Returns what is made, or the outcome of its failure; tempplug's own failure is raised."""
    try:
        return make()
    except Exception as error:
        if name == OURS:
            raise
        words = " ".join(str(error).split())
        return Outcome("failed", note=f"{type(error).__name__}: {words[:200]}")
