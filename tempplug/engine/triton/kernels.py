"""The kernels of the Triton engine: row sums in one pass over the candidates, gradients in another, no matrix ever stored.

A row's log-sum-exp is a whole exponent and a fraction in [1, 2): 2^exponent · fraction. Whole exponents subtract without
rounding, so the softmax weights of the gradient are as exact as the sums, at every temperature. Which pairs are negatives comes
as nine numbers (`tempplug.engine.triton.plan`), and only tiles that touch a diagonal or an edge read single pairs. Operands are
padded with zeros to whole tiles, so no load needs a mask. Sums run in a fixed order: the same numbers on every run.

For embeddings too wide for a gradient in registers, `slab_gradients` writes a slab of pair gradients. Half-precision slabs are
multiplied by the vendor's library, float32 ones by `add_product`, which no process-wide TF32 switch reaches. Must not depend on
autograd or torch. Importing this module needs triton.
"""

# mypy: ignore-errors
# Kernels are a language of their own: their annotations mark what is compiled in, and triton ships no types.
from __future__ import annotations

import triton
import triton.language as tl

from tempplug.engine.triton.maps import exponents, exponents_and_slopes, odds, odds_slope

# A row sum below this may have lost small terms to float32's smallest number: the pass with a running maximum takes over.
SMALLEST_SUM = tl.constexpr(2.0**-100)
# Counts and positions change from batch to batch and must not compile anew.
SIZES = ("anchors", "candidates", "positive_split", "positive_first", "positive_second", "own_split", "own_first", "own_second")
SIZES += ("negatives_start", "extra_start", "extra_anchors")


@triton.jit
def _load_tile(base, start, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Returns ROWS × COLUMNS numbers from row ``start`` on; a row is WIDTH numbers long."""
    # 64 bits for where the tile begins, 32 for the way inside it.
    corner = base + tl.cast(start, tl.int64) * WIDTH
    return tl.load(corner + tl.arange(0, ROWS)[:, None] * WIDTH + tl.arange(0, COLUMNS)[None, :])


@triton.jit
def _similarities(
    rows, row_start, columns, column_start,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Returns the similarities of a tile, BLOCK_K dimensions at a time."""
    similarities = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, WIDTH, BLOCK_K):
        left = _load_tile(rows + k, row_start, WIDTH, BLOCK_M, BLOCK_K)
        right = _load_tile(columns + k, column_start, WIDTH, BLOCK_N, BLOCK_K)
        similarities = tl.dot(left, tl.trans(right), similarities, input_precision="ieee")
    return similarities


@triton.jit
def _meets(low, high, shift):
    return (low <= shift) & (shift <= high)


@triton.jit
def _all_negative(
    anchor, candidate, ANCHORS: tl.constexpr, CANDIDATES: tl.constexpr, anchors, candidates, positive_first, positive_second,
    own_first, own_second, negatives_start, extra_start, extra_anchors,
):  # fmt: skip
    """Returns whether a tile of ANCHORS × CANDIDATES pairs from this corner on holds nothing but negatives."""
    low = candidate - anchor - (ANCHORS - 1)
    high = candidate - anchor + (CANDIDATES - 1)
    diagonal = _meets(low, high, positive_first) | _meets(low, high, positive_second)
    diagonal = diagonal | _meets(low, high, own_first) | _meets(low, high, own_second)
    edge = (anchor + ANCHORS > anchors) | (candidate + CANDIDATES > candidates) | (candidate < negatives_start)
    extra = (candidate + CANDIDATES > extra_start) & (anchor + ANCHORS > extra_anchors)
    return (diagonal | edge | extra) == 0


@triton.jit
def _negative(
    anchor, candidate, anchors, candidates, positive_split, positive_first, positive_second, own_split, own_first, own_second,
    negatives_start, extra_start, extra_anchors,
):  # fmt: skip
    """Returns which pairs are negatives; anchors and candidates broadcast against each other."""
    negative = (anchor < anchors) & (candidate < candidates) & (candidate >= negatives_start)
    negative = negative & (candidate - anchor != tl.where(anchor < positive_split, positive_first, positive_second))
    negative = negative & (candidate - anchor != tl.where(anchor < own_split, own_first, own_second))
    return negative & ((candidate < extra_start) | (anchor < extra_anchors))


@triton.jit
def _store_sums(statistics, rows, count, shift, total):
    """Writes 2^shift · total as whole exponents and fractions; a sum that is no number stays none."""
    bits = total.to(tl.int32, bitcast=True)
    fraction = ((bits & 0x007FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    exponent = ((bits >> 23) - 127).to(tl.float32) + shift
    tl.store(statistics + rows, exponent, mask=rows < count)
    tl.store(statistics + count + rows, tl.where(total == total, fraction, total), mask=rows < count)


@triton.jit(do_not_specialize=SIZES)
def row_sums(
    rows, columns, factor, statistics, flag, anchors, candidates, positive_split, positive_first, positive_second, own_split,
    own_first, own_second, negatives_start, extra_start, extra_anchors, low, span, curvature, offset, top, headroom,
    MAP: tl.constexpr, PER_ANCHOR: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Writes the log-sum-exp of each anchor's negatives, with a shift that the map's largest logit gives beforehand.

    Sets ``flag`` where a sum left the range in which that is exact.
    """
    start = tl.program_id(0) * BLOCK_M
    index = start + tl.arange(0, BLOCK_M)
    if MAP == "scale":
        scale = tl.load(factor + index, mask=index < anchors, other=0.0) if PER_ANCHOR else tl.load(factor)
        shift = tl.ceil(scale) - headroom
        scale = scale[:, None] if PER_ANCHOR else scale
    elif MAP == "log-odds":
        scale = 1.0
        shift = 0.0
    else:
        scale = 1.0
        shift = tl.ceil(top) - headroom
    if BLOCK_K == WIDTH:
        held = _load_tile(rows, start, WIDTH, BLOCK_M, WIDTH)
    total = tl.zeros([BLOCK_M], tl.float32)
    lost = tl.zeros([BLOCK_M], tl.float32)
    for first in range(negatives_start // BLOCK_N * BLOCK_N, candidates, BLOCK_N):
        if BLOCK_K == WIDTH:
            right = _load_tile(columns, first, WIDTH, BLOCK_N, WIDTH)
            s = tl.dot(held, tl.trans(right), input_precision="ieee")
        else:
            s = _similarities(rows, start, columns, first, BLOCK_M, BLOCK_N, WIDTH, BLOCK_K)
        if MAP == "log-odds":
            weight = odds(s, low)
        else:
            weight = tl.exp2(exponents(s, scale, low, span, curvature, offset, MAP) - (shift[:, None] if PER_ANCHOR else shift))
        plain = _all_negative(
            start, first, BLOCK_M, BLOCK_N, anchors, candidates, positive_first, positive_second, own_first, own_second,
            negatives_start, extra_start, extra_anchors,
        )  # fmt: skip
        if not plain:
            negative = _negative(
                index[:, None], (first + tl.arange(0, BLOCK_N))[None, :], anchors, candidates, positive_split, positive_first,
                positive_second, own_split, own_first, own_second, negatives_start, extra_start, extra_anchors,
            )  # fmt: skip
            weight = tl.where(negative, weight, 0.0)
        # Compensated: a million candidates add up as exactly as a hundred.
        term = tl.sum(weight, 1) - lost
        larger = total + term
        lost = (larger - total) - term
        total = larger
    if MAP != "log-odds":
        outside = (index < anchors) & (((total >= SMALLEST_SUM) & (total < float("inf"))) == 0)
        if tl.max(outside.to(tl.int32), 0) > 0:
            tl.store(flag, 1)
    _store_sums(statistics, index, anchors, shift, total)


@triton.jit(do_not_specialize=SIZES)
def row_sums_online(
    rows, columns, factor, statistics, flag, anchors, candidates, positive_split, positive_first, positive_second, own_split,
    own_first, own_second, negatives_start, extra_start, extra_anchors, low, span, curvature, offset,
    MAP: tl.constexpr, PER_ANCHOR: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Writes the same as `row_sums` with a running maximum, exact for every scale; returns at once unless ``flag`` is set."""
    if tl.load(flag) == 0:
        return
    start = tl.program_id(0) * BLOCK_M
    index = start + tl.arange(0, BLOCK_M)
    scale = 1.0
    if MAP == "scale":
        scale = tl.load(factor + index, mask=index < anchors, other=0.0)[:, None] if PER_ANCHOR else tl.load(factor)
    total = tl.zeros([BLOCK_M], tl.float32)
    shift = tl.full([BLOCK_M], -1e30, tl.float32)
    for first in range(negatives_start // BLOCK_N * BLOCK_N, candidates, BLOCK_N):
        s = _similarities(rows, start, columns, first, BLOCK_M, BLOCK_N, WIDTH, BLOCK_K)
        logits = exponents(s, scale, low, span, curvature, offset, MAP)
        negative = _negative(
            index[:, None], (first + tl.arange(0, BLOCK_N))[None, :], anchors, candidates, positive_split, positive_first,
            positive_second, own_split, own_first, own_second, negatives_start, extra_start, extra_anchors,
        )  # fmt: skip
        highest = tl.maximum(shift, tl.ceil(tl.max(tl.where(negative, logits, -1e30), 1)))
        total *= tl.exp2(shift - highest)
        total += tl.sum(tl.where(negative, tl.exp2(logits - highest[:, None]), 0.0), 1)
        shift = highest
    _store_sums(statistics, index, anchors, shift, total)


@triton.jit
def _pair_gradients(
    s, scale, row_exponent, row_weight, column_exponent, column_weight, pivot, wide, low, span, curvature, offset,
    MAP: tl.constexpr, DETACH: tl.constexpr, ROW: tl.constexpr, COLUMN: tl.constexpr,
):  # fmt: skip
    """Returns dLoss/ds of a tile: softmax weight × slope × upstream gradient, of the rows' sums, the columns' sums or both.

    Rows come as [M, 1], columns as [1, N]. Where both count, one exponential serves both if ``pivot`` lies near enough to
    all row sums; ``wide`` says that it does not.
    """
    if MAP == "log-odds":
        coefficient = 0.0
        if ROW:
            coefficient += row_weight * tl.exp2(-row_exponent)
        if COLUMN:
            coefficient += column_weight * tl.exp2(-column_exponent)
        return odds_slope(s, low) * coefficient
    else:
        logits, slope = exponents_and_slopes(s, scale, low, span, curvature, offset, MAP, DETACH)
        if ROW and COLUMN:
            if wide:
                weight = tl.exp2(logits - row_exponent) * row_weight + tl.exp2(logits - column_exponent) * column_weight
            else:
                both = row_weight * tl.exp2(pivot - row_exponent) + column_weight * tl.exp2(pivot - column_exponent)
                weight = tl.exp2(logits - pivot) * both
        elif ROW:
            weight = tl.exp2(logits - row_exponent) * row_weight
        else:
            weight = tl.exp2(logits - column_exponent) * column_weight
        return weight * slope


@triton.jit(do_not_specialize=SIZES)
def gradients(
    rows, columns, result, factor, row_statistics, column_statistics, pivots, gain, anchors, candidates, positive_split,
    positive_first, positive_second, own_split, own_first, own_second, negatives_start, extra_start, extra_anchors,
    low, span, curvature, offset,
    MAP: tl.constexpr, DETACH: tl.constexpr, PER_ANCHOR: tl.constexpr, SWAPPED: tl.constexpr, ROW: tl.constexpr,
    COLUMN: tl.constexpr, DIMENSION: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of the rows, sum over columns of dLoss/ds times the column: [rows, DIMENSION] float32.

    The rows are the anchors and the columns the candidates, or with SWAPPED the other way round. ``row_statistics`` and
    ``column_statistics`` hold exponents and coefficients of their side, where ROW and COLUMN say that it has any.
    """
    row_count = candidates if SWAPPED else anchors
    column_count = anchors if SWAPPED else candidates
    start = tl.program_id(0) * BLOCK_M
    index = start + tl.arange(0, BLOCK_M)
    scale = tl.load(factor)
    if PER_ANCHOR and not SWAPPED:
        scale = tl.load(factor + index, mask=index < row_count, other=0.0)[:, None]
    row_exponent = 0.0
    row_weight = 0.0
    if ROW:
        row_exponent = tl.load(row_statistics + index, mask=index < row_count, other=0.0)[:, None]
        row_weight = tl.load(row_statistics + row_count + index, mask=index < row_count, other=0.0)[:, None]
    pivot = tl.load(pivots)
    wide = tl.load(pivots + 1) > 0.0
    held = _load_tile(rows, start, WIDTH, BLOCK_M, WIDTH)
    total = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    begin = 0 if SWAPPED else negatives_start // BLOCK_N * BLOCK_N
    for first in range(begin, column_count, BLOCK_N):
        right = _load_tile(columns, first, WIDTH, BLOCK_N, WIDTH)
        s = tl.dot(held, tl.trans(right), input_precision="ieee")
        others = first + tl.arange(0, BLOCK_N)
        factors = tl.load(factor + others, mask=others < column_count, other=0.0)[None, :] if PER_ANCHOR and SWAPPED else scale
        column_exponent = 0.0
        column_weight = 0.0
        if COLUMN:
            column_exponent = tl.load(column_statistics + others, mask=others < column_count, other=0.0)[None, :]
            column_weight = tl.load(column_statistics + column_count + others, mask=others < column_count, other=0.0)[None, :]
        gradient = _pair_gradients(
            s, factors, row_exponent, row_weight, column_exponent, column_weight, pivot, wide, low, span, curvature, offset,
            MAP, DETACH, ROW, COLUMN,
        )  # fmt: skip
        plain = _all_negative(
            first if SWAPPED else start, start if SWAPPED else first, BLOCK_N if SWAPPED else BLOCK_M,
            BLOCK_M if SWAPPED else BLOCK_N, anchors, candidates, positive_first, positive_second, own_first, own_second,
            negatives_start, extra_start, extra_anchors,
        )  # fmt: skip
        if not plain:
            negative = _negative(
                others[None, :] if SWAPPED else index[:, None], index[:, None] if SWAPPED else others[None, :], anchors,
                candidates, positive_split, positive_first, positive_second, own_split, own_first, own_second,
                negatives_start, extra_start, extra_anchors,
            )  # fmt: skip
            gradient = tl.where(negative, gradient, 0.0)
        total = tl.dot(gradient.to(right.dtype), right, total, input_precision="ieee")
    dimensions = tl.arange(0, WIDTH)
    corner = result + tl.cast(start, tl.int64) * DIMENSION
    inside = (index < row_count)[:, None] & (dimensions < DIMENSION)[None, :]
    local = tl.arange(0, BLOCK_M)[:, None] * DIMENSION + dimensions[None, :]
    tl.store(corner + local, total * tl.load(gain), mask=inside)


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
