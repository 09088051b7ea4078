"""What to write in place of an argument that is no tensor, or one of another shape: the ends of error messages.

Nothing here runs in a call that is right, and nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

PADDING = (
    "pad them to [B, k, D], as torch.nn.utils.rnn.pad_sequence does, and say in hard_negative_mask= [B, k] which are there"
)


def type_name(value: object) -> str:
    """Returns the name of a value's type, with its module unless that is Python's own.

    >>> type_name([1]), type_name(Tensor())
    ('list', 'torch.Tensor')
    """
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def of_value(shown: str, value: Any, creation: str = "") -> str:
    """Returns what makes a tensor of a list, an array or a nested tensor, to be put behind a message; else nothing.

    Args:
        shown: name of the argument in the message.
        value: of the argument.
        creation: the dtype to write; empty for that of the values.

    >>> of_value("queue", [Tensor(4), Tensor(4)])
    ': write torch.stack(queue)'
    >>> of_value("labels", [0, 1], "torch.int64")
    ': write torch.as_tensor(labels, dtype=torch.int64)'
    """
    if isinstance(value, Tensor):
        return f": {PADDING}" if "hard_negatives" in shown else ": torch.nested.to_padded_tensor"
    array = type_name(value) == "numpy.ndarray"
    if not array and not isinstance(value, list | tuple):
        return ""
    items = list(value.tolist() if array else value)
    if not array or value.dtype.kind in "OUS":
        leaves = list(_leaves(items))
        if any(isinstance(leaf, str) for leaf in leaves):
            return ": it holds words; number them, equal words alike in all batches, and pass the numbers"
        if any(leaf is None for leaf in leaves):
            return ": it holds None; every row needs a value"
        if _shape(items) is None:
            return f": its items have different lengths; {PADDING if 'hard_negatives' in shown else 'a tensor has one for all'}"
        if items and all(isinstance(item, Tensor) for item in items):
            return f": write torch.stack({shown})"
    return f": write torch.as_tensor({shown}{f', dtype={creation}' if creation else ''})"


def of_shape(name: str, values: Tensor, wanted: tuple[int, ...]) -> str:
    """Returns what makes the ``wanted`` shape of a tensor, if it is a usual one of another order, to be put behind a message.

    An empty ``wanted`` stands for embeddings [B, D].

    >>> import torch
    >>> of_shape("labels", torch.eye(3), (3,)), of_shape("queue", torch.ones(4, 9), (9, 4))
    (': write labels.argmax(1) if they are one-hot', ': write queue.T if it is transposed')
    """
    shape = tuple(values.shape)
    if not wanted:
        return ": pool the tokens of each row first" if len(shape) == 3 and name.startswith("view_") else ""
    if len(wanted) == 1 and len(shape) == 2 and shape[0] == wanted[0]:
        if shape[1] == 1:
            return f": write {name}.squeeze(1)"
        return f": write {name}.argmax(1) if they are one-hot" if name == "labels" else ""
    if len(wanted) == 1 and shape == (2 * wanted[0],):
        return ", which serves view_b as well" if name in ("labels", "index") else ""
    if len(wanted) > 1 and shape != wanted and shape == (wanted[1], wanted[0], *wanted[2:]):
        return f": write {name}.{'T' if len(shape) == 2 else 'transpose(0, 1)'} if it is transposed"
    return ""


def _leaves(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list | tuple):
            yield from _leaves(list(item))
        else:
            yield item


def _shape(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of nested lists of numbers or tensors, None where their lengths differ."""
    if not isinstance(value, list | tuple):
        return tuple(getattr(value, "shape", ()))
    shapes = {_shape(item) for item in value}
    (shape,) = shapes if len(shapes) == 1 else (None,)
    return None if shape is None and value else (len(value), *(shape or ()))
