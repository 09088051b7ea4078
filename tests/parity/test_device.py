"""What a call does on another device than a CPU, found on every machine: by a device that computes on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Processes of their own, because torch cannot forget a device.
HERE = Path(__file__).parent
# An operation is a kernel or a copy. Normalising is 11 of them, because no number is read to find the short way.
LAUNCHES = {"two-view": (24, 20), "cross-view": (23, 19), "queue": (22, 22), "labels": (49, 43), "masks": (55, 34)}


def _run(*words: str) -> str:
    run = subprocess.run([sys.executable, *words], cwd=HERE.parents[1], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


def test_every_third_case_of_the_matrix_is_the_oracles_on_another_device() -> None:
    assert "0 of " in _run("tests/parity/on_device.py", "--device", "pretend", "--every", "3")


def test_no_call_waits_for_its_device_after_the_first_and_launches_are_counted() -> None:
    calls = [json.loads(line) for line in _run("tests/parity/device_calls.py").splitlines()]
    assert len(calls) > 200
    # dclw selects the anchors that have a positive; with labels and masks only their values tell how many these are.
    waiting = {call["call"]: call["waits"] for call in calls if call["waits"]}
    assert all("dclw" in name and ("masks" in name or "labels-one-view" in name) for name in waiting), waiting
    launches = {call["call"]: tuple(call["launches"]) for call in calls}
    assert {name: launches[f"fixed {name} infonce"] for name in LAUNCHES} == LAUNCHES
