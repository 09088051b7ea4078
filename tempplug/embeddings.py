"""Raw embeddings to unit rows, and the similarity of pairs: normalisation, dot products.

It must not know layouts, strategies or engines.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tempplug.precision import at_least_float32
from tempplug.roles import Pairing
from tempplug.transforms import transformed

# Rows shorter than this have no direction: similarity 0 and gradient 0, where torch's own normalize multiplies by 1e12.
SMALLEST_NORM = 1e-12


class _Divide(torch.autograd.Function):
    """Rows over their norm, keeping nothing but the result and the norms; several inputs come out one behind the other."""

    @staticmethod
    def forward(
        ctx: Any, twice: bool, wide: Tensor, norm: Tensor, largest: Tensor | None, zero: Tensor | None, *raw: Tensor
    ) -> Tensor:
        unit = wide / (norm if largest is None else largest)
        if largest is not None and zero is not None:
            unit = unit.div_(norm).masked_fill_(zero, 0)
        ctx.save_for_backward(unit, norm, largest, zero, *(raw if twice else ()))
        ctx.raw = [(len(each), each.dtype) for each in raw]
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        unit, norm, largest, zero, *raw = ctx.saved_tensors
        (gradient,) = gradients
        if torch.is_grad_enabled():
            if not raw:
                raise RuntimeError(
                    "this engine has no second derivative: call backward without create_graph=True, or use engine='dense'."
                )
            # The gradient has a gradient of its own: result and norm anew, as functions of the input.
            wide = at_least_float32(torch.cat(raw))
            scaled = wide if largest is None else wide / largest
            norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
            norm = norm if zero is None else norm.masked_fill(zero, 1)
            unit = scaled / norm
        radial = (unit * gradient).sum(1, keepdim=True)
        of_wide = torch.addcmul(gradient, unit, radial, value=-1)
        if raw:
            of_wide = of_wide / norm if largest is None else (of_wide / norm / largest).masked_fill(zero, 0)
        else:
            of_wide.div_(norm)
            if largest is not None:
                of_wide.div_(largest).masked_fill_(zero, 0)
        parts = [of_wide] if len(ctx.raw) == 1 else torch.split(of_wide, [rows for rows, _ in ctx.raw])
        return None, None, None, None, None, *(part.to(dtype) for part, (_, dtype) in zip(parts, ctx.raw, strict=True))


def unit_rows(*embeddings: Tensor, twice: bool = False) -> tuple[Tensor, Tensor | None]:
    """Returns the rows divided by their norm, in at least float32, and which rows had none.

    Args:
        embeddings: [B, D], or several such, whose rows come out one behind the other.
        twice: whether second derivatives are wanted, which keeps the inputs as well.

    Returns:
        [B, D] unit rows, and [B] booleans: True where the norm is below the smallest that has a direction; those rows are
        0 with zero gradient. None instead of the booleans says that every norm is an ordinary number, so that no row is
        without direction and no value is NaN or infinite.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([False,  True]))
    """
    if transformed():
        return _plain_unit_rows(embeddings)
    largest = zero = None
    with torch.no_grad():
        wide = at_least_float32(embeddings[0] if len(embeddings) == 1 else torch.cat(embeddings))
        norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        if wide.device.type != "cpu" or not ordinary(norm):
            smallest = max(SMALLEST_NORM, torch.finfo(embeddings[0].dtype).tiny)
            # The largest entry is divided out first, so that squares neither overflow nor underflow; the result does not
            # change with it, so neither does the gradient.
            largest = wide.abs().amax(1, keepdim=True)
            zero = largest < smallest
            largest = largest.masked_fill_(zero, 1)
            norm = torch.linalg.vector_norm(wide / largest, dim=1, keepdim=True).masked_fill_(zero, 1)
    unit: Tensor = _Divide.apply(twice, wide, norm, largest, zero, *embeddings)  # type: ignore[no-untyped-call]
    return unit, None if zero is None else zero.squeeze(1)


def _plain_unit_rows(embeddings: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Returns what `unit_rows` does by operations that every transform of `torch.func` knows."""
    wide = at_least_float32(torch.cat(embeddings))
    largest = wide.detach().abs().amax(1, keepdim=True)
    zero = largest < max(SMALLEST_NORM, torch.finfo(embeddings[0].dtype).tiny)
    scaled = torch.where(zero, 1.0, wide / torch.where(zero, 1.0, largest))
    unit = torch.where(zero, 0.0, scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True))
    return unit, zero.squeeze(1)


def ordinary(norm: Tensor) -> bool:
    """Returns whether all norms are numbers of a size at which squares are exact; a NaN fails both comparisons."""
    low, high = torch.aminmax(norm)
    return low.item() > 1e-6 and high.item() < 1e6


def paired_similarity(anchors: Tensor, candidates: Tensor, pairing: Pairing) -> Tensor:
    """Returns the cosine similarity of each anchor and the candidate that it is paired with, [N].

    Args:
        anchors: [N, D] unit rows.
        candidates: [M, D] unit rows.
        pairing: who goes with whom.
    """
    half = len(anchors) // 2
    if anchors is candidates and pairing.runs == ((0, half, half), (half, 2 * half, -half)):
        similarity = (anchors[:half] * anchors[half:]).sum(1)
        return torch.cat([similarity, similarity])  # each pair from both its ends
    parts = [(anchors[a:b] * candidates[a + k : b + k]).sum(1) for a, b, k in pairing.runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
