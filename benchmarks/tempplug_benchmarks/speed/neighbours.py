"""Processes that never rest, to see what a busy machine does to a measurement."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COUNT = 2
# A spinner looks for its parent now and then, so that none is left behind however the measurement ends.
_SPIN = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    for _ in range(100_000):\n        pass\n"


@contextmanager
def neighbours(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runs that many spinning processes beside the block; they end with it, or with this process. Gives them.

    Args:
        count: at least 0.
    """
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]) for _ in range(count)]
    try:
        yield spinners
    finally:
        for spinner in spinners:
            spinner.terminate()
        for spinner in spinners:
            spinner.wait()
