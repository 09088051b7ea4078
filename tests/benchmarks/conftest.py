"""The toy suite, importable by name (also in worker processes) and registered in a registry of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tempplug.plugins import registry

HERE = Path(__file__).parent


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr("tempplug.plugins.manager._registry", None)
    import toy_suite

    registry().register(toy_suite.Plugin(), "toy")
    yield toy_suite
    sys.modules.pop("toy_suite", None)
