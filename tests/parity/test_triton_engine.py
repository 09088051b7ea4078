"""Tests of kernels that need a process of their own: `interpreted.py` and `compiled.py`."""

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
    reason="triton is not installed: pip install -c constraints.txt -e '.[triton]'",
)
@pytest.mark.parametrize(("file", "interpret"), [("interpreted.py", "1"), ("compiled.py", "0")])
def test_kernels_are_exact_when_interpreted_and_compile(file: str, interpret: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", Path(__file__).with_name(file)]
    own = {"TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, env=os.environ | own)
    assert run.returncode == 0, run.stdout[-20_000:]
    assert " passed" in run.stdout
