"""Which engine runs, what it refuses, and what third parties write: maps and layouts through the loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_cases import block_of_rows, make_case
from engine_maps import Bent, Frequent, Hardness, TooSimilar
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn.functional import cross_entropy, normalize

from tempplug import Batch, ContrastiveLoss
from tempplug.block import Block
from tempplug.engine import dispatch
from tempplug.engine.dispatch import row_statistics
from tempplug.errors import ConfigError
from tempplug.layouts import CrossView, Views
from tempplug.objectives.base import Objective
from tempplug.pair_functions import Softplus
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import ScaleMap
from tempplug.types import Auxiliary, EngineName, RowStatistics, Wanted

A, B = torch.randn(2, 13, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
EVERY_ENGINE = pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])


class ThirdParty(Strategy):
    """A map with two learned weights."""

    name = "third-party"

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([4.0, 2.0], dtype=torch.float64))

    def prepare(self, batch: Batch) -> Bent:
        logit_map = Bent()
        logit_map.learned = (self.weights,)
        logit_map.weights = self.weights
        return logit_map


class Shifted(CrossView):
    """Row i's positive is candidate i + 1."""

    name = "shifted"

    def build(self, views: Views) -> list[Block]:
        size = views.size
        runs = ((0, size - 1, 1), (size - 1, size, 1 - size))
        roles = PairRoles(anchors=size, candidates=size, device=views.device, positives=Pairing(runs))
        return [replace(each, roles=roles) for each in super().build(views)]


@EVERY_ENGINE
@pytest.mark.parametrize("layout", [CrossView(), Shifted()], ids=lambda layout: layout.name)
def test_a_map_and_a_layout_of_third_parties_have_the_loss_of_the_formula(layout: Any, engine: EngineName) -> None:
    """Value, and the gradients of embeddings and of what the strategy learns."""
    a, b, weights = (each.clone().requires_grad_() for each in (A, B, torch.tensor([4.0, 2.0], dtype=torch.float64)))
    loss_fn = ContrastiveLoss(ThirdParty(), layout=layout, engine=engine)
    found = loss_fn(a, b)
    similarity = normalize(a) @ normalize(b).T
    positives = (torch.arange(13) + (layout.name == "shifted")) % 13
    expected = cross_entropy(weights[0] * similarity + weights[1] * similarity**3, positives)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    ours = torch.autograd.grad(found, [a, b, *loss_fn.parameters()])
    torch.testing.assert_close(ours, torch.autograd.grad(expected, [a, b, weights]), rtol=1e-10, atol=1e-12)
    assert loss_fn.record.engine == ("tiled" if engine == "auto" else engine)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_an_engine_that_is_named_is_the_one_that_runs(engine: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"dense": "tiled_statistics", "tiled": "dense_statistics"}[engine]
    monkeypatch.setattr(dispatch, other, None)
    assert ContrastiveLoss(engine=engine)(A, B).isfinite()
    monkeypatch.setattr(dispatch, f"{engine}_statistics", None)
    with pytest.raises(TypeError):
        ContrastiveLoss(engine=engine)(A, B)


@pytest.mark.parametrize(
    ("capability", "precision", "many", "version", "expected"),
    [
        ((9, 0), torch.bfloat16, 16, "2.11.0+cu130", "triton"),
        ((8, 0), torch.bfloat16, 16, "2.11.0+cu130", "tiled"),
        ((9, 0), torch.float32, 16, "2.11.0+cu130", "tiled"),
        ((9, 0), torch.bfloat16, 17, "2.11.0+cu130", "tiled"),
        ((9, 0), torch.bfloat16, 16, "2.9.1", "tiled"),
    ],
)
def test_auto_takes_kernels_only_where_they_are_measured(
    capability: tuple[int, int],
    precision: torch.dtype,
    many: int,
    version: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a block of 16 pairs on a card, which every kernel could do; more than sums no kernel does."""
    monkeypatch.setattr(dispatch, "refusal", lambda block, logit_map: None)
    monkeypatch.setattr(dispatch, "MANY_PAIRS", many)
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for engine in ("tiled", "triton"):
        monkeypatch.setattr(dispatch, f"{engine}_statistics", lambda *arguments, **options: [])
    with FakeTensorMode():
        rows = torch.empty(4, 3, device="cuda")
    roles = PairRoles(anchors=4, candidates=4, device=rows.device, positives=Pairing(((0, 4, 0),)))
    block = block_of_rows(rows, rows, roles, torch.ones(4), precision)
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


@EVERY_ENGINE
def test_a_mean_of_a_softmax_beside_a_pair_function_is_refused(engine: EngineName) -> None:
    for strategy, objective in ((Watching(), Sums()), ("individual:size=9", "sigmoid")):
        with pytest.raises(
            ConfigError, match=r"strategy '\w+' learns from the softmax of each row, and objective '\w+' has none"
        ):
            ContrastiveLoss(strategy, objective, engine=engine)
    ContrastiveLoss(Watching(), engine=engine)(A, B)


@EVERY_ENGINE
def test_a_term_that_is_not_symmetric_serves_no_two_directions(engine: EngineName) -> None:
    block, logit_map = make_case("cross-view").block, Bent()
    for term in (Frequent(torch.zeros(9, dtype=torch.float64)), TooSimilar(torch.ones(9, dtype=torch.float64))):
        with pytest.raises(ConfigError, match=f"{type(term).__name__} is not symmetric, and both directions .* were asked for"):
            row_statistics(engine, block, logit_map, mirrored=True, terms=[Hardness(2), term])
        row_statistics(engine, block, logit_map, terms=[term])
    assert len(row_statistics(engine, block, logit_map, mirrored=True, terms=[Hardness(2)])[0]) == 2
