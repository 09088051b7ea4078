"""Kernels for embeddings too wide for a gradient in registers: one writes a slab of pair gradients, one multiplies it.

Half-precision slabs are multiplied by the vendor's library; float32 ones by `add_product`, which no process-wide TF32 switch
reaches. Nothing here knows autograd or torch. Importing this module needs triton.
"""

# mypy: ignore-errors
# Kernels are a language of their own: their annotations mark what is compiled in, and triton ships no types.
from __future__ import annotations

import triton
import triton.language as tl

from tempplug.engine.triton.kernels import SIZES, _all_negative, _negative, _pair_gradients, _similarities


@triton.jit(do_not_specialize=(*SIZES, "row_begin", "row_end", "column_begin", "column_end"))
def slab_gradients(
    rows, columns, slab, factor, row_statistics, column_statistics, pivots, row_begin, row_end, column_begin, column_end,
    stride, anchors, candidates, positive_split, positive_first, positive_second, own_split, own_first, own_second,
    negatives_start, extra_start, extra_anchors, low, span, curvature, offset,
    MAP: tl.constexpr, DETACH: tl.constexpr, PER_ANCHOR: tl.constexpr, ROW: tl.constexpr, COLUMN: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Writes dLoss/ds of the anchors from row_begin to row_end and the candidates from column_begin to column_end."""
    start = row_begin + tl.program_id(1) * BLOCK_M
    first = column_begin + tl.program_id(0) * BLOCK_N
    # First the product, so that nothing else sits in registers meanwhile.
    s = _similarities(rows, start, columns, first, BLOCK_M, BLOCK_N, WIDTH, BLOCK_K)
    index = start + tl.arange(0, BLOCK_M)
    others = first + tl.arange(0, BLOCK_N)
    scale = tl.load(factor)
    if PER_ANCHOR:
        scale = tl.load(factor + index, mask=index < anchors, other=0.0)[:, None]
    row_exponent = 0.0
    row_weight = 0.0
    column_exponent = 0.0
    column_weight = 0.0
    if ROW:
        row_exponent = tl.load(row_statistics + index, mask=index < anchors, other=0.0)[:, None]
        row_weight = tl.load(row_statistics + anchors + index, mask=index < anchors, other=0.0)[:, None]
    if COLUMN:
        column_exponent = tl.load(column_statistics + others, mask=others < candidates, other=0.0)[None, :]
        column_weight = tl.load(column_statistics + candidates + others, mask=others < candidates, other=0.0)[None, :]
    gradient = _pair_gradients(
        s, scale, row_exponent, row_weight, column_exponent, column_weight, tl.load(pivots), tl.load(pivots + 1) > 0.0,
        low, span, curvature, offset, MAP, DETACH, ROW, COLUMN,
    )  # fmt: skip
    plain = _all_negative(
        start, first, BLOCK_M, BLOCK_N, anchors, candidates, positive_first, positive_second, own_first, own_second,
        negatives_start, extra_start, extra_anchors,
    )  # fmt: skip
    if not plain:
        negative = _negative(
            index[:, None], others[None, :], anchors, candidates, positive_split, positive_first, positive_second, own_split,
            own_first, own_second, negatives_start, extra_start, extra_anchors,
        )  # fmt: skip
        gradient = tl.where(negative, gradient, 0.0)
    corner = slab + tl.cast(start - row_begin, tl.int64) * stride + (first - column_begin)
    local = tl.arange(0, BLOCK_M)[:, None] * stride + tl.arange(0, BLOCK_N)[None, :]
    tl.store(
        corner + local, gradient.to(slab.dtype.element_ty), mask=(index < row_end)[:, None] & (others < column_end)[None, :]
    )


@triton.jit(do_not_specialize=("count", "depth"))
def add_product(
    left, right, result, count, depth, row_stride, depth_stride,
    DIMENSION: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Adds left [count, depth], with any strides, times right [depth, WIDTH] to result [count, DIMENSION]; all float32."""
    index = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dimensions = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (index < count)[:, None] & (dimensions < DIMENSION)[None, :]
    places = result + index.to(tl.int64)[:, None] * DIMENSION + dimensions[None, :]
    total = tl.load(places, mask=inside, other=0.0)
    for k in range(0, depth, BLOCK_K):
        steps = k + tl.arange(0, BLOCK_K)
        here = (index < count)[:, None] & (steps < depth)[None, :]
        a = tl.load(left + index.to(tl.int64)[:, None] * row_stride + steps[None, :] * depth_stride, mask=here, other=0.0)
        there = (steps < depth)[:, None] & (dimensions < WIDTH)[None, :]
        b = tl.load(right + steps[:, None] * WIDTH + dimensions[None, :], mask=there, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(places, total, mask=inside)
