"""Measures a case in this process: time, memory or accuracy of every installed implementation.

Measurements that fail are recorded with the reason.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, NonFiniteError
from tempplug.processor import onednn_product, product_route
from tempplug_benchmarks.run.executor import end_with_parent
from tempplug_benchmarks.run.fields import plain
from tempplug_benchmarks.speed.clock import CLOCKS, COUNT, alternate, neighbours
from tempplug_benchmarks.speed.formulas import LossFunction
from tempplug_benchmarks.speed.losses import LOSSES, Implementation
from tempplug_benchmarks.speed.recipe import OURS, SpeedRecipe

# Rows, inner dimension and columns of products on a device: square ones, and the two shapes that a loss uses.
SHAPES = {"cpu": ((1024, 1024, 1024), (2048, 128, 2048), (2048, 2048, 128)), "cuda": ((8192, 8192, 8192),)}
REPEATS = 5
# The triton engine computes similarities again in its backward pass: N × M products of narrow embeddings and of wide ones,
# and of a square only its upper half, the diagonal's share of which is not counted here.
TRITON = {"two-view": (3, 2.5), "one-way": (5, 4), "two-way": (6, 5)}
WIDEST_NARROW = 256


def matmul_rate(case: SpeedRecipe) -> float:
    """Returns the best rate of a few large matrix products, in floating-point operations per second.

    On a CPU they are computed by torch, and also by oneDNN if tempplug uses oneDNN on this processor.

    Args:
        case: gives the device, precision and clock.
    """
    clock, rates = CLOCKS[case.clock], []
    for rows, inner, columns in SHAPES[case.device]:
        of = {"device": case.device, "dtype": getattr(torch, case.precision)}
        left, right = torch.randn(rows, inner, **of), torch.randn(inner, columns, **of)
        products: list[Callable[[], object]] = [partial(torch.mm, left, right, out=torch.empty(rows, columns, **of))]
        if case.device == "cpu" and product_route() == "onednn":
            products.append(partial(onednn_product, left, right.T.contiguous()))
        seconds = [clock(product, 1) for product in products for _ in range(REPEATS)]
        rates.append(2 * rows * inner * columns / min(seconds))
    return max(rates)


def executed_operations(case: SpeedRecipe, engine: str) -> float | None:
    """Returns the floating-point operations of a step's matrix products; None if tempplug did not run.

    The number is that of `losses.Loss.products` without recomputation, except for the triton engine, whose executed products
    are counted.

    Args:
        case: gives the loss and the sizes.
        engine: name of the engine used; empty if tempplug did not run.
    """
    if not engine:
        return None
    products = LOSSES[case.loss_name].products(case.rows)
    if engine == "triton":
        shape = case.loss_name if case.loss_name in TRITON else "two-view"
        side = case.rows if shape != "two-view" else 2 * case.rows
        products = TRITON[shape][case.dimension > WIDEST_NARROW] * side**2
    return products * 2.0 * case.dimension


MEBIBYTE = 2**20
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # documented in the kernel's proc(5): resets VmHWM to the memory that is resident now


def peak_growth(call: Callable[[], None], device: str) -> float:
    """Returns the growth of peak memory during the call, in mebibytes.

    On a CPU this is resident memory. Pages kept after an earlier free would hide a need, so measure in a process that has not
    used more memory before.

    Args:
        call: the function to measure; libraries that it loads on first use should be loaded already.
        device: ``cpu`` or ``cuda``.

    Raises:
        ConfigError: the system does not report peak memory.
    """
    if device == "cuda":
        return _cuda_growth(call)
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
        before = _field(_STATUS, "VmRSS")
        call()
        return (_field(_STATUS, "VmHWM") - before) / MEBIBYTE
    except OSError as error:
        raise ConfigError(f"peak memory cannot be measured here: {error}. It needs Linux and its /proc.") from error


def limit_memory() -> None:
    """Limits this process to the available memory, so that an oversized case fails without affecting the machine.

    Does nothing if the system reports neither a limit nor the available memory.
    """
    try:
        import resource

        available = _field(Path("/proc/meminfo"), "MemAvailable")
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_DATA, (int(available * 0.95), resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _cuda_growth(call: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MEBIBYTE


def _field(file: Path, field: str) -> int:
    """Returns the number of bytes in a line such as ``VmRSS:  123 kB``."""
    if (found := re.search(rf"^{field}:\s+(\d+) kB$", file.read_text(encoding="ascii"), re.MULTILINE)) is None:
        raise OSError(f"there is no {field}")
    return int(found[1]) * 1024


NOISE = 1.0
NETWORK_LAYERS, NETWORK_WIDTH, NETWORK_ROWS = 6, 1024, 32


def views(case: SpeedRecipe, dtype: torch.dtype | None = None, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """Returns two correlated Gaussian views [N, D]; positives have a cosine similarity of about 0.5.

    Args:
        case: gives the sizes, seed, device and precision.
        dtype: overrides the precision of the case.
        rows: overrides N of the case.
    """
    generator = torch.Generator().manual_seed(case.seed)
    shared, first, second = (torch.randn(rows or case.rows, case.dimension, generator=generator) for _ in range(3))
    made = (shared + NOISE * first, shared + NOISE * second)
    kind = dtype or getattr(torch, case.precision)
    # Detached leaves, so that the graph does not include their generation.
    view_a, view_b = (view.to(case.device, kind).requires_grad_() for view in made)
    return view_a, view_b


def network_step(device: str) -> Callable[[], None]:
    """Returns a function that makes a training step of a small network on ``device``: forward, backward and SGD."""
    network = nn.Sequential(*(nn.Linear(NETWORK_WIDTH, NETWORK_WIDTH) for _ in range(NETWORK_LAYERS))).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)
    rows = torch.randn(NETWORK_ROWS, NETWORK_WIDTH, device=device)

    def step() -> None:
        optimizer.zero_grad()
        network(rows).square().mean().backward()
        optimizer.step()

    return step


class Step:
    """A forward and backward pass.

    Args:
        function: the loss.
        view_a: [N, D], a leaf.
        view_b: [N, D], a leaf.

    Attributes:
        function: the loss.
        value: detached loss of the last call; reading it may synchronise with the device.
    """

    def __init__(self, function: LossFunction, view_a: Tensor, view_b: Tensor) -> None:
        self.function = function.to(view_a.device) if isinstance(function, nn.Module) else function
        self.value = torch.zeros(())
        self._views = view_a, view_b

    def __call__(self) -> None:
        """Clears the gradients, then computes the loss and its gradients once."""
        view_a, view_b = self._views
        view_a.grad = view_b.grad = None
        half = view_a.dtype in (torch.bfloat16, torch.float16)
        # Even a disabled autocast region costs a few microseconds.
        with torch.autocast(view_a.device.type, dtype=view_a.dtype) if half else nullcontext():
            loss = self.function(view_a, view_b)
        loss.backward()
        self.value = loss.detach()

    def gradient(self) -> Tensor:
        """Returns the gradient of the last call for both views, [2N, D] in float64."""
        return torch.cat([torch.zeros_like(view) if view.grad is None else view.grad for view in self._views]).double()

    @property
    def engine(self) -> str:
        """The tempplug engine used in the last call; empty for other implementations."""
        return self.function.record.engine if isinstance(self.function, ContrastiveLoss) else ""

    @property
    def note(self) -> dict[str, str]:
        """The engine as a note of the measurement."""
        return {"note": self.engine} if self.engine else {}


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
