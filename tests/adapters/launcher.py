"""Starts a script of `launched/` as several processes on this machine and waits, never for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

SCRIPTS = Path(__file__).parent / "launched"
LAUNCHES = Path(__file__).parents[1] / "launches"
# Far above what a launch takes, far below what gloo waits by itself.
SECONDS = 300


def torchrun(processes: int) -> list[str]:
    """Returns the command up to the script; it finds a free port."""
    python = os.environ.get("PYTHON_EXEC", sys.executable)
    return [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


def _paths() -> str:
    places = (LAUNCHES, LAUNCHES.parent, SCRIPTS.parent)
    return os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])


def launch(command: list[str], script: str, *arguments: str | Path) -> tuple[int, str]:
    """Returns exit status and stderr; raises `subprocess.TimeoutExpired` where it hangs, with all its processes stopped."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": _paths()}
    with subprocess.Popen(
        [*command, str(SCRIPTS / script), *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except BaseException:
            _stop(process)
            raise
    return process.returncode, errors


def _stop(process: subprocess.Popen[str]) -> None:
    # torchrun puts its workers into sessions of their own and stops them itself when it is asked to end.
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def launched(command: list[str], script: str, folder: Path, *arguments: str, processes: int = 2) -> list[Any]:
    """Launches a script that must succeed and returns what each process saved, in the order of ranks."""
    status, errors = launch(command, script, folder, *arguments)
    assert status == 0, errors[-4000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(processes)]
