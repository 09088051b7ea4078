"""Checks of encoders: all weights are there, and no others; weights and vectors are finite.

Loaders of weights and functions that compute vectors call them, so that no command has to. This module needs only torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tempplug.errors import DataError, NonFiniteError, quoted

_EXAMPLES = 3
"""Names of weights in a message."""


def load_state(module: nn.Module, state: Any, **options: Any) -> None:
    """Loads the weights of a file into a module.

    Args:
        module: as the file's settings describe it.
        state: content of the file, weights by name.
        **options: of `torch.nn.Module.load_state_dict`.

    Raises:
        DataError: weights are missing, superfluous or of another shape; the message only gives the reason, to which the caller
            adds the file.
        NonFiniteError: a weight is NaN or infinite; likewise.
    """
    if not isinstance(state, Mapping):
        raise DataError(f"it holds a {type(state).__name__}, not weights by name.")
    expected = module.state_dict()
    for name, values in state.items():
        if name in expected and _shape(values) != _shape(expected[name]):
            raise DataError(f"{name} has the shape {_shape(values)}, which its settings make {_shape(expected[name])}.")
    differences = module.load_state_dict(state, strict=False, **options)
    if differences.missing_keys:
        raise DataError(f"it lacks weights: {some_names(differences.missing_keys)}.")
    if differences.unexpected_keys:
        raise DataError(f"it has weights that its settings have no place for: {some_names(differences.unexpected_keys)}.")
    check_finite_weights(module.state_dict())


def _shape(values: Any) -> list[int] | None:
    """Returns the shape of a tensor; None for other values, and for parameters whose shape is not yet known."""
    return list(values.shape) if isinstance(values, Tensor) and not nn.parameter.is_lazy(values) else None


def some_names(names: Collection[str]) -> str:
    """Returns the first names in order of the alphabet, and the number of all.

    >>> some_names(["d", "b", "a", "c"])
    'a, b, c and 1 more'
    """
    ordered = sorted(names)
    others = f" and {len(ordered) - _EXAMPLES} more" if len(ordered) > _EXAMPLES else ""
    return ", ".join(ordered[:_EXAMPLES]) + others


def check_finite_weights(weights: Mapping[str, Any]) -> None:
    """Raises NonFiniteError if a weight is NaN or infinite; the message only gives the reason, to which a caller adds the file.

    Args:
        weights: weights and buffers by name; entries that are no tensors are ignored.
    """
    wrong = {name: values for name, values in weights.items() if isinstance(values, Tensor) and not values.isfinite().all()}
    if wrong:
        name, values = next(iter(wrong.items()))
        count = int(values.isfinite().logical_not().sum())
        others = f", and {len(wrong) - 1} other weights hold some" if len(wrong) > 1 else ""
        raise NonFiniteError(f"{name} holds {count} NaN or infinite values out of {values.numel()}{others}.")


def check_finite_rows(rows: Tensor, what: str, names: Sequence[object] | None = None, *, start: int = 0) -> None:
    """Raises NonFiniteError if a row has NaN or infinite values.

    Args:
        rows: [n, ...].
        what: what the rows are, in the plural, for the message.
        names: of the rows, such as texts or files, of which the message quotes one; None: it has the number of the row.
        start: number of the first row.
    """
    finite = rows.isfinite().reshape(len(rows), -1).all(dim=1) if len(rows) else torch.ones(0, dtype=torch.bool)
    if not finite.all():
        wrong = finite.logical_not().nonzero().flatten().tolist()
        first = f"row {start + wrong[0]}" if names is None else f"that of {quoted(str(names[wrong[0]]))}"
        raise NonFiniteError(
            f"{what} hold NaN or infinite values in {len(wrong)} of {len(rows)} rows, first in {first}: the encoder overflows, "
            "or its training has diverged."
        )
