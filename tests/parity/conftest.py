"""What several files of this folder ask of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tempplug.engine import forward, tiles

CUTS = {
    "one tile": (False, True),
    "many tiles, again": (True, False),
    "one tile, again": (False, False),
    "many tiles": (True, True),
}


def _cut(many: bool, kept: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tiles, "SINGLE", 1 if many else 1 << 20)
    monkeypatch.setattr(tiles, "CPU_TILE", (4, 5))
    monkeypatch.setattr(forward, "KEPT", 1 << 20 if kept else 0)
    tiles.make_plan.cache_clear()
    yield
    tiles.make_plan.cache_clear()


@pytest.fixture(params=CUTS)
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One tile or many ragged ones, kept for the backward pass or computed again."""
    yield from _cut(*CUTS[request.param], monkeypatch)


@pytest.fixture(params=list(CUTS)[:2])
def cut_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One tile that is kept, or many that are computed again."""
    yield from _cut(*CUTS[request.param], monkeypatch)
