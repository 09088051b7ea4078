"""What engines call on a tile equals `logit` and `slope`, element by element, for every built-in map."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import Batch, ContrastiveLoss, create_strategy
from tempplug.strategies.maps import LogitMap, LogOddsMap, PairTemperatureMap, ScaleMap, constant_scale

ROWS = 4
SPECS = [
    "fixed:temperature=1",
    "fixed:temperature=0.05",
    "fixed:temperature=0.002",
    "macl",
    "temperature-free",
    "temperature-free:eps=0.2",
    "temperature-free:eps=1.2e-7",
    "dystress",
    "dystress:temperature_min=0.005,temperature_max=0.02",
    "dystress:temperature_min=0.1,temperature_max=0.1",
    *[f"dystress:profile={profile}" for profile in ("linear", "exponential", "monotonic", "shifted,shift=-0.4")],
    *[f"dystress:profile={profile},detach=false" for profile in ("cosine", "linear", "exponential", "monotonic")],
    "per-anchor",
    "pairs",
    "pairs without regulariser",
]
DTYPES = [torch.float32, torch.float64]
every_map = pytest.mark.parametrize("spec", SPECS)
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def similarities(dtype: torch.dtype) -> Tensor:
    """[ROWS, C] the same in every row: evenly spread, the ends, 0, and what lies next to them and to the clamps."""
    ends = [1.0, -1.0, 0.0, 1 - 1e-4, 1e-4 - 1, 0.8, -0.8, 1 - 2**-23, 2**-23 - 1, 1e-6, -1e-6, -0.4, 0.4]
    return torch.cat([torch.linspace(-1, 1, 201, dtype=dtype), torch.tensor(ends, dtype=dtype)]).repeat(ROWS, 1)


def map_of(spec: str, dtype: torch.dtype) -> LogitMap:
    """The map bound to the tile of `similarities`."""
    logit_map: LogitMap
    if spec == "per-anchor":
        logit_map = ScaleMap(torch.tensor([1.0, 7.5, 100.0, 3.25], dtype=dtype))
    elif spec.startswith("pairs"):
        generator = torch.Generator().manual_seed(0)
        columns = similarities(dtype).shape[1]
        rows = [torch.randn(count, 3, generator=generator, dtype=torch.float64).to(dtype) for count in (ROWS, columns)]
        logit_map = PairTemperatureMap(rows[0], rows[1], 0.5, 0.05, 0.0 if "without" in spec else 0.7)
    else:
        logit_map = create_strategy(spec).prepare(Batch(positive_similarity=torch.tensor([0.4, 0.7], dtype=dtype)))
    return logit_map.restrict(slice(None), slice(None))


def along_product(logit_map: PairTemperatureMap, similarity: Tensor) -> Tensor:
    """The derivative of the logit along ⟨φ, φ⟩, by autograd through the public formulas."""
    product = (logit_map.anchors @ logit_map.candidates.T).requires_grad_()
    temperature = logit_map.temperature_at(product, logit_map.span, logit_map.floor)
    logit = similarity / temperature - logit_map.beta * logit_map.regularizer_at(temperature, logit_map.dimension)
    return torch.autograd.grad(logit.sum(), product)[0]


@every_type
@every_map
def test_forms_are_logits_and_slopes(spec: str, dtype: torch.dtype) -> None:
    exact, wide = similarities(dtype).double(), map_of(spec, torch.float64)
    if isinstance(wide, PairTemperatureMap):  # of the same φ
        wide = PairTemperatureMap(*(each.to(dtype).double() for each in (wide.anchors, wide.candidates)), 0.5, 0.05, wide.beta)
        wide = wide.restrict(slice(None), slice(None))
    logit, slope = wide.logit(exact), wide.slope(exact)
    epsilon = torch.finfo(dtype).eps
    if isinstance(wide, LogOddsMap):
        # Where the clamp holds, or nearly, 1 - s is what is left of the rounding of 1 - eps; on its edge it may hold or not.
        beyond = exact.abs() - (1 - wide.eps)
        relative = torch.where(
            beyond > -8 * epsilon, 4 * epsilon / wide.eps, 8 * epsilon / (1 - exact.abs()).clamp(min=wide.eps)
        )
        compared = beyond.abs() > 8 * epsilon
    else:
        relative, compared = torch.full_like(exact, 16 * epsilon), torch.ones_like(exact, dtype=torch.bool)
        if dtype is torch.float32 and spec.startswith("dystress"):
            relative += 2e-7  # of the polynomial, 6e-9 of a temperature whose range is up to ten times its minimum
    expected = [slope]
    if isinstance(wide, PairTemperatureMap):
        expected.append(along_product(wide, exact))
    elif wide.linear:
        expected = []

    found, *slopes = map_of(spec, dtype).logit_and_slopes_(similarities(dtype))
    # Absolute beside what a logit is a difference of: 1/τ at the most.
    size = logit.abs() + (2 * slope.abs() * wide.beta if isinstance(wide, PairTemperatureMap) else 0)
    assert found.dtype == dtype
    assert ((found.double() * math.log(2) - logit).abs() <= relative * (1 + size)).all()
    check_slopes(slopes, expected, relative, compared)

    found, *slopes = map_of(spec, dtype).exponential_and_slopes_(similarities(dtype))
    seen = (logit > -80) & (logit < 80)
    # exp turns absolute errors of the logit into relative ones.
    assert ((found.double() - logit.exp()).abs() <= relative * (4 + 4 * size) * logit.exp())[seen].all()
    assert seen.double().mean() > 0.1
    check_slopes(slopes, expected, relative, compared)


def check_slopes(found: list[Tensor], expected: list[Tensor], relative: Tensor, compared: Tensor) -> None:
    for slope, exact in zip(found, expected, strict=True):
        size = exact.abs() + exact.abs().max() / 100
        assert ((slope.double() - exact).abs() <= 4 * relative * size)[compared].all()
        assert (slope.expand_as(exact)[(exact == 0) & compared] == 0).all()


@pytest.mark.parametrize(("spec", "dtype"), list(zip(SPECS, itertools.cycle(DTYPES), strict=False)), ids=str)
def test_no_logit_is_larger_than_the_bound(spec: str, dtype: torch.dtype) -> None:
    logit_map = map_of(spec, dtype)
    largest = logit_map.logit(similarities(dtype)).abs().max().item()
    # In float32 the clamp of log-odds at eps = 1.2e-7 begins where 1 - s is a rounding of eps.
    assert 0.2 * logit_map.bound < largest <= logit_map.bound * 1.01


@pytest.mark.parametrize("spec", ["temperature-free", "temperature-free:eps=0.2", "temperature-free:eps=1.2e-7"])
@every_type
def test_clamped_pairs_of_log_odds_have_no_gradient_and_their_neighbours_do(spec: str, dtype: torch.dtype) -> None:
    logit_map = map_of(spec, dtype)
    assert isinstance(logit_map, LogOddsMap)
    edge = torch.tensor(1 - logit_map.eps, dtype=dtype)
    inside, one = edge - 8 * torch.finfo(dtype).eps, torch.ones((), dtype=dtype)
    for form in (logit_map.logit_and_slopes_, logit_map.exponential_and_slopes_):
        _, slope = form(torch.stack([one, -one, inside, -inside])[None])
        assert (slope[0, :2] == 0).all()
        assert (slope[0, 2:] > 0).all()


@pytest.mark.parametrize("spec", ["macl", "learnable"])
def test_temperatures_that_change_leave_nothing_behind(spec: str) -> None:
    loss_fn = ContrastiveLoss(spec)
    kept = []
    for seed in range(4):
        views = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        loss_fn(*views).backward()
        if spec == "learnable":
            with torch.no_grad():
                loss_fn.strategy.log_scale += 0.1  # type: ignore[operator]
        kept.append(constant_scale.cache_info().currsize)
    assert kept[1:] == kept[:1] * 3


@pytest.mark.parametrize("spec", ["fixed", "macl", "dystress", "dystress:profile=linear", "temperature-free"])
@pytest.mark.parametrize("layout", ["two-view", "queue"])
def test_no_graph_leads_through_a_map_that_learns_nothing(spec: str, layout: Any) -> None:
    """The engine takes logits and slopes of the positives from one evaluation; autograd would evaluate the map once more."""
    views = [torch.randn(6, 4, requires_grad=True) for _ in range(3)]
    loss_fn = ContrastiveLoss(spec, layout=layout, engine="tiled")
    loss = loss_fn(*views[:2], **loss_fn.accepted(queue=views[2]))
    nodes, found = [loss.grad_fn], set[str]()
    while nodes:
        node = nodes.pop()
        if node is not None:
            found.add(node.name())
            nodes += [following for following, _ in node.next_functions]
    assert "TiledStatisticsBackward" in found
    assert not found & {f"{name}Backward0" for name in ("Mul", "Div", "Cos", "Abs", "Log1P", "Clamp", "Reciprocal")}
