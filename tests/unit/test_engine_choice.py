"""Which engine runs, and that a third party's map runs on all of them with the gradient of the dense one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from tempplug import Batch, ContrastiveLoss, loss
from tempplug.engine import dispatch, tiled
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, Rows, ScaleMap
from tempplug.testing import oracle_loss
from tempplug.types import NOTHING

ROWS = 13
MapOf = Callable[[Tensor, Batch], LogitMap]


class Bent(LogitMap):
    """l = w₀ s + w₁ s³, the weights learned or not: all that a third party must write, and ``tensors``."""

    def __init__(self, weights: Tensor, batch: Batch | None = None) -> None:
        self.weights = weights

    def logit(self, similarity: Tensor) -> Tensor:
        first, second = self.weights
        logit: Tensor = first * similarity + second * similarity**3
        return logit

    def slope(self, similarity: Tensor) -> Tensor:
        first, second = self.weights.detach()
        derivative: Tensor = first + 3 * second * similarity**2
        return derivative

    def temperature(self, similarity: Tensor) -> Tensor:
        return 1 / (self.weights.detach()[0] + self.weights.detach()[1] * similarity**2)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weights,)


class PerPair(Bent):
    """Weights times a factor of each pair, from its two rows: another one for the pair turned round."""

    uniform = symmetric = False

    def __init__(self, weights: Tensor, of_anchors: Tensor, of_candidates: Tensor, factor: Tensor | None = None) -> None:
        super().__init__(weights)
        self.of_anchors, self.of_candidates, self.factor = of_anchors, of_candidates, factor

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        anchors, candidates = self.of_anchors[rows], self.of_candidates[columns]
        factor = anchors / candidates if paired else anchors[:, None] / candidates[None, :]
        return PerPair(self.weights, self.of_anchors, self.of_candidates, factor)

    def logit(self, similarity: Tensor) -> Tensor:
        assert self.factor is not None, "an engine must bind the map first"
        return super().logit(similarity) * self.factor


def per_pair(weights: Tensor, batch: Batch) -> LogitMap:
    assert batch.anchors is not None
    assert batch.candidates is not None
    return PerPair(weights, 1 + batch.anchors.detach()[:, 0] ** 2, 2 + batch.candidates.detach()[:, 1])


class Steeper(ScaleMap):
    """A built-in map with another logit: its in-place form is no longer that of the map."""

    def __init__(self, weights: Tensor, batch: Batch | None = None) -> None:
        super().__init__(weights[0])
        self.weights = weights

    def logit(self, similarity: Tensor) -> Tensor:
        return super().logit(similarity) + self.weights[1] * similarity**3

    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) + 3 * self.weights[1].detach() * similarity**2


class ThirdParty(Strategy):
    """Chooses one of these maps, with two learned weights."""

    name = "third-party"

    def __init__(self, make: MapOf) -> None:
        super().__init__()
        self.make = make
        self.weights = nn.Parameter(torch.tensor([4.0, 2.0], dtype=torch.float64))

    def prepare(self, batch: Batch) -> LogitMap:
        return self.make(self.weights, batch)


def call_of(layout: str) -> tuple[list[Tensor], dict[str, Any], dict[str, Any]]:
    """Returns the embeddings, the other inputs, and the arguments of the loss."""
    generator = torch.Generator().manual_seed(3)
    a, b, more = (torch.randn(ROWS, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3))
    base, _, hard = layout.partition("+")
    inputs: dict[str, Any] = {"hard_negatives": more} if hard else {}
    if base == "queue":
        inputs["queue"] = more
    if base == "labels":
        inputs["labels"] = torch.arange(ROWS) // 2
    symmetric = base == "symmetric"
    return [a, b, more], inputs, {"layout": "cross-view" if symmetric else base, "symmetric": symmetric}


def result(strategy: Any, layout: str, engine: str) -> tuple[list[Tensor], str]:
    """Returns row losses and the gradients of a weighted sum of them, and the engine that ran."""
    leaves, inputs, arguments = call_of(layout)
    loss_fn = ContrastiveLoss(strategy, engine=engine, reduction="none", **arguments)
    rows = loss_fn(*leaves[:2], **inputs)
    weights = torch.linspace(0.5, 2, len(rows), dtype=torch.float64)
    used = leaves if any(value is leaves[2] for value in inputs.values()) else leaves[:2]
    gradients = torch.autograd.grad((rows * weights).sum(), [*used, *loss_fn.parameters()])
    return [rows.detach(), *gradients], loss_fn.record.engine


@pytest.mark.parametrize("layout", ["two-view", "two-view+hard", "cross-view", "symmetric", "queue", "labels"])
@pytest.mark.parametrize("make", [Bent, per_pair, Steeper])
@pytest.mark.parametrize("slab", [1, 60, 1 << 20])
def test_third_party_maps_run_on_the_tiled_engine(slab: int, make: MapOf, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slab, in many, and a row at a time; the weights' gradient among the others."""
    expected, name = result(ThirdParty(make), layout, "dense")
    assert name == "dense"
    monkeypatch.setitem(tiled.SLAB, "cpu", slab)
    found, name = result(ThirdParty(make), layout, "tiled")
    assert name == "tiled"
    for position, (ours, dense) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(ours, dense, rtol=1e-10, atol=1e-10, msg=f"result {position}")
    assert all((each != 0).any() for each in expected)


def test_a_third_party_map_that_is_a_built_in_one_has_its_loss() -> None:
    """So that the comparison of the engines rests on one that is known."""
    leaves, _, _ = call_of("two-view")
    strategy = ThirdParty(lambda weights, batch: Bent(weights * torch.tensor([2.5, 0.0], dtype=torch.float64)))
    found = ContrastiveLoss(strategy, engine="tiled")(*leaves[:2])
    expected = oracle_loss(*leaves[:2], strategy_options={"temperature": 0.1})
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("strategy", "layout", "largest_dense", "expected"),
    [
        ("fixed", "two-view", 1 << 20, "tiled"),
        ("fixed", "two-view", 1, "tiled"),
        ("fixed", "symmetric", 1 << 20, "tiled"),
        ("dystress", "queue", 1 << 20, "tiled"),
        ("fixed", "labels", 1 << 20, "tiled"),
        ("bent", "two-view", (2 * ROWS) ** 2, "dense"),
        ("bent", "two-view", (2 * ROWS) ** 2 - 1, "tiled"),
    ],
)
def test_auto_takes_the_faster_engine_and_the_record_says_which(
    strategy: str, layout: str, largest_dense: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "DENSE_UP_TO", largest_dense)
    chosen = ThirdParty(Bent) if strategy == "bent" else strategy
    assert result(chosen, layout, "auto")[1] == expected


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("layout", ["two-view", "symmetric", "labels"])
def test_an_engine_asked_for_by_name_is_the_one_that_runs(layout: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"dense": "tiled_statistics", "tiled": "dense_statistics"}[engine]
    monkeypatch.setattr(dispatch, other, None)
    assert result("fixed", layout, engine)[1] == engine
    monkeypatch.setattr(loss, "small_loss", lambda *arguments: (None, None))
    assert result("fixed", layout, engine)[1] == engine
    monkeypatch.setattr(dispatch, f"{engine}_statistics", None)
    with pytest.raises(TypeError):
        result("fixed", layout, engine)


@pytest.mark.parametrize(("measured", "expected"), [(frozenset(), "tiled"), ({(9, 0)}, "triton"), ({(8, 0)}, "tiled")])
def test_auto_takes_kernels_only_on_cards_where_they_are_measured(
    measured: frozenset[tuple[int, int]], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a block on a card of compute capability 9.0 that every kernel could do."""
    monkeypatch.setattr(dispatch, "refusal", lambda block, logit_map: None)
    monkeypatch.setattr(dispatch, "DENSE_UP_TO", 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with FakeTensorMode():
        rows = torch.empty(4, 3, device="cuda")
    roles = PairRoles(anchors=4, candidates=4, device=rows.device, positives=Pairing(((0, 4, 0),)))
    block = Block(rows, rows, roles, torch.ones(4), torch.float32)
    if measured:
        monkeypatch.setattr(dispatch, "MEASURED", measured)
    assert dispatch._choose(block, ScaleMap(torch.tensor(10.0)), NOTHING) == expected
