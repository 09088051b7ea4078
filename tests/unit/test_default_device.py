"""torch's default device is where new tensors are made: it changes nothing for embeddings that lie elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tempplug import ContrastiveLoss

# Of sizes and numbers that no other test has, so that nothing which calls share was made before.
CASES: list[tuple[int, dict[str, Any]]] = [
    (23, {"strategy": "fixed:temperature=0.2371"}),
    (29, {"strategy": "temperature-free:eps=1.371e-4", "layout": "cross-view"}),
    (31, {"strategy": "dystress:temperature_min=0.1371", "objective": "dual-temperature:second_temperature=1.371"}),
    (41, {"strategy": "fixed:temperature=0.3371", "layout": "labels"}),
    (43, {"strategy": "fixed:temperature=0.4371", "layout": "masks"}),
    (47, {"strategy": "amcl:dimension=8", "objective": "dcl"}),
    (1371, {"strategy": "dystress:temperature_min=0.1471", "layout": "cross-view"}),
]


@pytest.mark.parametrize(("rows", "options"), CASES)
def test_another_default_device_changes_nothing_then_or_later(rows: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    views, own, loss_fn = torch.randn(2, rows, 8), torch.eye(rows, dtype=torch.bool), ContrastiveLoss(**options)
    masks = {"positive_mask": own | own.roll(1, 1), "negative_mask": own.roll(2, 1)}
    given = loss_fn.accepted(labels=torch.arange(rows) % 7, **masks)
    found = []
    for device in ("meta", "cpu"):
        leaves = [view.clone().requires_grad_() for view in views]
        with torch.device(device):
            loss = loss_fn(*leaves, **given)
            found.append([loss.detach(), loss_fn.record.temperature_mean, *torch.autograd.grad(loss, leaves)])
    torch.testing.assert_close(*found, rtol=0, atol=0)
