"""Fixtures shared by all tests: the folder of real data, and one torch thread count for every run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data named by TEMPPLUG_DATA; absent, the test is skipped, but in CI it fails."""
    folder = os.environ.get("TEMPPLUG_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder).resolve()
    reason = f"TEMPPLUG_DATA={folder!r} is not a folder: set it to the folder of real data"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI must run this test")
    pytest.skip(reason)
