"""What the tiled engine keeps: no square beyond its budget, and nothing of a call whose result is gone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug import ContrastiveLoss
from tempplug.engine import forward, tiled


class Largest(TorchDispatchMode):
    """Remembers the most numbers that the storage of a tensor held."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize(
    ("strategy", "layout"),
    [
        ("fixed", "two-view"),
        ("fixed:temperature=0.005", "two-view"),
        ("fixed:temperature=0.005", "labels"),
        ("learnable", "symmetric"),
        ("dystress", "two-view"),
        ("amcl:dimension=16", "two-view"),
        ("amcl:dimension=16", "labels"),
    ],
)
def test_no_tensor_has_the_size_of_a_square(strategy: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both passes, however many rows there are, where the tiles together are beyond the budget."""
    monkeypatch.setattr(forward, "KEPT", 0)
    rows = 1500
    a, b = torch.randn(2, rows, 16).requires_grad_()
    name: Any = "cross-view" if layout == "symmetric" else layout
    loss_fn = ContrastiveLoss(strategy, layout=name, symmetric=layout == "symmetric")
    inputs = {"labels": torch.arange(rows) % 10} if layout == "labels" else {}
    with Largest() as largest:
        loss_fn(a, b, **inputs).backward()
    anchors = rows if layout == "symmetric" else 2 * rows
    assert rows * 16 <= largest.numbers < anchors * anchors / 4


@pytest.mark.parametrize("strategy", ["fixed", "learnable", "dystress", "amcl:dimension=6"])
@pytest.mark.parametrize("layout", ["two-view", "labels"])
def test_a_call_without_backward_pass_leaves_nothing_behind(
    layout: Any, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that its own graph held would keep the tiles until the next collection of cycles; the record goes on."""
    passes: list[weakref.ref[tiled.Pass]] = []

    class Watched(tiled.Pass):
        def forward(self, keep: bool) -> tuple[Tensor | None, ...]:
            passes.append(weakref.ref(self))
            return super().forward(keep)

    monkeypatch.setattr(tiled, "Pass", Watched)
    loss_fn = ContrastiveLoss(strategy, layout=layout)
    a, b = torch.randn(2, 8, 6).requires_grad_()
    gc.disable()
    try:
        loss = loss_fn(a, b, **loss_fn.accepted(labels=torch.arange(8) % 3))
        assert passes[0]() is not None
        del loss
        assert passes[0]() is None
    finally:
        gc.enable()
    assert loss_fn.record.engine == "tiled"
