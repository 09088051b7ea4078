"""What share of a GPU's matrix rate a loss reaches: the products it executes against plain ones, timed in the same process."""

from __future__ import annotations

import statistics

import torch

from tempplug_benchmarks.speed.case import Case
from tempplug_benchmarks.speed.clock import cuda_seconds

SIDE = 8192
# N × M products of a whole forward and backward pass, by engine and kind of loss; of narrow embeddings and of wide ones.
# The triton engine computes similarities again in its backward: narrow ones for the gradient of either side, wide ones once
# for both, and of a square only its upper half, the diagonal's share of which is not counted here.
_PRODUCTS: dict[tuple[str, str], tuple[float, float]] = {
    ("dense", "two-view"): (3, 3),
    ("dense", "one-way"): (3, 3),
    ("dense", "two-way"): (6, 6),
    ("triton", "two-view"): (3, 2.5),
    ("triton", "one-way"): (5, 4),
    ("triton", "two-way"): (6, 5),
}
WIDEST_NARROW = 256


def matmul_rate() -> float:
    """Returns the rate of a large bfloat16 matrix product on this GPU, in floating-point operations a second."""
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)

    def product() -> None:
        torch.mm(left, right, out=out)

    product()
    return 2 * SIDE**3 / statistics.median(cuda_seconds(product, 5) / 5 for _ in range(5))


def executed_operations(case: Case, engine: str) -> float | None:
    """Returns the operations of the products that an engine executes in a bfloat16 step; None where that is not known.

    Args:
        case: whose sizes.
        engine: that ran.
    """
    shape = case.loss if case.loss in ("one-way", "two-way") else "two-view"
    products = _PRODUCTS.get((engine, shape))
    side = case.rows if shape != "two-view" else 2 * case.rows
    if products is None:
        return None
    return products[case.dimension > WIDEST_NARROW] * 2.0 * side**2 * case.dimension
