"""What the Triton engine decides without triton: plans of maps and roles, refusals, sizes of tiles and workspaces."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import pytest
import torch

from tempplug.block import Block
from tempplug.embeddings import Selection
from tempplug.engine import triton
from tempplug.engine.triton.plan import PADDED_ROWS, Tiles, choose_tiles, plan_map, plan_roles, slabs
from tempplug.errors import ConfigError
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import LogOddsMap, Profile, ProfileMap, ScaleMap

PROFILES: list[Profile] = ["cosine", "linear", "exponential", "monotonic", "shifted"]
CPU = torch.device("cpu")


def _roles(**changes: Any) -> PairRoles:
    given: dict[str, Any] = {"anchors": 4, "candidates": 6, "device": CPU, "positives": Pairing(((0, 4, 0),)), **changes}
    return PairRoles(**given)


def _block(roles: PairRoles | None = None, **changes: Any) -> Block:
    given: dict[str, Any] = {
        "anchors": torch.eye(4, 6),
        "candidates": torch.eye(6),
        "roles": roles or _roles(),
        "positive_similarity": torch.ones(4),
        "precision": torch.float32,
        **changes,
    }
    of_anchors, of_candidates = (Selection(None, rows=given.pop(name)) for name in ("anchors", "candidates"))
    return Block(of_anchors, of_candidates, **given)


class Warped(LogOddsMap):
    """A third party's, which computes anything."""


@pytest.mark.parametrize(
    "logit_map",
    [
        LogOddsMap(1e-3),
        *(
            ProfileMap(profile, 0.05, 0.4, shift=0.3, width=0.4, rate=5.0, detach=detach)
            for profile in PROFILES
            for detach in (True, False)
        ),
    ],
)
def test_no_slope_is_steeper_than_the_plan_of_its_map(logit_map: LogOddsMap | ProfileMap) -> None:
    plan = plan_map(logit_map)
    assert plan is not None
    end = 1 - 1e-3 if isinstance(logit_map, LogOddsMap) else 1
    steepest = float(logit_map.slope(torch.linspace(-end, end, 2001, dtype=torch.float64)).abs().max())
    assert steepest <= plan.steepest * (1 + 1e-9)
    assert plan.steepest < 20 * steepest
    assert isinstance(logit_map, LogOddsMap) or (plan.kind, plan.steep) == (logit_map.profile, not logit_map.detach)


@pytest.mark.parametrize(("scale", "per_anchor"), [(torch.tensor(3.0), False), (torch.tensor([3.0, 4.0]), True)])
def test_a_scale_keeps_its_tensor(scale: torch.Tensor, per_anchor: bool) -> None:
    plan = plan_map(ScaleMap(scale))
    assert plan is not None
    assert plan.scale is scale
    assert plan.per_anchor is per_anchor
    assert not plan.steep
    assert plan_map(Warped(1e-3)) is None


def _negatives(numbers: dict[str, int]) -> torch.Tensor:
    """The negatives that the numbers describe, as kernels read them."""
    i, j = torch.arange(numbers["anchors"])[:, None], torch.arange(numbers["candidates"])[None, :]
    found = (j >= numbers["negatives_start"]) & ((j < numbers["extra_start"]) | (i < numbers["extra_anchors"]))
    for name in ("positive", "own"):
        split, first, second = (numbers[f"{name}_{part}"] for part in ("split", "first", "second"))
        found = found & (j - i != torch.where(i < split, first, second))
    return found


@pytest.mark.parametrize(
    "roles",
    [
        _roles(),
        _roles(negatives_start=4),
        _roles(extra_start=4, extra_anchors=2),
        _roles(candidates=4, positives=Pairing(((0, 2, 2), (2, 4, -2))), ignored=Pairing(((0, 2, 0), (2, 4, 0)))),
        _roles(candidates=12, positives=Pairing(((0, 2, 8), (2, 4, 0))), ignored=Pairing(((0, 2, 2), (2, 4, 6)))),
    ],
    ids=["cross-view", "queue", "hard negatives", "two-view", "two-view of a rank"],
)
def test_nine_numbers_tell_the_negatives(roles: PairRoles) -> None:
    numbers = plan_roles(roles)
    assert numbers is not None
    rows, columns = torch.arange(roles.anchors)[:, None], torch.arange(roles.candidates)[None, :]
    assert torch.equal(_negatives(numbers), roles.negative(rows, columns))


SEVERAL = [
    _roles(positives=None, anchor_labels=torch.zeros(4), candidate_labels=torch.zeros(6)),
    _roles(negative_mask=torch.ones(4, 6, dtype=torch.bool)),
    _roles(positives=Pairing(((0, 1, 0), (1, 2, 0), (2, 4, 0)))),
]


@pytest.mark.parametrize(
    ("block", "logit_map", "reason"),
    [
        *((_block(roles), LogOddsMap(1e-3), "several positives or masks") for roles in SEVERAL),
        (_block(precision=torch.float64), LogOddsMap(1e-3), "float64"),
        (_block(anchors=torch.eye(4, 6, dtype=torch.float64)), LogOddsMap(1e-3), "float64"),
        (_block(), Warped(1e-3), "logit map Warped has no kernel"),
    ],
)
def test_blocks_and_maps_without_a_kernel_are_refused(block: Block, logit_map: LogOddsMap, reason: str) -> None:
    assert reason in str(triton.refusal(block, logit_map))
    for call in (triton.triton_statistics, triton.mirrored_statistics):
        with pytest.raises(ConfigError, match=reason):
            call(block, logit_map)
    assert all(plan_roles(roles) is None for roles in SEVERAL)


@pytest.mark.parametrize(
    ("installed", "interpreted", "memory", "reason"),
    [
        (False, True, 227, "pip install -c constraints.txt -e '.[triton]'"),
        (True, False, 227, "'cpu'"),
        (True, True, 64, "99 KiB"),
        (True, True, 227, "None"),
    ],
)
def test_machines_without_what_kernels_need_are_refused(
    installed: bool, interpreted: bool, memory: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "_installed", lambda: installed)
    monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreted else "0")
    monkeypatch.setattr(triton, "shared_memory", lambda device: memory * 1024)
    assert reason in str(triton.refusal(_block(), LogOddsMap(1e-3)))


@pytest.mark.slow
def test_importing_the_engine_needs_no_triton() -> None:
    code = "import sys; sys.modules['triton'] = None; import tempplug.engine.triton as t; print(t.refusal.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "refusal", run.stderr


@pytest.mark.parametrize(("dimension", "width"), [(1, 16), (3, 16), (64, 64), (130, 256), (256, 256), (257, 320), (1000, 1024)])
def test_operands_are_as_wide_as_tiles(dimension: int, width: int) -> None:
    assert Tiles(torch.bfloat16, True).width(dimension) == width


@pytest.mark.parametrize("roomy", [True, False])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_tiles_divide_operands(precision: torch.dtype, roomy: bool) -> None:
    tiles = Tiles(precision, roomy)
    for dimension in range(1, 1100, 7):
        width = tiles.width(dimension)
        assert width >= dimension
        kept = dimension <= tiles.widest
        last = [tiles.gradient(width, False, square) if kept else tiles.slab(steep=False) for square in (True, False)]
        sums = [tiles.sums(width, kind, square) for kind in ("scale", "cosine") for square in (True, False)]
        for tile in (*sums, *last, tiles.online(width)):
            assert PADDED_ROWS % tile.rows == PADDED_ROWS % tile.columns == 0
            assert width % tile.depth == 0
    assert Tiles(precision, False).widest == 128


@pytest.mark.parametrize("length", [1, 100, 8192, 8193, 65_536, 1_048_576])
def test_slabs_cover_a_range_once_and_fit_the_workspace(length: int) -> None:
    pieces = slabs(133, 133 + length)
    assert pieces[0][0] == 128
    assert pieces[-1][1] == 133 + length
    assert all(begin % 128 == 0 for begin, _ in pieces)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(pieces))
    side = max(end - begin for begin, end in pieces)
    # float32 is the widest: what a million anchors of 512 dimensions leave of 8 GiB is far more.
    assert math.ceil(side / 16) ** 2 * 256 * 4 <= 256 * 2**20


def test_interpreted_bfloat16_is_stored_as_float32() -> None:
    assert choose_tiles(torch.bfloat16, CPU).precision == torch.float32
    assert choose_tiles(torch.float16, CPU).precision == torch.float16
    assert choose_tiles(torch.bfloat16, CPU).roomy
