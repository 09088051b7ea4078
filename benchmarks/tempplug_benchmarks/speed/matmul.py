"""The share of a machine's rate of matrix products that a loss reaches, both measured in the same process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tempplug.processor import onednn_product, product_route
from tempplug_benchmarks.speed.clock import CLOCKS
from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.recipe import SpeedRecipe

# Rows, inner dimension and columns of products on a device: square ones, and both shapes of a loss's own.
SHAPES = {
    "cpu": ((1024, 1024, 1024), (2048, 128, 2048), (2048, 2048, 128)),
    "cuda": ((8192, 8192, 8192),),
}
REPEATS = 5
# The triton engine computes similarities again in its backward pass: N × M products of narrow embeddings and of wide ones,
# and of a square only its upper half, the diagonal's share of which is not counted here.
TRITON = {"two-view": (3, 2.5), "one-way": (5, 4), "two-way": (6, 5)}
WIDEST_NARROW = 256


def matmul_rate(case: SpeedRecipe) -> float:
    """Returns the best rate of a few large matrix products, in floating-point operations a second.

    On a CPU they are made by torch, and also by oneDNN where this processor's route is that.

    Args:
        case: whose device, precision and clock are used.
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
    """Returns the floating-point operations of a step's matrix products; None where tempplug did not run.

    What `losses.Loss.products` counts, whatever an engine computes again, except of the triton engine, whose own products are
    counted.

    Args:
        case: whose loss and sizes.
        engine: that ran, empty where it was not tempplug.
    """
    if not engine:
        return None
    products = LOSSES[case.loss_name].products(case.rows)
    if engine == "triton":
        shape = case.loss_name if case.loss_name in TRITON else "two-view"
        side = case.rows if shape != "two-view" else 2 * case.rows
        products = TRITON[shape][case.dimension > WIDEST_NARROW] * side**2
    return products * 2.0 * case.dimension
