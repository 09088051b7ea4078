"""The tiled engine's fast path: one positive an anchor, a map with an in-place form, sums without a running maximum.

For row i with coefficient a_i = ∂loss/∂lse_i · slope / sum_i, the gradient of a similarity is G_ij = W_ij · a_i. Three forms:

- rows alone: the coefficient moves onto the operands, so that a tile is read once: dA = a ∘ (W X), dX = Wᵀ (a ∘ A);
- rows and columns of one block (both directions of a symmetric loss): G_ij = W_ij · (a_i + b_j);
- a square block and a symmetric map: the same with b = a, from the tiles on and above the diagonal alone.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.tiles import Plan, Tile
from tempplug.engine.workers import InOrder, Turns, run
from tempplug.strategies.tile_forms import TileForm

# Sums below this are no longer exact: what they were made of may have underflowed.
SMALLEST_SUM = 2.0**-100


@dataclass(slots=True)
class Stream:
    """One pass over a block, and what its backward pass needs.

    Attributes:
        anchors: [N, D] detached unit rows.
        panels: the candidates [M, D], detached, and the hard negatives [H, D] where there are some.
        form: of the map.
        plan: the tiles.
        columns: whether the columns' sums are wanted too.
        row_sums: [N] of E, in units of 2^shift; and of the columns [M], where wanted.
        kept: W of every tile, where the plan keeps them.
    """

    anchors: Tensor
    panels: tuple[Tensor, ...]
    form: TileForm
    plan: Plan
    columns: bool
    threads: int
    row_sums: Tensor = field(init=False)
    column_sums: Tensor | None = None
    kept: dict[int, Tensor] = field(default_factory=dict)

    def forward(self, counts: Tensor, keep: bool) -> bool:
        """Computes the sums; returns whether they are exact.

        Args:
            counts: [N] negatives of each row, and of each column where those are wanted.
            keep: whether a backward pass will follow.
        """
        anchors, form, plan = self.anchors, self.form, self.plan
        of_rows = anchors.new_zeros(len(anchors))
        of_columns = of_rows if plan.triangle else anchors.new_zeros(len(self.panels[0])) if self.columns else None
        scratch = _Scratch(plan.largest if form.scratch else 0, anchors)

        def work(index: int, turns: Turns | InOrder) -> None:
            tile = plan.tiles[index]
            values = self._exponentials(tile, scratch)
            sums = values.sum(1)
            turns.take(("row", tile.top), tile.row_turn, lambda: of_rows[tile.top : tile.bottom].add_(sums))
            if of_columns is not None and tile.panel == 0 and tile.mirrored_from < tile.right - tile.left:
                mirrored = values[:, tile.mirrored_from :].sum(0)
                target = of_columns[tile.left + tile.mirrored_from : tile.right]
                turns.take(("column", tile.column_group), tile.column_turn, lambda: target.add_(mirrored))
            if keep and plan.keep:
                form.weigh_(values, scratch.like(values))
                self.kept[index] = values

        run(range(len(plan.tiles)), work, self.threads)
        self.row_sums = self._affine(of_rows, counts)
        exact = _exact(self.row_sums)
        if self.columns and of_columns is not None:
            self.column_sums = self._affine(of_columns, counts)
            exact = exact and _exact(self.column_sums)
        return exact

    def _affine(self, sums: Tensor, counts: Tensor) -> Tensor:
        form = self.form
        return sums if form.factor == 1 and form.offset == 0 else sums * form.factor + counts * form.offset

    def _exponentials(self, tile: Tile, scratch: _Scratch) -> Tensor:
        left = self.anchors[tile.top : tile.bottom]
        scale = self.form.operand_scale
        if isinstance(scale, Tensor):
            left = left * scale[tile.top : tile.bottom, None]
        elif scale != 1:
            left = left * scale
        values = gemm.outer(left, self.panels[tile.panel][tile.left : tile.right])
        self.form.exponentiate_(values, scratch.like(values))
        if tile.zeroes is not None:
            values.view(-1).index_fill_(0, tile.zeroes, 0)
        return values

    def _weights(self, index: int, scratch: _Scratch) -> Tensor:
        kept = self.kept.pop(index, None)
        if kept is not None:
            return kept
        values = self._exponentials(self.plan.tiles[index], scratch)
        self.form.weigh_(values, scratch.like(values))
        return values

    def backward(
        self, of_rows: Tensor, of_columns: Tensor | None, wants_anchors: bool, wants_panels: tuple[bool, ...]
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Returns the gradients of the anchors [N, D] and of each panel (None where unwanted; of a triangle, all in the first).

        Args:
            of_rows: [N] gradient of each row's log-sum-exp.
            of_columns: [M] of each column's.
            wants_anchors: whether the anchors' gradient is wanted.
            wants_panels: the same for each panel.
        """
        anchors, plan = self.anchors, self.plan
        a = of_rows * self.form.slope / self.row_sums
        b = None
        if plan.triangle:
            b = a
        elif of_columns is not None and self.column_sums is not None:
            b = of_columns * self.form.slope / self.column_sums
        of_anchors = torch.zeros_like(anchors) if wants_anchors else None
        # Transposed, because that is the shape in which their product runs at full speed.
        turned = [
            panel.new_zeros(panel.shape[1], len(panel)) if wanted and not self._all_on_diagonal(number) else None
            for number, (panel, wanted) in enumerate(zip(self.panels, wants_panels, strict=True))
        ]
        scratch = _Scratch(plan.largest if self.form.scratch or b is not None else 0, anchors)

        def work(index: int, turns: Turns | InOrder) -> None:
            tile = plan.tiles[index]
            rows, left, panel = slice(tile.top, tile.bottom), anchors[tile.top : tile.bottom], self.panels[tile.panel]
            values = self._weights(index, scratch)
            if b is not None and tile.panel == 0:
                coefficients = scratch.like(values)
                torch.add(a[rows, None], b[None, tile.left : tile.right], out=coefficients)
                values.mul_(coefficients)
                row_scale = None
            else:
                row_scale = a[rows, None]
            if of_anchors is not None:
                product = gemm.times(values, panel[tile.left : tile.right])
                if row_scale is not None:
                    product.mul_(row_scale)
                target = of_anchors[rows]
                turns.take(("row", tile.top), tile.row_turn, lambda: target.add_(product))
            columns = turned[tile.panel]
            if columns is not None and tile.mirrored_from < tile.right - tile.left:
                scaled = left if row_scale is None else left * row_scale
                # A copy where the tile is cut: the fast product is slow on rows with gaps between them.
                mirrored = gemm.turned(scaled, values[:, tile.mirrored_from :].contiguous())
                part = columns[:, tile.left + tile.mirrored_from : tile.right]
                turns.take(("column", tile.column_group), tile.column_turn, lambda: part.add_(mirrored))

        run(range(len(plan.tiles)), work, self.threads)
        of_panels: list[Tensor | None] = [None if part is None else part.t() for part in turned]
        if plan.triangle and of_anchors is not None:
            if of_panels[0] is not None:
                of_anchors.add_(of_panels[0])
            of_panels[0] = None
        return of_anchors, of_panels

    def _all_on_diagonal(self, panel: int) -> bool:
        """Returns whether no tile of the panel has a mirror image to give."""
        if panel or not self.plan.triangle:
            return False
        return all(tile.mirrored_from == tile.right - tile.left for tile in self.plan.tiles if tile.panel == 0)


class _Scratch:
    """A second tile for each thread."""

    def __init__(self, size: int, like: Tensor) -> None:
        self._size = size
        self._like = like
        self._own = threading.local()

    def like(self, tile: Tensor) -> Tensor:
        """Returns this thread's tile in the shape of another; the tile itself where none is needed."""
        if self._size == 0:
            return tile
        flat: Tensor | None = getattr(self._own, "flat", None)
        if flat is None:
            flat = self._own.flat = self._like.new_empty(self._size)
        return flat[: tile.numel()].view(tile.shape)


def _exact(sums: Tensor) -> bool:
    low, high = torch.aminmax(sums)
    return low.item() > SMALLEST_SUM and high.item() < torch.finfo(sums.dtype).max


class RowLse(torch.autograd.Function):
    """The log-sum-exps of a stream that has run, with their gradients."""

    @staticmethod
    def forward(ctx: Any, stream: Stream, scale: Tensor | None, *operands: Tensor) -> Any:
        """Returns [N], or [N] and [M] where the stream has columns' sums.

        Args:
            ctx: of autograd.
            stream: that has run.
            scale: the map's own where it is learned, so that its gradient costs O(N·D).
            operands: anchors, then the panels; without the first panel where it is the anchors.
        """
        ctx.stream = stream
        ctx.scale = None if scale is None else scale.detach()
        # Kept for what autograd checks: that nobody changed them in place, and that the graph is still there.
        ctx.save_for_backward(*operands)
        rows = _logarithm(stream.row_sums, stream.form.shift)
        if stream.column_sums is None:
            return rows
        return rows, _logarithm(stream.column_sums, stream.form.shift)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of scale and operands."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        stream: Stream = ctx.stream
        triangle = stream.plan.triangle
        _ = ctx.saved_tensors
        _, wants_scale, wants_anchors, *wants_panels = ctx.needs_input_grad
        wants_anchors = wants_anchors or wants_scale
        if triangle:
            wants_panels = [wants_anchors, *(wanted or wants_scale for wanted in wants_panels)]
        of_rows = gradients[0].contiguous()
        of_columns = gradients[1].contiguous() if len(gradients) > 1 else None
        of_anchors, of_panels = stream.backward(of_rows, of_columns, wants_anchors, tuple(wants_panels))
        of_scale = None
        if wants_scale and of_anchors is not None:
            along = torch.linalg.vecdot(stream.anchors, of_anchors)
            if triangle:
                # A pair of the square is counted from both its ends; with the hard negatives' end, so is every other pair.
                ends = [along.sum()]
                for panel, of_panel in zip(stream.panels[1:], of_panels[1:], strict=True):
                    ends.append(torch.linalg.vecdot(panel, of_panel).sum())
                along = sum(ends[1:], ends[0]) / 2
            of_scale = along / ctx.scale if ctx.scale.ndim else along.sum() / ctx.scale
        if triangle:
            del of_panels[0]
        return (None, of_scale, of_anchors if ctx.needs_input_grad[2] else None, *of_panels)


def _logarithm(sums: Tensor, shift: float) -> Tensor:
    logarithm = sums.log()
    return logarithm + shift * math.log(2) if shift else logarithm
