"""The tiled engine: every map, term, role and objective through one function, in O(N·D) memory.

A tile of similarities goes through the map to logits, the terms of negatives are added, a pair function f (exp, or that of the
objective) is applied, and rows are summed: `forward`. With x_i the gradient of row i's sum, the gradient of a similarity is

    G_ij = f'(l_ij) · x_i · dl_ij/ds,    or f'(l_ij) · (x_i + x_j) · dl_ij/ds where column j is an anchor as well,

which two products turn into those of anchors and candidates: `backward`. f' is kept from the forward pass as long as all tiles
fit into `forward.KEPT` numbers, and computed again otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.engine.backward import Backward
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
    candidates = None if block.candidates is block.anchors else block.candidates
    similarity, logit, positive, negative, columns, top = apply_rows(
        work, torch.is_grad_enabled() and block.keeps, block.anchors, candidates, offset, *learned
    )
    if roles.positives is not None and not roles.positives.runs:
        logit = similarity  # of no positive any number does
    elif logit is None:  # a map that learns, of whose curve autograd finds the gradient
        logit = at_positives(logit_map, roles).logit(similarity)
    counts = roles.positive_count
    if positive is None:
        positive = logit if pair is None or offset is None else pair.value(-(logit + offset))
    elif pair is None and roles.fewest_positives < 2:
        # One positive's log-sum-exp is its logit, to the last digit: a loss without negatives is 0. Of none any number does.
        positive = torch.where(counts <= 1, logit, positive)
    negative_count = roles.negative_count if work.count is None else work.count.sums.long()
    found = [RowStatistics(logit, similarity, positive, negative, counts, negative_count, work.mean, top)]
    if columns is not None:
        found.append(RowStatistics(logit, similarity, positive, columns, counts, roles.negative_count))
    return found


class Rows(torch.autograd.Function):
    """A pass, with gradient."""

    @staticmethod
    def forward(ctx: Any, work: Pass, keep: bool, *operands: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns what `Pass.forward` does; operands: anchors, candidates or None, the offset or None, what the map learns."""
        ctx.work = work
        ctx.set_materialize_grads(False)
        # Kept for what autograd checks: that they were not changed in place, and that the graph still exists.
        ctx.save_for_backward(*operands)
        return work.forward(keep and any(ctx.needs_input_grad))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the operands."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        device = ctx.saved_tensors[0].device.type
        if torch.is_autocast_enabled(device):
            # Tiles are float32 also where the backward pass is called inside an autocast region.
            with torch.autocast(device, enabled=False):
                return Rows.backward(ctx, *gradients)
        backward = Backward(ctx.work, gradients, ctx.needs_input_grad[2:])
        ((of_anchors, of_candidates), *others), of_learned = backward.run()
        if others:  # a map with products learns through their rows alone, which its tensors() are
            found: dict[int, Tensor] = {}
            for rows, both in zip(ctx.work.map.products, others, strict=True):
                found |= {id(each): of_each for each, of_each in zip(rows, both, strict=True) if of_each is not None}
            of_learned = [found.get(id(each)) for each in ctx.work.map.tensors()]
        return None, None, of_anchors, of_candidates if ctx.needs_input_grad[3] else None, backward.of_offset, *of_learned


# Without what `torch.autograd.Function` does for the transforms of `torch.func`, which take the dense engine.
apply_rows: Any = super(torch.autograd.Function, Rows).apply
