"""What several files of this folder ask of the engine."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from tempplug import loss
from tempplug.engine import tiled
from tempplug.strategies.maps import LogitMap


@pytest.fixture
def closed_forms_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block may go through the dense formulas unseen."""

    def refused(*arguments: object) -> None:
        raise AssertionError("these blocks have a closed form")

    monkeypatch.setattr(tiled, "_by_slabs", refused)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes of every call of the loss whether it went the short way."""
    taken: list[bool] = []
    direct = loss.small_loss

    def watched(*arguments: Any) -> tuple[Tensor | None, LogitMap | None]:
        found = direct(*arguments)
        taken.append(found[0] is not None)
        return found

    monkeypatch.setattr(loss, "small_loss", watched)
    return taken
