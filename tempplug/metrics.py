"""Measurements of embeddings (alignment, uniformity, tolerance) and of a loss's gradient (scale, effective negatives).

They are not losses: they return detached 0-dimensional tensors of raw embeddings, whose rows are normalised here, in at least
float32. Self pairs never count. Must not depend on strategies, objectives, engines or layouts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.precision import at_least_float32

ROWS_AT_ONCE = 512


def _check_floating(name: str, values: Tensor) -> None:
    if not values.is_floating_point():
        raise ConfigError(f"{name} of dtype {values.dtype} must be floating point.")


def _unit_rows(embeddings: Tensor, name: str, minimum: int) -> Tensor:
    if embeddings.ndim != 2 or len(embeddings) < minimum:
        wanted = f"[N, D] with N at least {minimum}"
        raise ShapeError(f"{name} of shape {list(embeddings.shape)} must be {wanted}.")
    _check_floating(name, embeddings)
    return unit_rows(embeddings.detach())[0]


def _class_numbers(labels: Tensor, embeddings: Tensor) -> Tensor:
    """Returns labels renumbered 0, 1, … without gaps."""
    if labels.shape != embeddings.shape[:1]:
        raise ShapeError(f"labels of shape {list(labels.shape)} must be [{len(embeddings)}], one per embedding.")
    numbers: Tensor = torch.unique(labels.to(embeddings.device), return_inverse=True)[1]
    return numbers


def _class_sums(units: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum of the rows of each class [C, D] and their number [C]."""
    counts = torch.bincount(classes)
    sums = units.new_zeros(len(counts), units.shape[1]).index_add_(0, classes, units)
    return sums, counts


def _check_t(t: float) -> None:
    if not (math.isfinite(t) and t > 0):
        raise ConfigError(f"t={t:g} must be finite and greater than 0.")


def _log_mean_potential(points: Tensor, t: float) -> Tensor:
    """Returns ln of the mean of exp(-t·‖x - y‖²) over all ordered pairs of different rows, a block of rows at a time."""
    squares = points.square().sum(dim=1)
    blocks = []
    for start in range(0, len(points), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        distance = (squares[rows, None] + squares - 2 * points[rows] @ points.T).clamp_(min=0)
        distance.diagonal(start).fill_(torch.inf)
        blocks.append(torch.logsumexp(distance.mul_(-t), dim=(0, 1)))
    return torch.logsumexp(torch.stack(blocks), dim=0) - math.log(len(points) * (len(points) - 1))


def alignment(view_a: Tensor, view_b: Tensor) -> Tensor:
    """Returns the mean squared distance of the two views of an item; lower is more aligned, in [0, 4].

    Row i of ``view_b`` [N, D] is another view of row i of ``view_a``; both are raw embeddings.

    Raises:
        ShapeError: the views are not two matrices of one shape.
        ConfigError: integer embeddings.

    Source: Wang & Isola 2020, ℓ_align with exponent 2.

    >>> alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]]))
    tensor(2.)
    """
    a, b = _unit_rows(view_a, "view_a", 1), _unit_rows(view_b, "view_b", 1)
    if a.shape != b.shape:
        raise ShapeError(f"view_b of shape {list(b.shape)} must have the shape of view_a, {list(a.shape)}.")
    return (a - b).square().sum(dim=1).mean()


def uniformity(embeddings: Tensor, t: float = 2.0) -> Tensor:
    """Returns ln of the mean Gaussian potential of all pairs of different rows; lower is more spread, in [-4t, 0].

    The potential of raw embeddings [N, D], N at least 2, is exp(-t·‖x - y‖²), t greater than 0.

    Raises:
        ShapeError: not a matrix, or fewer than two rows.
        ConfigError: ``t`` out of range, or integer embeddings.

    Source: Wang & Isola 2020, ℓ_uniform.

    >>> uniformity(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor(-4.)
    """
    _check_t(t)
    return _log_mean_potential(_unit_rows(embeddings, "embeddings", 2), t)


def tolerance(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cosine similarity of all pairs of different rows of one class; higher keeps classes together.

    Of raw embeddings [N, D], N at least 2, and labels [N].

    Raises:
        ShapeError: not a matrix, fewer than two rows, or labels of another length.
        ConfigError: no class has two rows, or integer embeddings.

    Source: Wang & Liu 2021. DySTreSS, eq. 17, prints it with a minus sign; its code and the original have none.

    >>> tolerance(torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
    tensor(0.6000)
    """
    units = _unit_rows(embeddings, "embeddings", 2)
    sums, counts = _class_sums(units, _class_numbers(labels, units))
    pairs = (counts * (counts - 1)).sum()
    if int(pairs) == 0:
        raise ConfigError(f"labels with {len(counts)} classes for {len(units)} rows: tolerance needs two rows of one class.")
    # all ordered pairs of a class sum to ‖Σx‖², of which Σ‖x‖² are self pairs
    return (sums.square().sum() - units.square().sum()) / pairs


def interclass_uniformity(embeddings: Tensor, labels: Tensor, t: float = 2.0) -> Tensor:
    """Returns the uniformity of the class centroids; lower is classes further apart.

    Of raw embeddings [N, D], N at least 2, and labels [N] of at least two classes; ``t`` as in `uniformity`.

    Raises:
        ShapeError: not a matrix, fewer than two rows, or labels of another length.
        ConfigError: fewer than two classes, ``t`` out of range, or integer embeddings.

    Source: DySTreSS, eq. 19. Centroids are means of unit rows, not normalised again, and a class is not paired with
    itself; the paper says neither.

    >>> interclass_uniformity(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([0, 1, 0]))
    tensor(-2.)
    """
    _check_t(t)
    units = _unit_rows(embeddings, "embeddings", 2)
    sums, counts = _class_sums(units, _class_numbers(labels, units))
    if len(counts) < 2:
        raise ConfigError("labels with 1 class: inter-class uniformity needs at least 2.")
    return _log_mean_potential(sums / counts[:, None], t)


def gradient_scale(positive_lse: Tensor, negative_lse: Tensor) -> Tensor:
    """Returns the mean of W = 1 - P, the factor by which InfoNCE scales the gradient of each anchor, in [0, 1].

    The arguments [N] are the log-sum-exp of each anchor's positive logits (of one positive, its logit), and of its negative
    ones.

    Raises:
        ShapeError: the two are not vectors of one shape, or empty.
        ConfigError: integer values.

    Source: MACL, eq. 8.

    >>> gradient_scale(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]))
    tensor(0.5000)
    """
    if positive_lse.ndim != 1 or positive_lse.shape != negative_lse.shape or len(positive_lse) == 0:
        shapes = f"{list(positive_lse.shape)} and {list(negative_lse.shape)}"
        raise ShapeError(f"positive_lse and negative_lse of shapes {shapes} must both be [N] with N at least 1.")
    _check_floating("positive_lse", positive_lse)
    _check_floating("negative_lse", negative_lse)
    return torch.sigmoid(at_least_float32(negative_lse.detach()) - at_least_float32(positive_lse.detach())).mean()


def effective_negatives(log_weights: Tensor) -> Tensor:
    """Returns how many negatives an anchor's gradient comes from: exp of the entropy of their shares, mean over the anchors.

    1 where one negative has all of it, the number of negatives where all have the same. InfoNCE pushes negative j away with
    exp(l_j)·dl_j/ds_j over a sum that all of them share, so that its logarithm is ``logit + slope.log()``.

    Args:
        log_weights: [N, M] logarithms of the weights of each anchor's candidates, -inf for those that are no negatives.
            Anchors without any leave the mean; NaN where none is left.

    Raises:
        ShapeError: not a matrix.
        ConfigError: integer values.

    >>> effective_negatives(torch.tensor([[0.0, 0.0, 0.0, 0.0], [9.0, -torch.inf, -torch.inf, -torch.inf]]))
    tensor(2.5000)
    """
    if log_weights.ndim != 2:
        raise ShapeError(f"log_weights of shape {list(log_weights.shape)} must be [N, M].")
    _check_floating("log_weights", log_weights)
    rows = at_least_float32(log_weights.detach())
    rows = rows[(rows > -torch.inf).any(dim=1)]
    entropy: Tensor = torch.special.entr(rows.softmax(dim=1)).sum(dim=1)
    return entropy.exp().mean()
