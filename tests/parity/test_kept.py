"""What the tiled engine keeps: no square beyond its budget, and nothing of a call whose result is gone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_cases import make_case
from engine_maps import Bent
from launched.largest import Largest
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import forward, tiled
from tempplug.engine.dispatch import row_statistics
from tempplug.types import Wanted


@pytest.mark.parametrize(
    ("strategy", "layout"),
    [
        ("fixed:temperature=0.005", "two-view"),
        ("dystress", "labels"),
        ("learnable", "symmetric"),
        ("amcl:dimension=16", "two-view"),
    ],
)
def test_no_tensor_has_the_size_of_a_square(strategy: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both passes, however many rows there are, where the tiles together are beyond the budget."""
    monkeypatch.setattr(forward, "KEPT", 0)
    rows = 1500
    a, b = torch.randn(2, rows, 16).requires_grad_()
    name: Any = "cross-view" if layout == "symmetric" else layout
    loss_fn = ContrastiveLoss(strategy, layout=name, symmetric=layout == "symmetric")
    with Largest() as largest:
        loss_fn(a, b, **loss_fn.accepted(labels=torch.arange(rows) % 10)).backward()
    anchors = rows if layout == "symmetric" else 2 * rows
    assert rows * 16 <= largest.numbers < anchors * anchors / 4


def loss_of(strategy: str, layout: Any) -> Tensor:
    loss_fn = ContrastiveLoss(strategy, layout=layout)
    return loss_fn(*torch.randn(2, 8, 6).requires_grad_(), **loss_fn.accepted(labels=torch.arange(8) % 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda: loss_of("fixed", "two-view"),
        lambda: loss_of("dystress", "labels"),
        lambda: loss_of("amcl:dimension=6", "labels"),
        lambda: row_statistics("tiled", make_case("queue").block, Bent(), wanted=Wanted(True, 2)),
    ],
)
def test_a_call_without_backward_pass_leaves_nothing_behind(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that its own graph held would keep the tiles until the next collection of cycles."""
    passes: list[weakref.ref[tiled.Pass]] = []

    class Watched(tiled.Pass):
        def forward(self, keep: bool) -> tuple[Tensor | None, ...]:
            passes.append(weakref.ref(self))
            return super().forward(keep)

    monkeypatch.setattr(tiled, "Pass", Watched)
    gc.disable()
    try:
        found = call()
        assert passes[-1]() is not None
        del found
        assert passes[-1]() is None
    finally:
        gc.enable()
