"""Plans of tiles: every negative pair is counted once, and the transposed products cover what a product of rows does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug.engine import tiles
from tempplug.engine.tiles import Tiling, make_tiling
from tempplug.roles import Pairing, PairRoles

CPU = torch.device("cpu")
SIZES = [1, 2, 5, 12, 23]
# Rows and columns of a tile; neither needs to be a multiple of the other.
CUTS = [(1, 1), (2, 4), (3, 4), (4, 16), (7, 5)]
EVERY = slice(None)


ROLES = ["two-view", "cross-view", "gathered", "queue", "labels"]


def roles_of(layout: str, size: int, extra: int) -> PairRoles:
    """The roles of a layout whose first view alone sees the extra candidates."""
    square = layout in ("two-view", "labels")
    count = 2 * size if square else size
    candidates = {"gathered": 3 * size, "queue": size + 9}.get(layout, count)
    positives = {
        "two-view": ((0, size, size), (size, count, -size)),
        "gathered": ((0, size, size),),  # the second of three processes
    }.get(layout, ((0, size, 0),))
    classes = {"anchor_labels": torch.arange(count), "candidate_labels": torch.arange(count)}
    return PairRoles(
        anchors=count,
        candidates=candidates + extra,
        device=CPU,
        ignored=Pairing(((0, count, 0),)) if square else None,
        square=square,
        negatives_start=size if layout == "queue" else 0,
        extra_start=candidates if extra else None,
        extra_anchors=size if extra else 0,
        **(classes if layout == "labels" else {"positives": Pairing(positives)}),  # type: ignore[arg-type]
    )


def plans_of(roles: PairRoles) -> Iterator[tuple[Tiling, bool]]:
    """Every plan of a block, and whether it is of both directions."""
    yield make_tiling(roles.shape, False, False, CPU), False
    if roles.square:
        yield make_tiling(roles.shape, True, False, CPU), False
    if roles.anchors == roles.candidates and not roles.square:
        yield make_tiling(roles.shape, False, True, CPU), True


def check_plan(roles: PairRoles, plan: Tiling, mirrored: bool) -> None:
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
        if tile.transposed and tile.both:
            (columns if mirrored else rows[:, : roles.anchors].t())[at_rows, outer] += values[:, inner]
        if tile.transposed and plan.triangle and tile.both:  # the transposed product adds to the anchors
            gradient[:, : roles.anchors].t()[at_rows, outer] += values[:, inner]
        elif tile.transposed:
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


@pytest.mark.parametrize(("layout", "size", "cut", "extra"), every_pair(ROLES, SIZES, CUTS, [0, 1, 6]))
def test_every_pair_with_a_role_is_counted_once_and_nothing_else(
    layout: str, size: int, cut: tuple[int, int], extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "SINGLE", 0)
    monkeypatch.setattr(tiles, "CPU_TILE", cut)
    make_tiling.cache_clear()
    roles = roles_of(layout, size, extra)
    for plan, mirrored in plans_of(roles):
        check_plan(roles, plan, mirrored)
    make_tiling.cache_clear()


@pytest.mark.parametrize("layout", ROLES)
def test_a_small_block_is_one_tile_without_slices(layout: str) -> None:
    roles = roles_of(layout, 9, 0)
    for plan, mirrored in plans_of(roles):
        check_plan(roles, plan, mirrored)
        (tile,) = plan.tiles
        assert tile.rows is None
        assert tile.columns is None or layout == "queue"


def test_a_large_square_is_cut_into_hardly_more_than_its_half() -> None:
    roles = roles_of("two-view", 3000, 0)
    plan = make_tiling(roles.shape, True, False, CPU)
    largest = tiles.CPU_TILE[0] * tiles.CPU_TILE[1]
    for tile in plan.tiles:
        assert tile.rows is not None
        assert tile.columns is not None
        assert (tile.rows.stop - tile.rows.start) * (tile.columns.stop - tile.columns.start) <= largest
    assert plan.pairs < 0.6 * 6000**2
    assert len(make_tiling(roles.shape, False, False, CPU).tiles) >= 6000**2 / largest


def test_the_plan_of_a_shape_is_made_once() -> None:
    plans = [make_tiling(roles_of("cross-view", 5, extra).shape, False, False, CPU) for extra in (2, 2, 3)]
    assert plans[0] is plans[1]
    assert plans[0] is not plans[2]
