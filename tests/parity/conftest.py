"""What several files of this folder ask of the engine."""

from __future__ import annotations

import pytest

from tempplug.engine import tiled


@pytest.fixture
def closed_forms_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block may go through the dense formulas unseen."""

    def refused(*arguments: object) -> None:
        raise AssertionError("these blocks have a closed form")

    monkeypatch.setattr(tiled, "_by_slabs", refused)
