"""Raw embeddings to unit rows, and the similarity of pairs: checks at the public door, normalisation, dot products.

It must not know layouts, strategies or engines.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tempplug.errors import NonFiniteError, ShapeError
from tempplug.roles import Pairing
from tempplug.strategies.maps import at_least_float32

# Rows shorter than this have no direction: similarity 0 and gradient 0, where torch's own normalize multiplies by 1e12.
SMALLEST_NORM = 1e-12


def check_embeddings(name: str, embeddings: Tensor, dimension: int | None = None) -> None:
    """Raises unless these are embeddings.

    Args:
        name: of the argument, for the message.
        embeddings: [B, D] floating point, B and D at least 1.
        dimension: D that they must have, where another argument fixed it.

    Raises:
        TypeError: not a tensor.
        ShapeError: not two-dimensional, empty, not floating point, or of another D.
    """
    if not isinstance(embeddings, Tensor):
        raise TypeError(f"{name} is a {type(embeddings).__name__}; wanted a tensor of embeddings [B, D].")
    if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
        raise ShapeError(
            f"{name} of shape {list(embeddings.shape)} and dtype {embeddings.dtype} must be floating point of shape [B, D], "
            "neither of them 0."
        )
    if dimension is not None and embeddings.shape[1] != dimension:
        raise ShapeError(f"{name} has {embeddings.shape[1]} dimensions where view_a has {dimension}.")


def check_finite(name: str, embeddings: Tensor) -> None:
    """Raises where rows hold NaN or infinite values; on CUDA it would wait for the device, so there nobody looks.

    Args:
        name: of the argument, for the message.
        embeddings: [B, D].

    Raises:
        NonFiniteError: it says how many rows, and which is the first.
    """
    if embeddings.device.type != "cpu":
        return
    finite = torch.isfinite(embeddings.detach()).all(1)
    if not bool(finite.all()):
        bad = (~finite).nonzero().flatten()
        raise NonFiniteError(
            f"{name} holds NaN or infinite values in {bad.numel()} of {finite.numel()} rows (first: row {int(bad[0])}); "
            "the loss needs finite embeddings."
        )


class _Divide(torch.autograd.Function):
    """Rows over their norm, keeping nothing but the result and the norms."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor, norm: Tensor) -> Tensor:
        unit = wide / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        unit, norm = ctx.saved_tensors
        (gradient,) = gradients
        radial = torch.linalg.vecdot(unit, gradient).unsqueeze(1)
        return torch.addcmul(gradient, unit, radial, value=-1).div_(norm), None


def unit_rows(embeddings: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns the rows divided by their norm, in at least float32, and which rows had none.

    Args:
        embeddings: [B, D].

    Returns:
        [B, D] unit rows, and [B] booleans: True where the norm is below the smallest that has a direction; those rows are
        0 with zero gradient. None instead of the booleans says that every norm is an ordinary number, so that no row is
        without direction and no value is NaN or infinite.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([False,  True]))
    """
    wide = at_least_float32(embeddings)
    if wide.device.type == "cpu":
        norm = torch.linalg.vector_norm(wide.detach(), dim=1, keepdim=True)
        low, high = torch.aminmax(norm)
        # A NaN fails both comparisons.
        if low.item() > 1e-6 and high.item() < 1e6:
            unit: Tensor = _Divide.apply(wide, norm)  # type: ignore[no-untyped-call]
            return unit, None
    smallest = max(SMALLEST_NORM, torch.finfo(embeddings.dtype).tiny)
    # The largest entry is divided out first, so that squares neither overflow nor underflow; the result does not change
    # with it, so neither does the gradient.
    largest = wide.detach().abs().amax(1, keepdim=True)
    zero = largest < smallest
    scaled = wide / largest.masked_fill(zero, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    unit = (scaled / norm.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)
    return unit, zero.squeeze(1)


class _Paired(torch.autograd.Function):
    """Similarities along a pairing, with one gradient tensor an operand."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, candidates: Tensor, pairing: Pairing) -> Tensor:
        ctx.save_for_backward(anchors, candidates)
        ctx.runs = pairing.runs
        return _along(anchors, candidates, pairing.runs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        anchors, candidates = ctx.saved_tensors
        (gradient,) = gradients
        of_anchors = of_candidates = None
        if ctx.needs_input_grad[0]:
            parts = [candidates[a + k : b + k] * gradient[a:b, None] for a, b, k in ctx.runs]
            of_anchors = parts[0] if len(parts) == 1 else torch.cat(parts)
        if ctx.needs_input_grad[1]:
            of_candidates = torch.zeros_like(candidates)
            for a, b, k in ctx.runs:
                of_candidates[a + k : b + k] += anchors[a:b] * gradient[a:b, None]
        return of_anchors, of_candidates, None


class _PairedWithItself(torch.autograd.Function):
    """The same where anchors and candidates are one tensor and each anchor's positive has the anchor as its own."""

    @staticmethod
    def forward(ctx: Any, unit: Tensor, pairing: Pairing) -> Tensor:
        ctx.save_for_backward(unit)
        ctx.runs = pairing.runs
        (_, half, shift), _ = pairing.runs
        similarity = torch.linalg.vecdot(unit[:half], unit[shift:])
        return torch.cat([similarity, similarity])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (unit,) = ctx.saved_tensors
        (gradient,) = gradients
        (_, half, _), _ = ctx.runs
        both = (gradient[:half] + gradient[half:]).unsqueeze(1)
        return torch.cat([unit[half:] * both, unit[:half] * both]), None


def _along(anchors: Tensor, candidates: Tensor, runs: tuple[tuple[int, int, int], ...]) -> Tensor:
    parts = [torch.linalg.vecdot(anchors[a:b], candidates[a + k : b + k]) for a, b, k in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def paired_similarity(anchors: Tensor, candidates: Tensor, pairing: Pairing) -> Tensor:
    """Returns the cosine similarity of each anchor and the candidate that it is paired with, [N], with gradient.

    Args:
        anchors: [N, D] unit rows.
        candidates: [M, D] unit rows.
        pairing: who goes with whom.
    """
    half = len(anchors) // 2
    if anchors is candidates and pairing.runs == ((0, half, half), (half, 2 * half, -half)):
        similarity: Tensor = _PairedWithItself.apply(anchors, pairing)  # type: ignore[no-untyped-call]
    else:
        similarity = _Paired.apply(anchors, candidates, pairing)  # type: ignore[no-untyped-call]
    return similarity
