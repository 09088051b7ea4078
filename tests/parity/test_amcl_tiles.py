"""AMCL's closed form: every layout and objective against the float64 oracle, tiles, exactness, memory, its own parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracle_cases import OBJECTIVES, ONE_POSITIVE, compare, make_call
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug import ContrastiveLoss
from tempplug.engine import bilinear, gemm

STRATEGIES = ["amcl:dimension=D", "amcl:dimension=D,span=0.5,floor=0.01,beta=0.01", "amcl:dimension=D,beta=0"]


pytestmark = pytest.mark.usefixtures("closed_forms_alone")


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("layout", ONE_POSITIVE)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_layout_and_objective_is_the_oracle_s(strategy: str, layout: str, objective: str) -> None:
    compare(strategy, objective, make_call(layout, strategy, 26, 7, torch.float64), 1e-10, "tiled")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ONE_POSITIVE)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_single_and_half_precision_are_those_of_the_oracle(strategy: str, layout: str, dtype: torch.dtype) -> None:
    compare(strategy, "dcl", make_call(layout, strategy, 40, 7, dtype), 1e-5)


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "computed again"])
@pytest.mark.parametrize("layout", ["two-view", "two-view+hard", "cross-view", "queue"])
def test_many_tiles_add_up(layout: str, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not keep:
        monkeypatch.setattr(bilinear, "KEPT", 0)
    call = make_call(layout, STRATEGIES[0], 300 if layout.startswith("two") else 600, 3, torch.float64)
    compare(STRATEGIES[0], "infonce", call, 1e-10, "tiled")


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
    monkeypatch.setattr(gemm, "outer", lambda a, b: a @ b.t())
    monkeypatch.setattr(gemm, "times", lambda a, b, into: into.addmm_(a, b))
    monkeypatch.setattr(gemm, "turned", lambda a, b, into: into.addmm_(a.t(), b))
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


class Largest(TorchDispatchMode):
    """Remembers the most numbers that the storage of a tensor held."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // 4)
        return result


def test_no_square_is_kept() -> None:
    """Three thousand anchors: tensors have the size of a tile or of the embeddings, in both passes, and no tile is kept."""
    a, b = torch.randn(2, 1500, 16).requires_grad_()
    loss_fn = ContrastiveLoss("amcl:dimension=16", "dcl")
    with Largest() as largest:
        loss_fn(a, b).backward()
    assert largest.numbers < 3000 * 3000 / 4
