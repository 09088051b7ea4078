"""How large the largest tensor is that forward and backward make on a process."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tempplug

# Of each process; both blocks are several tiles.
ROWS, DIMENSION = 600, 8
LAYOUTS: dict[str, dict[str, Any]] = {"two-view": {}, "symmetric": {"layout": "cross-view", "symmetric": True}}


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest result of any operation held."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        # A view of one number may claim any shape, so what lies behind it counts.
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max(self.numbers, *(each.untyped_storage().nbytes() // each.itemsize for each in tensors), 0)
        return result


def largest(engine: str, layout: str) -> int:
    """Returns how many numbers it holds."""
    loss_fn = tempplug.ContrastiveLoss("learnable", gather=True, engine=engine, **LAYOUTS[layout])
    view_a, view_b = torch.randn(2, ROWS, DIMENSION).requires_grad_().unbind()
    with Largest() as found:
        loss_fn(view_a, view_b).backward()
    return found.numbers
