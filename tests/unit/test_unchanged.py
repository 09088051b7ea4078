"""Tensors that the caller changes in place after a call: gradient and record are those of the call, or an error says why."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss

D = 8
LAYOUTS = ["two-view", "cross-view", "queue", "labels", "labels of one view", "masks", "diagonal masks"]
STRATEGIES = [
    "learnable",
    "macl",
    "temperature-free",
    "amcl:dimension=8",
    "individual:size=2000",
    "head-tail:class_counts=3/2/1",
    "uncertainty",
    "learnable:initial_temperature=0.01",
]
READ_AGAIN = {"labels", "positive_mask", "negative_mask"}


def call(layout: str, strategy: str, engine: Any, size: int) -> tuple[ContrastiveLoss, Callable[[], Tensor], dict[str, Tensor]]:
    """Returns a loss, its call, and every tensor that the caller holds: arguments, parameters and buffers."""
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, layout=layout.split(" of")[0].split("diagonal ")[-1], engine=engine)  # type: ignore[arg-type]
    drawn = torch.rand(size, size)
    own = torch.eye(size, dtype=torch.bool)
    positive = own if layout == "diagonal masks" else own | (drawn < 0.02)
    given = {
        "queue": torch.randn(size, D),
        "hard_negatives": torch.randn(5, D),
        "labels": torch.randint(0, 3, (size,)),
        "index": torch.randperm(size),
        "positive_mask": positive,
        "negative_mask": ~positive if layout == "diagonal masks" else (drawn > 0.3) & ~positive,
    }
    taken: dict[str, Any] = loss_fn.accepted(**given)
    views = [torch.randn(size, D, requires_grad=True) for _ in range(1 if layout == "labels of one view" else 2)]
    held = {**taken, **dict(zip(("view_a", "view_b"), views, strict=False))}
    if strategy == "uncertainty":
        scalars = [torch.randn(size, requires_grad=True) for _ in range(2)]
        both = loss_fn.layout.joins_views and len(views) == 2
        taken["uncertainty"] = tuple(scalars) if both else scalars[0]
        held["uncertainty"] = scalars[0]
    held |= dict(loss_fn.named_parameters()) | dict(loss_fn.named_buffers())
    return loss_fn, lambda: loss_fn(*views, **taken), held


@torch.no_grad()
def change(tensor: Tensor) -> None:
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    elif tensor.dtype == torch.int64:
        tensor.copy_(tensor.roll(1))
    else:
        tensor.mul_(2).add_(0.3)


def gradients(layout: str, strategy: str, engine: str, size: int, changed: str | None = None) -> list[Tensor]:
    _, compute, held = call(layout, strategy, engine, size)
    loss = compute()
    if changed is not None:
        change(held[changed])
    leaves = [each for each in held.values() if each.requires_grad]
    return list(torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize(
    ("layout", "engine", "strategy"),
    [
        (*pair, strategy)
        for pair, strategy in zip(every_pair(LAYOUTS, ["auto", "dense", "tiled"]), cycle(STRATEGIES), strict=False)
    ],
)
def test_what_the_caller_changes_before_backward_raises_or_changes_nothing(layout: str, strategy: str, engine: str) -> None:
    expected = gradients(layout, strategy, engine, 12)
    loss_fn, _, held = call(layout, strategy, engine, 12)
    for name in held:
        if name in READ_AGAIN & loss_fn.layout.takes:
            with pytest.raises(RuntimeError, match=f"^{name} was changed in place after the loss was called"):
                gradients(layout, strategy, engine, 12, changed=name)
            continue
        try:
            found = gradients(layout, strategy, engine, 12, changed=name)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            continue
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layout", "changed", "strategy"),
    [
        ("masks", "positive_mask", "learnable"),
        ("masks", "negative_mask", "amcl:dimension=8"),
        ("labels of one view", "labels", "learnable:initial_temperature=0.01"),
    ],
)
def test_large_blocks_raise_as_well(layout: str, changed: str, strategy: str) -> None:
    """From 2²⁰ pairs on, where tiles are made again in the backward pass."""
    message = (
        f"^{changed} was changed in place after the loss was called, but the backward pass of that call needs it unchanged"
    )
    with pytest.raises(RuntimeError, match=message):
        gradients(layout, strategy, "auto", 1100, changed=changed)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_every_reduction_and_several_heads_check(reduction: Any) -> None:
    views = [torch.randn(6, D, requires_grad=True) for _ in range(2)]
    labels = torch.arange(6) // 2
    loss = ContrastiveLoss(layout="labels", reduction=reduction)(views, views, labels=labels)
    labels.zero_()
    with pytest.raises(RuntimeError, match="labels was changed in place"):
        loss.sum().backward()


def test_a_change_after_backward_or_of_a_copy_is_no_fault() -> None:
    loss_fn, labels, rows = ContrastiveLoss(layout="labels"), torch.arange(6) // 2, torch.randn(6, D, requires_grad=True)
    loss_fn(rows, labels=labels).backward()
    labels.fill_(1)
    labels[:2] = 0
    loss = loss_fn(rows, labels=labels.clone())
    labels.zero_()
    loss.backward()
    torch.testing.assert_close(loss_fn.record.loss, loss.detach())


def test_labels_that_the_strategy_alone_reads_may_change() -> None:
    loss_fn, labels = ContrastiveLoss("head-tail:class_counts=3/2"), torch.tensor([0, 1, 1])
    loss = loss_fn(torch.randn(3, D, requires_grad=True), torch.randn(3, D), labels=labels)
    labels.zero_()
    loss.backward()
    assert loss_fn.record.finite


def test_a_record_of_changed_masks_is_refused_and_a_read_one_stays() -> None:
    for read_before in (True, False):
        loss_fn, own = ContrastiveLoss(layout="masks"), torch.eye(4, dtype=torch.bool)
        loss_fn(torch.randn(4, D), torch.randn(4, D), positive_mask=own, negative_mask=~own)
        if read_before:
            before = loss_fn.record
        own.logical_not_()
        if read_before:
            assert loss_fn.record is before
        else:
            with pytest.raises(RuntimeError, match=r"positive_mask was changed in place .* the record of that call needs it"):
                _ = loss_fn.record


def test_masks_of_inference_mode_serve() -> None:
    with torch.inference_mode():
        own = torch.eye(4, dtype=torch.bool)
        others = ~own
    rows = torch.randn(4, D, requires_grad=True)
    ContrastiveLoss(layout="masks")(rows, rows.detach(), positive_mask=own, negative_mask=others).backward()
    assert rows.grad is not None
