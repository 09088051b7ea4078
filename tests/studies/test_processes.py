"""The measurement of a gathered loss by number of processes, on two of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRIPS = {"all": 2, "ring": 3}
"""How often rows of candidates or their gradients are sent: a ring sends the candidates in both passes."""


@pytest.mark.slow
@pytest.mark.parametrize("gather", ["all", "ring"])
def test_two_processes_send_what_the_guide_computes_and_agree_with_one(tmp_path: Path, gather: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    output = tmp_path / "found.jsonl"
    flags = ["--rows=64", "--dimension=16", "--steps=2", "--device=cpu", f"--gather={gather}", f"--output={output}"]
    done = subprocess.run(
        [*command, "-m", "studies.other_libraries.processes", *flags], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = map(json.loads, output.read_text().splitlines())
    # Two views each time, and forward the similarity of each anchor with its positive, all float32.
    assert found["sent_mib"] * 2**20 == TRIPS[gather] * (2 * 64 * 16 * 4) + 2 * 64 * 4
    assert 0 <= found["error"] < 2e-5
    assert (found["world"], found["gather"]) == (2, gather)
