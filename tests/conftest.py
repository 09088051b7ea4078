"""Fixtures shared by all tests: the folder of real data, and one torch thread count for every run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data named by TEMPPLUG_DATA: skipped where that is not set, a failure where it is wrong."""
    folder = os.environ.get("TEMPPLUG_DATA")
    if not folder:
        pytest.skip("TEMPPLUG_DATA is not set: this test reads the folder of real data that it names")
    if not Path(folder).is_dir():
        pytest.fail(f"TEMPPLUG_DATA={folder!r} is not a folder: set it to the folder of real data, or leave it out")
    return Path(folder).resolve()
