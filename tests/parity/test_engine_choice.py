"""Which engine runs, what it refuses, and that a third party's map has on all of them the gradient of the dense one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_cases import make_case
from engine_maps import Bent, Frequent, Hardness, PerPair, Steeper, TooSimilar
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from tempplug import Batch, ContrastiveLoss
from tempplug.engine import dispatch
from tempplug.engine.dispatch import row_statistics
from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective
from tempplug.pair_functions import Softplus
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import ScaleMap
from tempplug.testing import oracle_loss
from tempplug.types import Auxiliary, EngineName, RowStatistics, Wanted

ROWS = 13
MapOf = Callable[[Tensor, Batch], Bent | Steeper]


def bent(weights: Tensor, batch: Batch) -> Bent:
    logit_map = Bent(0, 0, learned=True)
    logit_map.weights = weights
    return logit_map


def per_pair(weights: Tensor, batch: Batch) -> Bent:
    assert batch.anchors is not None
    assert batch.candidates is not None
    logit_map = PerPair(1 + batch.anchors.detach()[:, 0] ** 2, 2 + batch.candidates.detach()[:, 1], learned=True)
    logit_map.weights = weights
    return logit_map


def steeper(weights: Tensor, batch: Batch) -> Steeper:
    return Steeper(weights.sum())


class ThirdParty(Strategy):
    """Chooses one of these maps, with two learned weights."""

    name = "third-party"

    def __init__(self, make: MapOf) -> None:
        super().__init__()
        self.make = make
        self.weights = nn.Parameter(torch.tensor([4.0, 2.0], dtype=torch.float64))

    def prepare(self, batch: Batch) -> Bent | Steeper:
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


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("layout", ["two-view", "two-view+hard", "cross-view", "symmetric", "queue", "labels"])
@pytest.mark.parametrize("make", [bent, per_pair, steeper])
def test_third_party_maps_run_on_the_tiled_engine(make: MapOf, layout: str) -> None:
    """The gradient of what the strategy learns is among those that are compared."""
    expected, name = result(ThirdParty(make), layout, "dense")
    assert name == "dense"
    found, name = result(ThirdParty(make), layout, "tiled")
    assert name == "tiled"
    for position, (ours, dense) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(ours, dense, rtol=1e-10, atol=1e-10, msg=f"result {position}")
    assert all((each != 0).any() for each in expected)


def test_a_third_party_map_that_is_a_built_in_one_has_its_loss() -> None:
    """So that the comparison of the engines rests on one that is known."""
    leaves, _, _ = call_of("two-view")
    strategy = ThirdParty(lambda weights, batch: bent(weights * torch.tensor([2.5, 0.0], dtype=torch.float64), batch))
    found = ContrastiveLoss(strategy, engine="tiled")(*leaves[:2])
    expected = oracle_loss(*leaves[:2], strategy_options={"temperature": 0.1})
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("strategy", ["fixed", ThirdParty(bent)], ids=["built-in", "third party"])
@pytest.mark.parametrize("layout", ["two-view", "symmetric", "queue", "labels"])
def test_auto_takes_the_tiled_engine_and_the_record_says_so(layout: str, strategy: Any) -> None:
    assert result(strategy, layout, "auto")[1] == "tiled"


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("layout", ["two-view", "symmetric", "labels"])
def test_an_engine_asked_for_by_name_is_the_one_that_runs(layout: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"dense": "tiled_statistics", "tiled": "dense_statistics"}[engine]
    monkeypatch.setattr(dispatch, other, None)
    assert result("fixed", layout, engine)[1] == engine
    monkeypatch.setattr(dispatch, f"{engine}_statistics", None)
    with pytest.raises(TypeError):
        result("fixed", layout, engine)


@pytest.mark.parametrize(("measured", "expected"), [(frozenset(), "tiled"), ({(9, 0)}, "triton"), ({(8, 0)}, "tiled")])
def test_auto_takes_kernels_only_on_cards_where_they_are_measured(
    measured: frozenset[tuple[int, int]], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a block on a card of compute capability 9.0 that every kernel could do; more than sums no kernel does."""
    monkeypatch.setattr(dispatch, "refusal", lambda block, logit_map: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for engine in ("tiled", "triton"):
        monkeypatch.setattr(dispatch, f"{engine}_statistics", lambda *arguments, **options: [])
    with FakeTensorMode():
        rows = torch.empty(4, 3, device="cuda")
    roles = PairRoles(anchors=4, candidates=4, device=rows.device, positives=Pairing(((0, 4, 0),)))
    block = Block(rows, rows, (rows, rows), roles, torch.ones(4), torch.float32)
    if measured:
        monkeypatch.setattr(dispatch, "MEASURED", measured)
    logit_map = ScaleMap(torch.tensor(10.0))
    assert row_statistics("auto", block, logit_map)[1] == expected
    for more in ({"wanted": Wanted(top=1)}, {"wanted": Wanted(pair_function=Softplus())}, {"terms": [Hardness(2)]}):
        assert row_statistics("auto", block, logit_map, **more)[1] == "tiled"
        with pytest.raises(ConfigError, match="engine='triton' computes log-sum-exps alone"):
            row_statistics("triton", block, logit_map, **more)


class Sums(Objective):
    """Reads sums of softplus."""

    name = "sums"
    pair_function = Softplus()

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return statistics.negative_lse - statistics.positive_logit


class Watching(Strategy):
    """Reads the softmax-weighted mean similarity of negatives."""

    name = "watching"
    needs_negative_similarity = True

    def prepare(self, batch: Batch) -> ScaleMap:
        return ScaleMap(torch.tensor(10.0, dtype=torch.float64))

    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        assert statistics.negative_similarity is not None


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_a_mean_of_a_softmax_beside_a_pair_function_is_refused(engine: EngineName) -> None:
    """In training; nothing observes outside of it."""
    leaves, _, _ = call_of("two-view")
    message = "negative_similarity, which the strategy reads, is weighted by a softmax, .* pair_function Softplus has none"
    loss_fn = ContrastiveLoss(Watching(), Sums(), engine=engine)
    with pytest.raises(ConfigError, match=message):
        loss_fn(*leaves[:2])
    assert loss_fn.eval()(*leaves[:2]).isfinite()
    ContrastiveLoss(Watching(), engine=engine)(*leaves[:2])


@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
def test_a_term_that_is_not_symmetric_serves_no_two_directions(engine: EngineName) -> None:
    block, logit_map = make_case("cross-view").block, Bent(4, 2)
    for term in (Frequent(torch.zeros(9, dtype=torch.float64)), TooSimilar(torch.ones(9, dtype=torch.float64))):
        with pytest.raises(ConfigError, match=f"{type(term).__name__} is not symmetric, and both directions .* were asked for"):
            row_statistics(engine, block, logit_map, mirrored=True, terms=[Hardness(2), term])
        row_statistics(engine, block, logit_map, terms=[term])
    assert len(row_statistics(engine, block, logit_map, mirrored=True, terms=[Hardness(2)])[0]) == 2


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "labels", "masks"])
def test_a_row_whose_negatives_all_are_left_out_has_none(layout: str, engine: EngineName) -> None:
    """The others keep their numbers and gradients."""
    case = make_case(layout)
    limit = torch.full((len(case.block.anchors),), 2.0, dtype=torch.float64)
    limit[3] = -2
    sums, *_ = row_statistics(
        engine, case.block, Bent(4, 2), terms=[TooSimilar(limit)], wanted=Wanted(pair_function=Softplus())
    )[0]
    assert sums.negative_lse[3] == 0
    for logit_map in (Bent(4, 2), Bent(900, 700)):
        found, *_ = row_statistics(engine, case.block, logit_map, terms=[TooSimilar(limit)])[0]
        plain, *_ = row_statistics(engine, case.block, logit_map)[0]
        others = torch.arange(len(limit)) != 3
        assert found.negative_lse[3] == -torch.inf
        assert found.negative_count.equal(plain.negative_count)
        torch.testing.assert_close(found.negative_lse[others], plain.negative_lse[others], rtol=1e-12, atol=1e-12)
        gradients = [
            torch.autograd.grad(each.negative_lse[others].sum(), case.leaves, retain_graph=True) for each in (found, plain)
        ]
        for ours, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
