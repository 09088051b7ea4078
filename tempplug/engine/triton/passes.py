"""The passes of the Triton engine: operands in, kernels launched, statistics and gradients out; nothing waits for the device.

Must not depend on autograd. Importing this module needs triton.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.engine.triton import plan
from tempplug.engine.triton.kernels import add_product, gradients, row_sums, row_sums_online, slab_gradients
from tempplug.engine.triton.plan import LOG2E, MapPlan, Tile, Tiles

# Sums stay this many powers of two below float32's largest number, so that rounded rows a little longer than 1 do no harm.
LARGEST_SUM = 120.0


@dataclass(frozen=True, slots=True)
class Side:
    """One side's part in the gradient: [2, n] exponents and coefficients of its sums, and whether it has any."""

    statistics: Tensor
    counts: bool


@dataclass(frozen=True, slots=True)
class Work:
    """One block of similarities, ready for kernels.

    Attributes:
        anchors: [N', W] operand.
        candidates: [M', W] operand, the same tensor where the block is the square of one set.
        dimension: D, of which W is the padded width.
        factor: [1] or [N], the scale in base 2.
    """

    anchors: Tensor
    candidates: Tensor
    dimension: int
    factor: Tensor
    map: MapPlan
    roles: dict[str, int]
    tiles: Tiles

    @property
    def width(self) -> int:
        """The padded number of dimensions."""
        return self.anchors.shape[1]

    @property
    def arguments(self) -> dict[str, Any]:
        """What all kernels take beside tensors: the numbers of roles and map, and what is compiled in."""
        named = {"MAP": self.map.kind, "PER_ANCHOR": self.map.per_anchor, "WIDTH": self.width}
        return {**self.roles, **self.map.numbers(), **named}

    @property
    def square(self) -> bool:
        """Whether the candidates are the anchors."""
        return self.candidates is self.anchors

    def transposed(self) -> Work:
        """Returns the same pairs the other way round; of square roles with one diagonal, which do not change."""
        return Work(self.candidates, self.anchors, self.dimension, self.factor, self.map, self.roles, self.tiles)


def operand(rows: Tensor, precision: torch.dtype, tiles: Tiles) -> Tensor:
    """Returns unit rows [n, D] in the precision of the embeddings, padded with zeros to whole tiles.

    bfloat16 and float16 round each number once more, which costs what storing the embeddings in that precision did.
    """
    count, dimension = rows.shape
    height, width = -(-count // plan.PADDED_ROWS) * plan.PADDED_ROWS, tiles.width(dimension)
    if rows.dtype == precision and (count, dimension) == (height, width) and rows.is_contiguous():
        return rows.detach()
    padded = torch.empty(height, width, dtype=tiles.precision, device=rows.device)
    padded[:count, :dimension] = rows.detach() if precision == tiles.precision else rows.detach().to(precision)
    padded[count:].zero_()
    padded[:count, dimension:].zero_()
    return padded


def _launch(kernel: Any, grid: tuple[int, ...], tile: Tile, tensors: dict[str, Tensor], **arguments: Any) -> None:
    """Runs a kernel on the device of its tensors."""
    device = next(iter(tensors.values())).device
    # Kernels go to the current device, which need not be that of the tensors.
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        kernel[grid](**tensors, **arguments, **tile.options())


def sums(work: Work) -> Tensor:
    """Returns the log-sum-exp of each anchor's negatives as [2, N] whole exponents and fractions."""
    count = work.roles["anchors"]
    statistics = torch.empty(2, count, dtype=torch.float32, device=work.anchors.device)
    flag = torch.zeros(1, dtype=torch.int32, device=work.anchors.device)
    tensors = {"rows": work.anchors, "columns": work.candidates, "factor": work.factor, "statistics": statistics, "flag": flag}
    tile = work.tiles.sums(work.width, work.map.kind, work.square)
    # Only a profile's largest logit is known without its tensor.
    top = LOG2E / work.map.low if work.map.low else 0.0
    headroom = LARGEST_SUM - math.ceil(math.log2(work.roles["candidates"]))
    grid = (-(-count // tile.rows),)
    _launch(row_sums, grid, tile, tensors, **work.arguments, top=top, headroom=headroom, BLOCK_K=tile.depth)
    if work.map.kind != "log-odds":
        tile = work.tiles.online(work.width)
        grid = (-(-count // tile.rows),)
        _launch(row_sums_online, grid, tile, tensors, **work.arguments, BLOCK_K=tile.depth)
    return statistics


def gradient_of(work: Work, rows: Side, columns: Side, pivots: Tensor, gain: Tensor, *, swapped: bool) -> Tensor:
    """Returns the gradient of the anchors, or with ``swapped`` that of the candidates, [n, D] float32, times ``gain``.

    The block must not be wider than registers hold; the pivots are those of `tempplug.engine.triton.autograd`.
    """
    side, other = (columns, rows) if swapped else (rows, columns)
    count = work.roles["candidates" if swapped else "anchors"]
    result = torch.empty(count, work.dimension, dtype=torch.float32, device=gain.device)
    tile = work.tiles.gradient(work.width, work.map.steep, work.square)
    _launch(
        gradients,
        (-(-count // tile.rows),),
        tile,
        {
            "rows": work.candidates if swapped else work.anchors,
            "columns": work.anchors if swapped else work.candidates,
            "result": result,
            "factor": work.factor,
            "row_statistics": side.statistics,
            "column_statistics": other.statistics,
            "pivots": pivots,
            "gain": gain,
        },
        **work.arguments,
        DETACH=work.map.detach,
        SWAPPED=swapped,
        ROW=side.counts,
        COLUMN=other.counts,
        DIMENSION=work.dimension,
    )
    return result


def gradients_by_slabs(
    work: Work, rows: Side, columns: Side, pivots: Tensor, gain: Tensor, *, wanted: tuple[bool, bool], square: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of anchors [N, D] and candidates [M, D], as far as wanted, for any number of dimensions.

    The pair gradients of a slab are computed once and serve both sides. Of a square only the slabs on and above the
    diagonal are, the others being their transpose.
    """
    count, width = work.roles["anchors"], work.roles["candidates"]
    device = gain.device
    of_anchors = torch.zeros(count, work.dimension, device=device) if wanted[0] else None
    of_candidates = torch.zeros(width, work.dimension, device=device) if wanted[1] else None
    if square:
        of_candidates = of_anchors
    pieces = plan.slabs(0, count), plan.slabs(0 if square else work.roles["negatives_start"], width)
    height, stride = (max(_even(end - begin) for begin, end in spans) for spans in pieces)
    slab = torch.empty(height, stride, dtype=work.anchors.dtype, device=device)
    for top, bottom in pieces[0]:
        for left, right in pieces[1]:
            if square and left < top:
                continue
            # Operands are padded with zeros, so both ends may be rounded up to what matrix units like.
            tall, broad = _even(bottom - top), _even(right - left)
            _fill(work, rows, columns, pivots, slab, (top, top + tall), (left, left + broad))
            if of_anchors is not None:
                _add(of_anchors[top:bottom], slab[: bottom - top, :broad], work.candidates[left : left + broad])
            if of_candidates is not None and not (square and left == top):
                _add(of_candidates[left:right], slab[:tall, : right - left].T, work.anchors[top : top + tall])
    for gradient in (of_anchors, None if square else of_candidates):
        if gradient is not None:
            gradient.mul_(gain)
    return of_anchors, None if square else of_candidates


def _even(length: int) -> int:
    return -(-length // 16) * 16


def _fill(
    work: Work, rows: Side, columns: Side, pivots: Tensor, slab: Tensor, span: tuple[int, int], across: tuple[int, int]
) -> None:
    """Writes the pair gradients of anchors ``span`` and candidates ``across`` into the upper left corner of ``slab``."""
    tile = work.tiles.slab(work.map.steep)
    _launch(
        slab_gradients,
        (-(-(across[1] - across[0]) // tile.columns), -(-(span[1] - span[0]) // tile.rows)),
        tile,
        {
            "rows": work.anchors,
            "columns": work.candidates,
            "slab": slab,
            "factor": work.factor,
            "row_statistics": rows.statistics,
            "column_statistics": columns.statistics,
            "pivots": pivots,
        },
        row_begin=span[0],
        row_end=span[1],
        column_begin=across[0],
        column_end=across[1],
        stride=slab.stride(0),
        **work.arguments,
        DETACH=work.map.detach,
        ROW=rows.counts,
        COLUMN=columns.counts,
        BLOCK_K=tile.depth,
    )


def _add(result: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left [n, k] times right [k, W ≥ D] to the contiguous ``result`` [n, D], accumulating in float32."""
    dimension = result.shape[1]
    if left.is_cuda and left.dtype != torch.float32:
        torch.addmm(result, left, right[:, :dimension], out_dtype=torch.float32, out=result)
        return
    tile = plan.PRODUCT_TILE
    _launch(
        add_product,
        (-(-result.shape[0] // tile.rows), -(-dimension // tile.columns)),
        tile,
        {"left": left, "right": right, "result": result},
        count=result.shape[0],
        depth=left.shape[1],
        row_stride=left.stride(0),
        depth_stride=left.stride(1),
        DIMENSION=dimension,
        WIDTH=right.shape[1],
        BLOCK_K=tile.depth,
    )
