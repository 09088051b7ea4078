"""In-place tile forms: E is exp(logit) and W is E times the slope, element by element, for every built-in map."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tempplug import Batch, ContrastiveLoss, create_strategy
from tempplug.precision import number
from tempplug.strategies.maps import LogitMap, LogOddsMap, ScaleMap
from tempplug.strategies.tile_forms import TileForm, top_anchor

ROWS = 4
SPECS = [
    "fixed:temperature=1",
    "fixed:temperature=0.05",
    "fixed:temperature=0.01",
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
    "dystress:profile=linear,temperature_min=0.004,temperature_max=0.005",
    "per-anchor",
]
DTYPES = [torch.float32, torch.float64]


def map_of(spec: str, dtype: torch.dtype) -> LogitMap:
    if spec == "per-anchor":
        return ScaleMap(torch.tensor([1.0, 7.5, 100.0, 3.25], dtype=dtype))
    return create_strategy(spec).prepare(Batch(positive_similarity=torch.tensor([0.4, 0.7], dtype=dtype)))


def similarities(dtype: torch.dtype) -> Tensor:
    """[ROWS, C] the same in every row: evenly spread, the ends, 0, and what lies next to them and to the clamps."""
    ends = [1.0, -1.0, 0.0, 1 - 1e-4, 1e-4 - 1, 0.8, -0.8, 1 - 2**-23, 2**-23 - 1, 1e-6, -1e-6, -0.4, 0.4]
    return torch.cat([torch.linspace(-1, 1, 201, dtype=dtype), torch.tensor(ends, dtype=dtype)]).repeat(ROWS, 1)


def tiles_of(form: TileForm, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Returns u and W of a form, called as the engine calls it."""
    scale = form.operand_scale
    tile = similarity * (scale[:, None] if isinstance(scale, Tensor) else scale)
    scratch = torch.full_like(tile, math.nan) if form.scratch else tile
    form.exponentiate_(tile, scratch)
    u = tile.clone()
    form.weigh_(tile, scratch)
    return u, tile


def bound(logit_map: LogitMap) -> LogitMap:
    return logit_map.at(slice(None), slice(None))


def per_row(value: Tensor | float) -> Tensor | float:
    return value[:, None].double() if isinstance(value, Tensor) and value.ndim else value


@pytest.mark.parametrize("columns", [10, 100_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_forms_equal_exp_of_the_logit_and_that_times_the_slope(spec: str, dtype: torch.dtype, columns: int) -> None:
    logit_map = map_of(spec, dtype)
    similarity = similarities(dtype)
    form = logit_map.tile_form(columns, dtype)
    assert form is not None
    u, w = tiles_of(form, similarity.clone())
    exact = similarity.double()
    wide = map_of(spec, torch.float64)
    logit, slope = bound(wide).logit(exact), bound(wide).slope(exact)

    epsilon = torch.finfo(dtype).eps
    steep = torch.ones_like(exact, dtype=torch.bool)
    if isinstance(wide, LogOddsMap):
        # No exponential: a few roundings, absolute ones where E is small beside the terms that it is made of. Where the
        # clamp holds, or nearly, 1 - s is what is left of the rounding of 1 - eps.
        beyond = exact.abs() - (1 - wide.eps)
        shift, tolerance = 0.0, torch.where(beyond > -8 * epsilon, 4 * epsilon / wide.eps, 8 * epsilon)
        found, expected = form.factor * u.double() + form.offset, logit.exp()
        assert ((found - expected).abs() <= tolerance * (1 + expected)).all()
        # On its edge the clamp may count as holding or not.
        steep = beyond.abs() > 8 * epsilon
    else:
        # exp turns absolute errors of the logit into relative ones; the anchor's shift adds one of its own size.
        shift = form.shift * math.log(2)
        tolerance = epsilon * (4 + 4 * logit.abs() + 2 * shift)
        expected = (logit - shift).exp()
        seen = expected > 2 * torch.finfo(dtype).tiny  # below that u may be 0
        assert ((u.double() - expected).abs() <= tolerance * expected)[seen].all()
        assert seen.double().mean() > 0.1
    pulls, expected = w.double() * per_row(form.slope), (logit - shift).exp() * slope
    seen = steep & (expected.abs() > 2 * torch.finfo(dtype).tiny * slope.abs().max().clamp(min=1))
    assert ((pulls - expected).abs() <= tolerance * expected.abs())[seen].all()
    assert (w[slope == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_what_the_engine_zeroes_has_no_weight(spec: str, dtype: torch.dtype) -> None:
    form = map_of(spec, dtype).tile_form(10, dtype)
    assert form is not None
    tile = similarities(dtype)
    scratch = torch.empty_like(tile)
    form.exponentiate_(tile, scratch if form.scratch else tile)
    tile.zero_()
    form.weigh_(tile, scratch if form.scratch else tile)
    assert (tile == 0).all()


@pytest.mark.parametrize("columns", [1, 10, 100_000])
@pytest.mark.parametrize("spec", SPECS)
def test_sums_of_the_largest_terms_stay_in_range(spec: str, columns: int) -> None:
    logit_map = map_of(spec, torch.float32)
    form = logit_map.tile_form(columns, torch.float32)
    assert form is not None
    u, _ = tiles_of(form, similarities(torch.float32))
    assert (u.abs() * float(columns)).isfinite().all()
    assert (u.abs().amax(1) > 0).all()


def test_the_shift_is_as_small_as_it_may_be() -> None:
    assert top_anchor(1 / 0.0138, 2**20) == 0
    assert top_anchor(100.0, 2**20) == pytest.approx(100 / math.log(2) + 20 - 126)
    assert map_of("fixed:temperature=0.05", torch.float32).tile_form(10**6, torch.float32).shift == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("spec", ["temperature-free", "temperature-free:eps=0.2", "temperature-free:eps=1.2e-7"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clamped_pairs_of_log_odds_have_no_gradient_and_their_neighbours_do(spec: str, dtype: torch.dtype) -> None:
    logit_map = map_of(spec, dtype)
    assert isinstance(logit_map, LogOddsMap)
    form = logit_map.tile_form(10, dtype)
    assert form is not None
    edge = torch.tensor(1 - logit_map.eps, dtype=dtype)
    inside = edge - 8 * torch.finfo(dtype).eps
    _, w = tiles_of(form, torch.stack([torch.ones((), dtype=dtype), -torch.ones((), dtype=dtype), inside, -inside])[None])
    assert (w[0, :2] == 0).all()
    assert (w[0, 2:] > 0).all()


@pytest.mark.parametrize("spec", ["fixed", "temperature-free", "dystress"])
def test_forms_that_every_batch_has_are_kept(spec: str) -> None:
    forms = [map_of(spec, torch.float32).tile_form(10, torch.float32) for _ in range(2)]
    assert forms[0] is forms[1]
    assert forms[0] is not None
    assert forms[0].constant


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
        kept.append(number.cache_info().currsize)
    assert kept[1:] == kept[:1] * 3
