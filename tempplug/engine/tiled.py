"""The tiled engine: every map, term, role and objective through one function, in O(N·D) memory.

A tile of similarities goes through the map to logits, the terms of negatives are added, a pair function f (exp, or that of the
objective) is applied, and rows are summed: `forward`. With x_i the gradient of row i's sum, the gradient of a similarity is

    G_ij = f'(l_ij) · x_i · dl_ij/ds,    or f'(l_ij) · (x_i + x_j) · dl_ij/ds where column j is an anchor as well,

which two products turn into those of anchors and candidates: `backward`. f' is kept from the forward pass as long as all tiles
fit into `forward.KEPT` numbers, and computed again otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.embeddings import Division
from tempplug.engine.backward import Backward, Pair
from tempplug.engine.forward import Pass, at_positives
from tempplug.logit_map import LogitMap
from tempplug.term_map import TermMap
from tempplug.types import NOTHING, RowStatistics, Wanted


def tiled_statistics(
    block: Block, logit_map: LogitMap, *, mirrored: bool = False, wanted: Wanted = NOTHING, terms: Sequence[TermMap] = ()
) -> list[RowStatistics]:
    """Returns the statistics of every row, and with ``mirrored`` those of the transposed block from the same products.

    Then the map is uniform and symmetric, every anchor has one positive, and only sums are wanted.
    """
    roles, learned = block.roles, logit_map.tensors()
    pair = wanted.pair_function
    offset = None if pair is None else pair.offset(logit_map)
    work = Pass(block, logit_map, learned, mirrored, wanted, terms, offset)
    operands, rows = operands_of(block)
    similarity, logit, positive, negative, columns, top = apply_rows(
        work, operands, torch.is_grad_enabled() and block.keeps, offset, *rows, *learned
    )
    if roles.positives is not None and not roles.positives.runs:
        logit = similarity  # unused without positives
    elif logit is None:  # a map that learns, of whose curve autograd finds the gradient
        logit = at_positives(logit_map, roles).logit(similarity)
    counts = roles.positive_count
    if positive is None:
        positive = logit if pair is None or offset is None else pair.value(-(logit + offset))
    elif pair is None and roles.fewest_positives < 2 and roles.total_of_targets is None:
        # One positive's log-sum-exp is its logit, to the last digit: a loss without negatives is 0. Unused without positives.
        positive = torch.where(counts <= 1, logit, positive)
    negative_count = roles.negative_count if work.count is None else work.count.sums.long()
    statistics = [RowStatistics(logit, similarity, positive, negative, counts, negative_count, work.mean, top)]
    if columns is not None:
        statistics.append(RowStatistics(logit, similarity, positive, columns, counts, roles.negative_count))
    return statistics


class Operands(NamedTuple):
    """The rows that a pass has the gradients of: unit rows of anchors and candidates, once where these are the same tensor.

    Attributes:
        tensor_count: how many tensors they are.
        division: that made the unit rows, where the operands are the raw rows of a call that one block alone reads.
        spans: of a division: the first row of the anchors and the first behind them, and those of the candidates.
    """

    tensor_count: int
    division: Division | None = None
    spans: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def wants(self, needed: Sequence[bool]) -> tuple[bool, bool]:
        """Returns whether gradients of unit rows are wanted, of anchors and of candidates."""
        if self.division is None:
            return needed[0], len(needed) > 1 and needed[1]
        of_anchors, of_candidates = self.spans
        others = of_candidates != of_anchors and self.division.learns(*of_candidates, needed)
        return self.division.learns(*of_anchors, needed), others

    def gradients(self, unit_gradients: Pair, needed: Sequence[bool]) -> Sequence[Tensor | None]:
        """Returns the gradients of the tensors, given those of the unit rows of anchors and candidates."""
        if self.division is None:
            return unit_gradients[: len(needed)]
        both = unit_gradients[:1] if self.spans[0] == self.spans[1] else unit_gradients
        pieces = [(start, gradient) for (start, _), gradient in zip(self.spans, both, strict=False) if gradient is not None]
        return self.division.gradients(pieces, needed)


def operands_of(block: Block) -> tuple[Operands, Sequence[Tensor]]:
    """Returns what the statistics of a block are functions of, and their tensors."""
    anchors, candidates = block.of_anchors, block.of_candidates
    units = anchors.units
    # Where the rows have a graph, others read it as well: all gradients are added up before they are those of raw rows.
    if block.alone and units is not None and units is candidates.units and units.division is not None and units.graph is None:
        return Operands(len(units.raw), units.division, (anchors.span, candidates.span)), units.raw
    rows = (anchors.rows,) if anchors is candidates else (anchors.rows, candidates.rows)
    return Operands(len(rows)), rows


class TiledStatistics(torch.autograd.Function):
    """A pass, with gradient."""

    @staticmethod
    def forward(ctx: Any, work: Pass, operands: Operands, keep: bool, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns what `Pass.forward` does of the offset or None, the operands, and what the map learns."""
        ctx.work, ctx.operands = work, operands
        ctx.set_materialize_grads(False)
        # Kept for what autograd checks: that they were not changed in place, and that the graph still exists.
        if operands.division is not None:
            tensors = (operands.division.unit, tensors[0], *tensors[1 + operands.tensor_count :])
        ctx.save_for_backward(*tensors)
        return work.forward(keep and any(ctx.needs_input_grad))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the operands."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        device = ctx.work.similarity.device.type
        if torch.is_autocast_enabled(device):
            # Tiles are float32 also where the backward pass is called inside an autocast region.
            with torch.autocast(device, enabled=False):
                return TiledStatistics.backward(ctx, *gradients)
        _ = ctx.saved_tensors  # raises where one was changed in place, or the graph is gone
        operands, (_, _, _, of_offset, *wanted) = ctx.operands, ctx.needs_input_grad
        needed, of_learned = wanted[: operands.tensor_count], wanted[operands.tensor_count :]
        backward = Backward(ctx.work, gradients, (*operands.wants(needed), of_offset, *of_learned))
        (of_rows, *others), learned = backward.run()
        if others:  # a map with products learns through their rows alone, which its tensors() are
            product_gradients: dict[int, Tensor] = {}
            for rows, both in zip(ctx.work.map.products, others, strict=True):
                product_gradients |= {
                    id(tensor): gradient for tensor, gradient in zip(rows, both, strict=True) if gradient is not None
                }
            learned = [product_gradients.get(id(tensor)) for tensor in ctx.work.map.tensors()]
        return None, None, None, backward.of_offset, *operands.gradients(of_rows, needed), *learned


# Without what `torch.autograd.Function` does for the transforms of `torch.func`, which take the dense engine.
apply_rows: Any = super(torch.autograd.Function, TiledStatistics).apply
