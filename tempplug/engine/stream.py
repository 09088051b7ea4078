"""The tiled engine's fast path: one positive an anchor, a map with an in-place form, sums without a running maximum.

For row i with coefficient a_i = ∂loss/∂lse_i · slope / sum_i, the gradient of a similarity is G_ij = W_ij · a_i. Three forms:

- rows alone: the coefficient moves onto the operands, so that a tile is read once: dA = a ∘ (W X), dX = Wᵀ (a ∘ A);
- rows and columns of one block (both directions of a symmetric loss): G_ij = W_ij · (a_i + b_j);
- a square block and a symmetric map: the same with b = a, from the tiles on and above the diagonal alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.tiles import Plan, Tile
from tempplug.engine.workers import InOrder, Turns, run
from tempplug.roles import Block
from tempplug.strategies.tile_forms import TileForm

# Sums below this are no longer exact: what they were made of may have underflowed.
SMALLEST_SUM = 2.0**-100
# Base-2 logits up to here leave room in float32 for incoming gradients of any usual size.
ROOM = 40.0


class Stream:
    """One pass over a block, and what its backward pass needs.

    Args:
        block: anchors, candidates and roles; every anchor has one positive.
        form: of the map.
        plan: the tiles.
        columns: whether the columns' sums are wanted too.
        threads: how many tiles are worked on at once.

    Attributes:
        row_sums: [N] of E, in units of 2^shift, after `forward`.
        column_sums: [M] likewise, where wanted.
    """

    def __init__(self, block: Block, form: TileForm, plan: Plan, columns: bool, threads: int) -> None:
        self.roles = block.roles
        self.anchors = block.anchors.detach()
        self.candidates = self.anchors if block.candidates is block.anchors else block.candidates.detach()
        start, end = block.roles.negatives_start, block.roles.candidates - plan.extra_columns
        self.spans = ((start, end), (end, block.roles.candidates))
        first = self.anchors if plan.triangle else self.candidates[start:end]
        self.panels = (first, self.candidates[end:]) if plan.extra_columns else (first,)
        self.form, self.plan, self.columns, self.threads = form, plan, columns, threads
        self.row_sums = self.column_sums = torch.empty(0, device="cpu")
        self._kept: dict[int, Tensor] = {}

    def forward(self, counts: Tensor, keep: bool) -> bool:
        """Computes the sums; returns whether they are exact.

        Args:
            counts: [N] negatives of each row, and of each column where those are wanted.
            keep: whether a backward pass will follow.
        """
        anchors, form, plan = self.anchors, self.form, self.plan
        keep = keep and plan.keep
        scratch = _Scratch(plan.largest if form.scratch else 0, anchors)
        of_rows = anchors.new_empty(len(anchors))
        mirrors = self.columns or plan.triangle
        of_columns = anchors.new_zeros(len(self.panels[0]) if mirrors else 0)

        def work(index: int, turns: Turns | InOrder) -> None:
            tile = plan.tiles[index]
            values = self._exponentials(tile, scratch)
            target = of_rows[tile.top : tile.bottom]
            turns.take(("row", tile.top), tile.row_turn, target.add_ if tile.row_turn else target.copy_, values.sum(1))
            if mirrors and tile.panel == 0 and tile.mirrors:
                below = of_columns[tile.left + tile.mirrored_from : tile.right]
                turns.take(("column", tile.group), tile.column_turn, below.add_, values[:, tile.mirrored_from :].sum(0))
            if keep:
                form.weigh_(values, scratch.like(values))
                self._kept[index] = values

        run(range(len(plan.tiles)), work, self.threads)
        if plan.triangle and mirrors:
            of_rows += of_columns
        self.row_sums = form.total(of_rows, counts)
        if self.columns:
            self.column_sums = form.total(of_columns, counts)
        return exact(self.row_sums) and (not self.columns or exact(self.column_sums))

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
        kept = self._kept.pop(index, None)
        if kept is not None:
            return kept
        values = self._exponentials(self.plan.tiles[index], scratch)
        self.form.weigh_(values, scratch.like(values))
        return values

    def backward(
        self, of_rows: Tensor, of_columns: Tensor | None, wants_anchors: bool, wants_panels: tuple[bool, ...]
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Returns the gradients of the anchors [N, D] and of each panel (None where unwanted).

        Where the first panel is the anchors, all of its gradient is in that of the anchors.

        Args:
            of_rows: [N] gradient of each row's log-sum-exp.
            of_columns: [M] of each column's.
            wants_anchors: whether the anchors' gradient is wanted.
            wants_panels: the same for each panel.
        """
        anchors, plan = self.anchors, self.plan
        a = of_rows * self.form.slope / self.row_sums
        b = a if plan.triangle else None
        if of_columns is not None:
            b = of_columns * self.form.slope / self.column_sums
        of_anchors = torch.empty_like(anchors) if wants_anchors else None
        of_panels: list[Tensor | None] = [
            torch.zeros_like(panel) if wanted and plan.mirrors[number] else None
            for number, (panel, wanted) in enumerate(zip(self.panels, wants_panels, strict=True))
        ]
        scratch = _Scratch(plan.largest if self.form.scratch or b is not None else 0, anchors)

        def work(index: int, turns: Turns | InOrder) -> None:
            tile = plan.tiles[index]
            rows, left, panel = slice(tile.top, tile.bottom), anchors[tile.top : tile.bottom], self.panels[tile.panel]
            values = self._weights(index, scratch)
            both = b is not None and tile.panel == 0
            if b is not None and both:
                values.mul_(torch.add(a[rows, None], b[None, tile.left : tile.right], out=scratch.like(values)))
            if of_anchors is not None:
                product = gemm.times(values, panel[tile.left : tile.right])
                if not both:
                    product.mul_(a[rows, None])
                target = of_anchors[rows]
                turns.take(("row", tile.top), tile.row_turn, target.add_ if tile.row_turn else target.copy_, product)
            columns = of_panels[tile.panel]
            if columns is not None and tile.mirrors:
                mirrored = gemm.turned(values[:, tile.mirrored_from :], left if both else left * a[rows, None])
                below = columns[tile.left + tile.mirrored_from : tile.right]
                turns.take(("column", tile.group), tile.column_turn, below.add_, mirrored)

        run(range(len(plan.tiles)), work, self.threads)
        if plan.triangle and of_anchors is not None:
            if of_panels[0] is not None:
                of_anchors.add_(of_panels[0])
            of_panels[0] = None
        return of_anchors, of_panels


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


def exact(sums: Tensor) -> bool:
    """Returns whether these sums of exponentials neither overflowed nor lost what may have underflowed."""
    low, high = torch.aminmax(sums)
    return low.item() > SMALLEST_SUM and high.item() < torch.finfo(sums.dtype).max


class Streamed(torch.autograd.Function):
    """What a stream that has run found, with gradient: log-sum-exps, and the similarities of the positive pairs.

    The latter are here because their gradient goes where that of the sums goes, and N×D tensors are worth saving.
    """

    @staticmethod
    def forward(ctx: Any, stream: Stream, similarity: Tensor, scale: Tensor | None, anchors: Tensor, *others: Tensor) -> Any:
        """Returns the positive similarities [N], the rows' log-sum-exp [N], and the columns' [M] where the stream has them.

        Args:
            ctx: of autograd.
            stream: that has run.
            similarity: [N] of the positive pairs.
            scale: the map's own where it is learned, so that its gradient costs O(N·D).
            anchors: [N, D].
            others: the candidates [M, D] where they are not the anchors.
        """
        ctx.stream = stream
        ctx.scale = None if scale is None else scale.detach()
        # Kept for what autograd checks: that nobody changed them in place, and that the graph is still there.
        ctx.save_for_backward(anchors, *others)
        rows = stream.form.logarithm(stream.row_sums)
        if not stream.columns:
            return similarity.clone(), rows
        return similarity.clone(), rows, stream.form.logarithm(stream.column_sums)

    @staticmethod
    def backward(ctx: Any, of_similarity: Tensor, of_rows: Tensor, *of_columns: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of scale, anchors and candidates."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        _ = ctx.saved_tensors
        # Tiles are float32 also where the backward pass is called inside an autocast region.
        with torch.autocast(of_rows.device.type, enabled=False):
            return _gradients(ctx.stream, ctx.scale, ctx.needs_input_grad[2:], of_similarity, of_rows, *of_columns)


def _gradients(
    stream: Stream, scale: Tensor | None, needed: Sequence[bool], of_similarity: Tensor, of_rows: Tensor, *of_columns: Tensor
) -> tuple[Tensor | None, ...]:
    """Returns what `Streamed.backward` does; ``needed`` are scale, anchors and, where they are others, candidates."""
    wants_scale, wants_anchors, *wants_candidates = needed
    triangle, alone = stream.plan.triangle, not wants_candidates
    wanted = wants_anchors if alone else wants_candidates[0]
    parts = tuple(wanted or (wants_scale and triangle) for _ in stream.panels)
    unit = _unit_of(stream, of_rows, *of_columns)
    of_anchors, of_panels = stream.backward(
        of_rows if unit is None else of_rows / unit,
        None if not of_columns else of_columns[0] if unit is None else of_columns[0] / unit,
        wants_anchors or wants_scale,
        parts,
    )
    for part in (of_anchors, *of_panels):
        if part is not None and unit is not None:
            part.mul_(unit)
    of_scale = None
    if wants_scale and scale is not None and of_anchors is not None:
        of_scale = _along_scale(stream, scale, of_anchors, of_panels)
    of_candidates = None
    if not alone and wanted:
        of_candidates = _whole(stream, of_panels)
    elif alone and not triangle and of_anchors is not None and of_panels[0] is not None:
        of_anchors.add_(of_panels[0])
    _add_pairs(stream, of_similarity, of_anchors if wants_anchors else None, of_anchors if alone else of_candidates)
    of_anchors = of_anchors if wants_anchors else None
    return (None, None, of_scale, of_anchors) if alone else (None, None, of_scale, of_anchors, of_candidates)


def _unit_of(stream: Stream, *gradients: Tensor) -> Tensor | None:
    """Returns the largest of the incoming gradients where they must be measured in it, else None.

    Sums as far from 1 as small temperatures make them leave no room in float32 for gradients that are far from 1 as well.
    """
    if stream.form.reach < ROOM:
        return None
    largest = torch.stack([gradient.abs().amax() for gradient in gradients]).amax()
    return torch.where(largest > 0, largest, 1.0)


def _along_scale(stream: Stream, scale: Tensor, of_anchors: Tensor, of_panels: list[Tensor | None]) -> Tensor:
    """Returns the gradient of the scale: Σ G_ij s_ij / scale, and Σ_j G_ij s_ij is the anchor times its own gradient."""
    along: Tensor = torch.linalg.vecdot(stream.anchors, of_anchors)
    if scale.ndim:
        return along / scale
    total = along.sum()
    if stream.plan.triangle:
        # A pair of the square is counted from both its ends; with the hard negatives' end, so is every other pair.
        for panel, of_panel in zip(stream.panels[1:], of_panels[1:], strict=True):
            if of_panel is not None:
                total = total + torch.linalg.vecdot(panel, of_panel).sum()
        total = total / 2
    return total / scale


def _whole(stream: Stream, of_panels: list[Tensor | None]) -> Tensor:
    """Returns the candidates' gradient [M, D], put together from those of the panels."""
    first = of_panels[0]
    if first is not None and len(first) == len(stream.candidates):
        return first
    whole = torch.zeros_like(stream.candidates)
    for (start, end), part in zip(stream.spans, of_panels, strict=False):
        if part is not None:
            whole[start:end] = part
    return whole


def _add_pairs(stream: Stream, gradient: Tensor, of_anchors: Tensor | None, of_candidates: Tensor | None) -> None:
    """Adds the gradient of the positive pairs' similarities to that of their two ends."""
    anchors, candidates, pairing = stream.anchors, stream.candidates, stream.roles.positives
    runs = () if pairing is None else pairing.runs
    if of_anchors is of_candidates and of_anchors is not None and len(runs) == 2:
        # Each pair occurs twice, once from each end.
        (_, half, shift), _ = runs
        both = (gradient[:half] + gradient[half:]).unsqueeze(1)
        of_anchors[:half].addcmul_(anchors[shift:], both)
        of_anchors[shift:].addcmul_(anchors[:half], both)
        return
    for start, stop, shift in runs:
        factor = gradient[start:stop, None]
        if of_anchors is not None:
            of_anchors[start:stop].addcmul_(candidates[start + shift : stop + shift], factor)
        if of_candidates is not None:
            of_candidates[start + shift : stop + shift].addcmul_(anchors[start:stop], factor)
