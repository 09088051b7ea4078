"""AMCL in float32 as exact as plain torch, and the gradients of what learns beside what does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.engine import gemm


def plain(a: Tensor, b: Tensor, phi: torch.nn.Linear, span: float, floor: float) -> Tensor:
    """AMCL with DCL as one writes it in plain torch, in the dtype of its inputs."""
    unit = normalize(torch.cat([a, b]))
    rows = torch.arange(len(unit))
    partner = rows.roll(len(a))
    rotated = torch.nn.functional.linear(unit, phi.weight.to(unit), phi.bias.to(unit))
    temperature = span * torch.sigmoid(-rotated @ rotated.T) + floor
    logits = unit @ unit.T / temperature - (unit.shape[1] / 2 * temperature.log() + 1 / temperature)
    apart = torch.eye(len(unit), dtype=torch.bool)
    apart[rows, partner] = True
    return (logits.masked_fill(apart, -torch.inf).logsumexp(1) - logits[rows, partner]).mean()


@pytest.mark.parametrize("upstream", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize(("rows", "dimension", "steep"), [(64, 128, 1.0), (300, 128, 1.0), (64, 512, 1.0), (64, 64, 30.0)])
def test_gradients_are_as_exact_as_those_of_plain_torch(
    rows: int, dimension: int, steep: float, upstream: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where φ spreads temperatures all over their range, logits of a row lie hundreds of nats apart.

    With the products that plain torch takes; the faster ones of some processors round a little more.
    """
    monkeypatch.setattr(gemm, "product_route", lambda: "mm")
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(f"amcl:dimension={dimension}", "dcl")
    phi = loss_fn.strategy.phi
    with torch.no_grad():
        phi.weight *= steep
    views = torch.randn(2, rows, dimension)
    results = []
    for ours, dtype in ((False, torch.float64), (False, torch.float32), (True, torch.float32)):
        a, b = (view.to(dtype, copy=True).requires_grad_() for view in views)
        loss = loss_fn(a, b) if ours else plain(a, b, phi, 2.0, 0.05)
        gradients = torch.autograd.grad(loss * upstream, [a, b, *phi.parameters()])
        results.append([loss.detach().double(), *(each.double() / upstream for each in gradients)])
    exact, eager, found = results
    assert found[0].item() == pytest.approx(exact[0].item(), rel=1e-5)
    for number in range(1, 5):
        errors = [((each[number] - exact[number]).norm() / exact[number].norm()).item() for each in (found, eager)]
        assert errors[0] <= max(1e-6, 1.5 * errors[1]), f"gradient {number}: {errors}"


@pytest.mark.parametrize("learning", ["anchors", "candidates", "phi"])
def test_what_does_not_learn_changes_nothing_for_what_does(learning: str) -> None:
    a, b = torch.randn(2, 9, 4, dtype=torch.float64)
    loss_fn = ContrastiveLoss("amcl:dimension=4", layout="cross-view", engine="tiled").double()

    def gradients(all_learn: bool) -> list[Tensor]:
        leaves = {"anchors": a.clone(), "candidates": b.clone()}
        for name, leaf in leaves.items():
            leaf.requires_grad_(all_learn or name == learning)
        for parameter in loss_fn.parameters():
            parameter.requires_grad_(all_learn or learning == "phi")
        wanted = list(loss_fn.parameters()) if learning == "phi" else [leaves[learning]]
        return list(torch.autograd.grad(loss_fn(*leaves.values()), wanted))

    for alone, together in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-14)
