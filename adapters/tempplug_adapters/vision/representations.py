"""What every evaluation asks of representations and labels before it starts, and their rows at unit length.

This module must not know any evaluation, images or models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError


def check_representations(representations: Tensor, name: str) -> None:
    """Makes sure that something is a matrix of finite numbers with at least one row and one column.

    Args:
        representations: what should be [N, F] floating point.
        name: of the argument, for the message.

    Raises:
        ShapeError: another shape, or empty.
        ConfigError: another type.
        NonFiniteError: NaN or infinite values.
    """
    if representations.ndim != 2 or not representations.numel():
        raise ShapeError(f"{name} of shape {list(representations.shape)} must be [N, F] with N and F at least 1.")
    if not representations.is_floating_point():
        raise ConfigError(f"{name} of dtype {representations.dtype} must be floating point.")
    if not torch.isfinite(representations).all():
        raise NonFiniteError(f"{name} hold NaN or infinite values: the model that made them has diverged or overflowed.")


def check_labels(labels: Tensor, representations: Tensor, name: str, classes: int | None = None) -> int:
    """Makes sure that labels fit their representations, and returns how many classes there are.

    Args:
        labels: what should be [N] integers of at least 0.
        representations: [N, F].
        name: of the argument, for the message.
        classes: how many there are; None takes the highest label plus 1.

    Raises:
        ShapeError: another shape.
        ConfigError: not integers, or a label outside 0 … classes - 1.
    """
    if labels.shape != representations.shape[:1]:
        raise ShapeError(f"{name} of shape {list(labels.shape)} must be [{len(representations)}], one per representation.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ConfigError(f"{name} of dtype {labels.dtype} must be integers.")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or (classes is not None and highest >= classes):
        wanted = "at least 0" if classes is None else f"in 0 to {classes - 1}: there are {classes} classes"
        raise ConfigError(f"{name} {lowest} to {highest} must be {wanted}.")
    return highest + 1 if classes is None else classes


def check_held_out(bank: Tensor, queries: Tensor, names: tuple[str, str] = ("bank", "queries")) -> None:
    """Makes sure that what is measured on is not what was learned from.

    Args:
        bank: [N, F] what is learned from.
        queries: [M, F] what is measured on.
        names: of the two arguments, for the message.

    Raises:
        ShapeError: the two have different F.
        ConfigError: both are the same representations, and not all of them alike.
    """
    if bank.shape[1] != queries.shape[1]:
        raise ShapeError(f"{names[1]} of shape {list(queries.shape)} must be [M, {bank.shape[1]}], as wide as {names[0]}.")
    if bank.shape == queries.shape and torch.equal(bank.to(queries), queries) and not bool((bank == bank[0]).all()):
        raise ConfigError(
            f"{names[1]} are the representations of {names[0]}: each would be asked about itself. "
            "Learn from the training split and measure on the test split."
        )


def unit_rows(representations: Tensor) -> Tensor:
    """Returns rows of length 1 in at least float32, detached; rows of zeros stay zero.

    Args:
        representations: [N, F], finite.

    >>> unit_rows(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    rows = representations.detach()
    rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
    # Divided by its largest entry first, a row's squares neither overflow nor vanish.
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1)
    units: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1)
    return units
