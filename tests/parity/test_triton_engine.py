"""The tests of `interpreted.py`, in a process that interprets the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


# In CI a missing triton is a failure, not a reason to skip.
@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("triton") is None and not os.environ.get("CI"),
    reason="triton is not installed: pip install 'tempplug[triton]'",
)
def test_interpreted_kernels_are_those_of_the_oracle() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", Path(__file__).with_name("interpreted.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout[-20_000:]
    assert " passed" in run.stdout
