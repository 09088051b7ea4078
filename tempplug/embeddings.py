"""Raw embeddings to unit rows: checks of shape and finiteness at the public door, and the normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import NonFiniteError, ShapeError
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
        NonFiniteError: NaN or infinite values (checked on CPU only; on CUDA the loss becomes NaN without waiting for it).
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
    if embeddings.device.type == "cpu":
        finite = torch.isfinite(embeddings.detach()).all(1)
        if not bool(finite.all()):
            bad = (~finite).nonzero().flatten()
            raise NonFiniteError(
                f"{name} holds NaN or infinite values in {bad.numel()} of {finite.numel()} rows (first: row {int(bad[0])}); "
                "the loss needs finite embeddings."
            )


def unit_rows(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows divided by their norm, in at least float32, and which rows had none.

    Args:
        embeddings: [B, D].

    Returns:
        [B, D] unit rows, and [B] booleans: True where the norm is below the smallest that has a direction; those rows are
        0 with zero gradient.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([False,  True]))
    """
    smallest = max(SMALLEST_NORM, torch.finfo(embeddings.dtype).tiny)
    wide = at_least_float32(embeddings)
    # The largest entry is divided out first, so that squares neither overflow nor underflow; the result does not change
    # with it, so neither does the gradient.
    largest = wide.detach().abs().amax(1, keepdim=True)
    zero = largest < smallest
    scaled = wide / largest.masked_fill(zero, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    unit = (scaled / norm.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)
    return unit, zero.squeeze(1)
