"""Properties of the machine: matrix product rate, the share of it that a loss reaches, and peak memory of a call."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tempplug.errors import ConfigError
from tempplug.processor import onednn_product, product_route
from tempplug_benchmarks.speed.clock import CLOCKS
from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.recipe import SpeedRecipe

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
