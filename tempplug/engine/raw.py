"""A block from raw embeddings to the loss in one function: what closed forms share, whatever their tiles are.

Views are normalised as one matrix U, the anchors being its first rows and the candidates its last. Whoever knows the tiles
finds the gradient of U, whose part along U is what normalisation takes away, and what a learned scale has for a gradient. It
must not know strategies or objectives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, compress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from tempplug.embeddings import ordinary
from tempplug.precision import HALF, number, plain_precision
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import ClosedForm, Reduction, RowStatistics
from tempplug.unchanged import Unchanged

# Numbers of the largest block that is done at once, 4 MB in float32.
LARGEST = 1 << 20
# So many losses in float32 a dot product adds up as exactly as ``mean`` does, in a fraction of the time.
FEW = 1024
# What `detach` returns, sooner.
_data = attrgetter("data")
# Of x/‖x‖ in one pass over memory: that of weights with a gain, here of unit rows with a gain of 1/‖x‖.
_normalised_backward = torch.ops.aten._weight_norm_interface_backward.default


@lru_cache(maxsize=64)
def _ones(count: int, dtype: torch.dtype) -> Tensor:
    """Returns the gain of each row, [count, 1]."""
    with torch.inference_mode(False):
        return torch.ones(count, 1, dtype=dtype, device="cpu")


@lru_cache(maxsize=64)
def _even(count: int) -> Tensor:
    """Returns the weight of each row in their mean, [count] float32."""
    with torch.inference_mode(False):
        return torch.full((count,), 1 / count, dtype=torch.float32, device="cpu")


class RawBlock(ABC):
    """The block of one call, and what its backward pass needs.

    Args:
        roles: of the pairs.
        sizes: rows of each tensor of embeddings.
        raw: [B, D] embeddings of one floating-point type: those of the anchors first, then the other candidates.

    Attributes:
        ordinary: whether all norms are numbers of an ordinary size; else nothing else is there.
        unit: [N (+ M), D] unit rows of everything.
        positive_similarity: [N] mean similarity of the positives.
        statistics: of the rows, and of the columns where they are anchors, after `read`.
        closed: row losses of each direction and their derivatives, after `close`.
        row_losses: [N] their mean over the directions, 0 where an anchor has none; likewise.
        counted: [N] which anchors have a loss; None where all have.
        mirrored: whether the columns are anchors of the other direction.
        given: labels and masks of the call, which a second backward pass reads again; None where there are none.
    """

    closed: list[ClosedForm]
    counted: Tensor | None = None
    given: Unchanged | None = None
    mirrored: bool = False
    positive_similarity: Tensor
    row_losses: Tensor
    statistics: list[RowStatistics]

    def __init__(self, roles: PairRoles, sizes: tuple[int, ...], raw: Sequence[Tensor]) -> None:
        self.roles, self.sizes = roles, sizes
        wide = torch.cat([*map(_data, raw)])
        self.dtype = wide.dtype
        if wide.dtype in HALF:
            wide = wide.float()
        self.norm = norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        self.ordinary = ordinary(norm)
        if not self.ordinary:
            return
        self.unit = unit = wide.div_(norm)
        total, count, others = unit.shape[0], roles.anchors, roles.candidates
        if others == total:
            self.candidates, self.anchors = unit, unit if count == total else unit[:count]
        else:
            self.anchors, self.candidates = unit.split_with_sizes((count, others))

    def close(self, closed: list[ClosedForm]) -> None:
        """Takes what the objective makes of the statistics of each direction."""
        self.closed = closed
        losses = closed[0][0]
        if len(closed) > 1:
            losses = (losses + closed[1][0]).mul_(number(0.5, losses.dtype))
        self.row_losses = losses if self.counted is None else torch.where(self.counted, losses, 0.0)

    @abstractmethod
    def read(self, logit_map: LogitMap) -> bool:
        """Computes the statistics; returns whether that was possible, and exact.

        Args:
            logit_map: of this batch, without gradient, of a class that has an in-place form.
        """

    @abstractmethod
    def gradients(
        self, shares: int, factor: Tensor, weight: Tensor | None, scale: Tensor | None, last: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of the first raw rows, [last, D], and of the scale where one is given.

        Args:
            shares: what all gradients are divided by.
            factor: [], what they are multiplied by.
            weight: [N] gradient of each row's loss in units of ``factor``; None where all are 1.
            scale: the map's own where it is learned.
            last: rows of U whose gradient is wanted.
        """

    def _of_raw(self, of_unit: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient of the first raw rows [last, D], and the part of that of U along U [last, 1].

        Args:
            of_unit: [last, D] gradient of the rows of U.
            factor: [], what it is multiplied by.
        """
        unit, norm, last = self.unit, self.norm, of_unit.shape[0]
        if last < unit.shape[0]:
            unit, norm = unit[:last], norm[:last]
        found: tuple[Tensor, Tensor] = _normalised_backward(of_unit, unit, factor / norm, _ones(last, unit.dtype), 0)
        return found


class Closed(torch.autograd.Function):
    """The losses of a block's rows, reduced, with their gradient in closed form."""

    @staticmethod
    def forward(ctx: Any, block: RawBlock, reduction: Reduction, scale: Tensor | None, *raw: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            ctx: of autograd.
            block: that was read, and whose losses are there.
            reduction: of the losses.
            scale: the map's own where it is learned.
            raw: as the block's.
        """
        losses, shares = block.row_losses, len(block.closed)
        ctx.block, ctx.scale, ctx.shares = block, scale, shares
        # Kept for what autograd checks: that the graph is still there.
        ctx.save_for_backward(block.unit)
        if reduction != "mean":
            return losses.sum() if reduction == "sum" else losses.clone()
        count = losses.shape[0] if block.counted is None else int(block.counted.sum())
        ctx.shares = count * shares
        if block.counted is None and count <= FEW and losses.dtype is torch.float32:
            return torch.dot(losses, _even(count))
        return losses.sum() / count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of scale and embeddings."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "engine='tiled' has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        if torch.is_autocast_enabled("cpu"):
            with plain_precision("cpu"):
                return Closed.backward(ctx, *gradients)
        _, block, needed = ctx.saved_tensors, ctx.block, ctx.needs_input_grad
        if block.given is not None:
            block.given.check("backward pass")
        (factor,), weight, last = gradients, None, block.unit.shape[0]
        if factor.ndim:
            # In units of the largest, because small temperatures leave no room in float32 for gradients far from 1.
            largest = factor.abs().amax()
            largest = torch.where(largest > 0, largest, 1.0)
            factor, weight = largest, factor / largest
        if block.counted is not None:
            weight = block.counted.to(factor) if weight is None else torch.where(block.counted, weight, 0.0)
        some = False in needed[3:]
        if some:
            ends = tuple(accumulate(block.sizes))
            last = max([block.anchors.shape[0], *compress(ends, needed[3:])])
        of_raw, of_scale = block.gradients(ctx.shares, factor, weight, ctx.scale if needed[2] else None, last)
        if of_raw.dtype is not block.dtype:
            of_raw = of_raw.to(block.dtype)
        if not some:
            return None, None, of_scale, *of_raw.split_with_sizes(block.sizes)
        parts = zip(block.sizes, ends, needed[3:], strict=True)
        return None, None, of_scale, *(of_raw[end - size : end] if wanted else None for size, end, wanted in parts)


# Without what `torch.autograd.Function` does for the transforms of `torch.func`, under which nobody comes here.
apply_closed = super(torch.autograd.Function, Closed).apply
"""Returns what `Closed.forward` does, with gradient."""
