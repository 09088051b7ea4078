"""The measurement of a gathered loss by number of processes, on two of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_processes_send_what_the_guide_computes_and_agree_with_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    flags = ["--rows=64", "--dimension=16", "--steps=2", "--device=cpu", f"--output={tmp_path / 'found.jsonl'}"]
    done = subprocess.run(
        [*command, "-m", "tempplug_benchmarks.processes", *flags], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    # Two views each way, and forward the similarity of each anchor with its positive, all float32.
    assert found["sent_mib"] * 2**20 == 2 * (2 * 64 * 16 * 4) + 2 * 64 * 4
    assert 0 <= found["error"] < 2e-5
    assert found["world"] == 2
