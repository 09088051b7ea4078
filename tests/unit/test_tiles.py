"""Plans of tiles: every negative pair is counted once, in an order in which sums can be added up one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tempplug.engine import tiles
from tempplug.engine.tiles import Plan, Shape, make_plan
from tempplug.roles import Pairing, PairRoles

CPU = torch.device("cpu")
SIZES = [1, 2, 3, 4, 5, 7, 12, 23]
# Rows and columns of a tile; columns are no fewer than rows, as in the engine, but need not be a multiple of them.
CUTS = [(1, 1), (2, 4), (3, 4), (4, 16), (5, 7)]


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


ROLES = {"two-view": two_view, "cross-view": cross_view, "gathered": gathered, "queue": queue}


@pytest.fixture(params=CUTS, ids=lambda cut: "x".join(map(str, cut)))
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of a few numbers; the plans that are kept from elsewhere are of another size."""
    rows, columns = request.param
    for name in ("ROWS", "FINE_ROWS"):
        monkeypatch.setattr(tiles, name, rows)
    for name in ("COLUMNS", "FINE_COLUMNS"):
        monkeypatch.setattr(tiles, name, columns)
    make_plan.cache_clear()
    yield
    make_plan.cache_clear()


def plans_of(roles: PairRoles) -> Iterator[Plan]:
    yield make_plan(Shape.of(roles), False)
    if roles.square:
        yield make_plan(Shape.of(roles), True)


def counted(roles: PairRoles, plan: Plan) -> Tensor:
    """How often each pair is counted, [N, M]."""
    count = torch.zeros(roles.anchors, roles.candidates, dtype=torch.long)
    first = roles.negatives_start
    for tile in plan.tiles:
        values = torch.ones(tile.bottom - tile.top, tile.right - tile.left, dtype=torch.long)
        assert values.numel() > 0
        assert values.numel() <= plan.largest
        if tile.zeroes is not None:
            values.view(-1)[tile.zeroes] = 0
        start = first if tile.panel == 0 else roles.candidates - plan.extra_columns
        count[tile.top : tile.bottom, start + tile.left : start + tile.right] += values
        if plan.triangle and tile.panel == 0:
            mirrored = values[:, tile.mirrored_from :].t()
            count[tile.left + tile.mirrored_from : tile.right, tile.top : tile.bottom] += mirrored
    return count


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("extra", [0, 1, 6])
@pytest.mark.parametrize("layout", ROLES)
def test_every_negative_is_counted_once_and_nothing_else(layout: str, extra: int) -> None:
    for size in SIZES:
        roles = ROLES[layout](size, extra)
        expected = roles.negative(*roles.tile(slice(None), slice(None))).long()
        for plan in plans_of(roles):
            assert torch.equal(counted(roles, plan), expected), f"size={size}, triangle={plan.triangle}"


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("extra", [0, 6])
@pytest.mark.parametrize("layout", ROLES)
def test_whoever_adds_to_the_same_sums_has_a_turn_of_its_own(layout: str, extra: int) -> None:
    for plan in [plan for size in SIZES for plan in plans_of(ROLES[layout](size, extra))]:
        rows: dict[int, list[int]] = defaultdict(list)
        columns: dict[int, list[int]] = defaultdict(list)
        for tile in plan.tiles:
            rows[tile.top].append(tile.row_turn)
            assert tile.mirrors == (tile.mirrored_from < tile.right - tile.left)
            if tile.mirrors:
                columns[tile.group].append(tile.column_turn)
            others = [other for other in plan.tiles if other.mirrors and tile.mirrors and other.panel == tile.panel]
            overlapping = [other for other in others if other.left < tile.right and tile.left < other.right]
            assert {other.group for other in overlapping} <= {tile.group}
            assert not any(other.group == tile.group for other in plan.tiles if other.panel != tile.panel)
        # In the order of the plan, so that a tile never waits for one that has not been begun.
        for turns in (*rows.values(), *columns.values()):
            assert turns == list(range(len(turns)))
        assert plan.mirrors == tuple(any(t.mirrors and t.panel == panel for t in plan.tiles) for panel in (0, 1))


def test_a_small_square_is_one_tile_and_a_large_one_is_not_kept() -> None:
    single = make_plan(Shape.of(two_view(tiles.FINE_ROWS // 2, 0)), True)
    assert len(single.tiles) == 1
    assert single.keep
    cut = make_plan(Shape.of(two_view(tiles.FINE_ROWS // 2 + 1, 0)), True)
    assert len(cut.tiles) > 1
    assert cut.keep
    large = make_plan(Shape.of(two_view(3000, 0)), True)
    assert not large.keep
    assert large.largest == tiles.ROWS * tiles.COLUMNS
    assert sum((t.bottom - t.top) * (t.right - t.left) for t in large.tiles) < 0.6 * 6000**2


def test_the_plan_of_a_shape_is_made_once() -> None:
    assert make_plan(Shape.of(cross_view(5, 2)), False) is make_plan(Shape.of(cross_view(5, 2)), False)
    assert make_plan(Shape.of(cross_view(5, 2)), False) is not make_plan(Shape.of(cross_view(5, 3)), False)
