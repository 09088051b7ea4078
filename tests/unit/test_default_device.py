"""torch's default device is where new tensors are made: it changes nothing for embeddings that lie elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tempplug import ContrastiveLoss

# Of sizes and numbers that no other test has, so that nothing which calls share was made before.
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "one tile": (23, {"strategy": "fixed:temperature=0.2371"}),
    "one tile, temperature-free": (29, {"strategy": "temperature-free:eps=1.371e-4", "layout": "cross-view"}),
    "one tile, dystress": (31, {"strategy": "dystress:temperature_min=0.1371"}),
    "one tile, two maps": (37, {"objective": "dual-temperature:second_temperature=1.371"}),
    "labels": (41, {"strategy": "fixed:temperature=0.3371", "layout": "labels"}),
    "masks": (43, {"strategy": "fixed:temperature=0.4371", "layout": "masks"}),
    "pair temperatures": (47, {"strategy": "amcl:dimension=8", "objective": "dcl"}),
    "tiles": (1371, {"strategy": "dystress:temperature_min=0.1471", "layout": "cross-view"}),
}


def given(layout: str, rows: int) -> dict[str, Any]:
    own = torch.eye(rows, dtype=torch.bool)
    extras = {
        "labels": {"labels": torch.arange(rows) % 7},
        "masks": {"positive_mask": own | own.roll(1, 1), "negative_mask": own.roll(2, 1)},
    }
    return extras.get(layout, {})


@pytest.mark.parametrize("case", CASES)
def test_another_default_device_changes_nothing_then_or_later(case: str) -> None:
    rows, options = CASES[case]
    torch.manual_seed(0)
    views, more = [torch.randn(rows, 8) for _ in range(2)], given(options.get("layout", ""), rows)
    loss_fn = ContrastiveLoss(**options)
    found = []
    for device in ("meta", "cpu"):
        leaves = [view.clone().requires_grad_() for view in views]
        with torch.device(device):
            loss = loss_fn(*leaves, **more)
            loss.backward()  # type: ignore[no-untyped-call]
            assert loss_fn.record.engine == "tiled"
            found.append((loss.detach(), loss_fn.record.temperature_mean, *(leaf.grad for leaf in leaves)))
    for there, here in zip(*found, strict=True):
        assert there is not None
        assert here is not None
        assert torch.equal(there, here)
