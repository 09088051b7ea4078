"""Plans of tiles: every negative pair is counted once, and the transposed products cover what a product of rows does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tempplug.engine import tiles
from tempplug.engine.tiles import Plan, make_plan
from tempplug.roles import Pairing, PairRoles

CPU = torch.device("cpu")
SIZES = [1, 2, 5, 12, 23]
# Rows and columns of a tile; neither needs to be a multiple of the other.
CUTS = [(1, 1), (2, 4), (3, 4), (4, 16), (7, 5)]
EVERY = slice(None)


def two_view(size: int, extra: int) -> PairRoles:
    half, count = size, 2 * size
    return PairRoles(
        anchors=count,
        candidates=count + extra,
        device=CPU,
        positives=Pairing(((0, half, half), (half, count, -half))),
        ignored=Pairing(((0, count, 0),)),
        square=True,
        extra_start=count if extra else None,
        extra_anchors=half if extra else 0,
    )


def cross_view(size: int, extra: int) -> PairRoles:
    return PairRoles(
        anchors=size,
        candidates=size + extra,
        device=CPU,
        positives=Pairing(((0, size, 0),)),
        extra_start=size if extra else None,
        extra_anchors=size if extra else 0,
    )


def gathered(size: int, extra: int) -> PairRoles:
    """The second of three processes: its anchors are paired with candidates further on."""
    return PairRoles(
        anchors=size,
        candidates=3 * size + extra,
        device=CPU,
        positives=Pairing(((0, size, size),)),
        extra_start=3 * size if extra else None,
        extra_anchors=size if extra else 0,
    )


def queue(size: int, extra: int) -> PairRoles:
    return PairRoles(
        anchors=size,
        candidates=size + 9 + extra,
        device=CPU,
        positives=Pairing(((0, size, 0),)),
        negatives_start=size,
        extra_start=size + 9 if extra else None,
        extra_anchors=size if extra else 0,
    )


def labels(size: int, extra: int) -> PairRoles:
    """Two views, whose first one alone sees the hard negatives; labels say who is positive."""
    count = 2 * size
    classes = torch.arange(count)
    return PairRoles(
        anchors=count,
        candidates=count + extra,
        device=CPU,
        ignored=Pairing(((0, count, 0),)),
        square=True,
        extra_start=count if extra else None,
        extra_anchors=size if extra else 0,
        anchor_labels=classes,
        candidate_labels=classes,
    )


ROLES = {"two-view": two_view, "cross-view": cross_view, "gathered": gathered, "queue": queue, "labels": labels}


@pytest.fixture(params=CUTS, ids=lambda cut: "x".join(map(str, cut)))
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of a few numbers; the plans that are kept from elsewhere are of another size."""
    monkeypatch.setattr(tiles, "SINGLE", 0)
    monkeypatch.setattr(tiles, "CPU_TILE", request.param)
    make_plan.cache_clear()
    yield
    make_plan.cache_clear()


def plans_of(roles: PairRoles) -> Iterator[tuple[Plan, bool]]:
    """Every plan of a block, and whether it is of both directions."""
    yield make_plan(roles.shape, False, False, CPU), False
    if roles.square:
        yield make_plan(roles.shape, True, False, CPU), False
    if roles.anchors == roles.candidates and not roles.square:
        yield make_plan(roles.shape, False, True, CPU), True


def check_plan(roles: PairRoles, plan: Plan, mirrored: bool) -> None:
    """Adds the tiles up as the engine does: sums of rows and of columns, and the products of a gradient."""
    rows = torch.zeros(roles.anchors, roles.candidates, dtype=torch.long)
    columns, gradient = torch.zeros_like(rows), torch.zeros_like(rows)
    blank = torch.ones_like(rows)
    pairs = 0
    for tile in plan.tiles:
        at_rows, at_columns = tile.rows or EVERY, tile.columns or EVERY
        outer, inner = tile.outer or EVERY, tile.inner or EVERY
        values = torch.ones_like(rows[at_rows, at_columns])
        pairs += values.numel()
        assert values.numel() > 0
        assert tile.behind == (roles.shape.behind <= torch.arange(roles.candidates)[at_columns][0])
        if tile.blank is not None:
            values.view(-1)[tile.blank] = 0
            blank[at_rows, at_columns] *= values
        rows[at_rows, at_columns] += values
        gradient[at_rows, at_columns] += values
        if tile.turns and tile.both:
            (columns if mirrored else rows[:, : roles.anchors].t())[at_rows, outer] += values[:, inner]
        if tile.turns and plan.triangle and tile.both:  # the transposed product adds to the anchors
            gradient[:, : roles.anchors].t()[at_rows, outer] += values[:, inner]
        elif tile.turns:
            assert torch.arange(roles.candidates)[outer].equal(torch.arange(roles.candidates)[at_columns][inner])
        else:
            assert plan.triangle, "candidates have a gradient"
    expected = roles.negative(*roles.tile(EVERY, EVERY)).long() if roles.anchor_labels is None else _roles_by_position(roles)
    assert torch.equal(rows, expected)
    assert torch.equal(gradient, expected)
    assert torch.equal(blank * expected, expected)
    assert plan.pairs == pairs
    if mirrored:
        assert torch.equal(columns, expected)


def _roles_by_position(roles: PairRoles) -> Tensor:
    """1 where an anchor and a candidate have any role."""
    expected = torch.ones(roles.anchors, roles.candidates, dtype=torch.long)
    expected[roles.extra_anchors :, roles.shape.behind :] = 0
    return expected.fill_diagonal_(0)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("extra", [0, 1, 6])
@pytest.mark.parametrize("layout", ROLES)
def test_every_pair_with_a_role_is_counted_once_and_nothing_else(layout: str, extra: int) -> None:
    for size in SIZES:
        roles = ROLES[layout](size, extra)
        for plan, mirrored in plans_of(roles):
            check_plan(roles, plan, mirrored)


@pytest.mark.parametrize("layout", ROLES)
def test_a_small_block_is_one_tile_without_slices(layout: str) -> None:
    roles = ROLES[layout](9, 0)
    for plan, mirrored in plans_of(roles):
        check_plan(roles, plan, mirrored)
        (tile,) = plan.tiles
        assert tile.rows is None
        assert tile.columns is None or layout == "queue"


def test_a_large_square_is_cut_into_hardly_more_than_its_half() -> None:
    roles = two_view(3000, 0)
    plan = make_plan(roles.shape, True, False, CPU)
    largest = tiles.CPU_TILE[0] * tiles.CPU_TILE[1]
    for tile in plan.tiles:
        assert tile.rows is not None
        assert tile.columns is not None
        assert (tile.rows.stop - tile.rows.start) * (tile.columns.stop - tile.columns.start) <= largest
    assert plan.pairs < 0.6 * 6000**2
    assert len(make_plan(roles.shape, False, False, CPU).tiles) >= 6000**2 / largest


def test_the_plan_of_a_shape_is_made_once() -> None:
    plans = [make_plan(cross_view(5, extra).shape, False, False, CPU) for extra in (2, 2, 3)]
    assert plans[0] is plans[1]
    assert plans[0] is not plans[2]
