"""Measures a case in this process: time, memory or exactness of every implementation that is installed.

What cannot be measured is kept with its reason, never left out. It must not know where results are stored.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

import torch

from tempplug_benchmarks.speed.case import OURS, Case, Outcome, Setting
from tempplug_benchmarks.speed.clock import CLOCKS, WARM_UPS, alternate
from tempplug_benchmarks.speed.losses import LOSSES, Implementation, Loss
from tempplug_benchmarks.speed.matmul import executed_operations, matmul_rate
from tempplug_benchmarks.speed.memory import peak_growth
from tempplug_benchmarks.speed.neighbours import COUNT, neighbours
from tempplug_benchmarks.speed.step import Step, views

WARM_UP_ROWS = 64


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
    steps: dict[str, Step] = {}
    outcomes: dict[str, Outcome] = {}
    for name, way in ways.items():
        try:
            step = Step(way.make(case.temperature), *pair)
            for _ in range(WARM_UPS):
                step()
            steps[name] = step
        except Exception as error:
            outcomes[name] = _failed(name, error)
    with neighbours(COUNT if setting.busy else 0):
        times = alternate(steps, CLOCKS[setting.clock], setting.budget)
    rate = matmul_rate() if setting.device == "cuda" else 0.0
    for name, step in steps.items():
        each = times[name]
        numbers = {
            "milliseconds": each.median * 1e3,
            "minimum_milliseconds": each.minimum * 1e3,
            "rounds": each.rounds,
            "calls": each.calls,
            "cpu_per_wall": each.cpu_per_wall,
        }
        if ways[name].has_loss:
            numbers["loss"] = float(step.value)
        operations = executed_operations(case, step.engine)
        if rate and operations:
            numbers |= {"matmul_teraflops": rate * 1e-12, "matmul_share": operations / each.median / rate}
        outcomes[name] = Outcome("measured", numbers, step.engine)
    return outcomes


def _memory(case: Case, setting: Setting, loss: Loss, ways: Mapping[str, Implementation]) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for name, way in ways.items():
        try:
            function = way.make(case.temperature)
            # A small step first: libraries load code and keep workspaces at their first call.
            Step(function, *views(min(WARM_UP_ROWS, case.rows), case.dimension, setting))()
            step = Step(function, *views(case.rows, case.dimension, setting))
            gc.collect()
            numbers = {"mebibytes": peak_growth(step, setting.device)}
            outcomes[name] = Outcome("measured", {**numbers, "loss": float(step.value)}, step.engine)
        except Exception as error:
            outcomes[name] = _failed(name, error)
    return outcomes


def _accuracy(case: Case, setting: Setting, loss: Loss, ways: Mapping[str, Implementation]) -> dict[str, Outcome]:
    """Compares with the eager formula in float64 on the same embeddings."""
    pair = views(case.rows, case.dimension, setting)
    first, second = (view.detach().double().requires_grad_() for view in pair)
    exact = Step(loss.eager(case.temperature), first, second)
    exact()
    reference = exact.gradient()
    outcomes: dict[str, Outcome] = {}
    for name, way in ways.items():
        try:
            step = Step(way.make(case.temperature), *pair)
            step()
            numbers = {
                "gradient_error": float((step.gradient() - reference).abs().max() / reference.abs().max()),
                "loss_error": abs(float(step.value) - float(exact.value)) / abs(float(exact.value)),
                "loss": float(step.value),
            }
            outcomes[name] = Outcome("measured", numbers, step.engine)
        except Exception as error:
            outcomes[name] = _failed(name, error)
    return outcomes


def _failed(name: str, error: Exception) -> Outcome:
    if name == OURS:
        raise error
    words = " ".join(str(error).split())
    return Outcome("failed", note=f"{type(error).__name__}: {words[:200]}")
