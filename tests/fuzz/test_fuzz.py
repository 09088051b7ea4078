"""A fixed few cases of every fuzzer in each test run. What they ever found is kept as tests beside what it was found in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fuzzing
import pytest

# As many as take a few seconds; a fault is reproduced by its number.
CASES = {"loaders": 200, "loss": 400, "resume": 3, "specs": 1500, "wrong_calls": 1000}


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.names())
def test_no_case_is_a_fault(name: str) -> None:
    found = list(fuzzing.verdicts(name, 0, cases=CASES[name]))
    faults = [f"{number}: {verdict}" for number, verdict in found if verdict.kind in fuzzing.FAULTS]
    assert not faults, "\n".join(faults)
    # A fuzzer that refuses everything, or nothing, tries nothing.
    for kind, rare in (("right", name == "wrong_calls"), ("refused", name == "resume")):
        assert rare or sum(verdict.kind == kind for _, verdict in found) > CASES[name] / 20


@pytest.mark.slow
def test_the_driver_prints_what_it_tried_and_how_to_try_it_again(tmp_path: Path) -> None:
    program = Path(__file__).with_name("run.py")
    done = subprocess.run(
        [sys.executable, program, "specs", "--cases", "5", "--seed", "3"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("specs: 5 cases: ")
    assert not list(tmp_path.iterdir())
    timed = subprocess.run([sys.executable, program, "specs", "--seconds", "0.5"], capture_output=True, text=True, timeout=60)
    assert timed.stdout.startswith("specs: "), timed.stderr
    unknown = subprocess.run([sys.executable, program, "nothing"], capture_output=True, text=True, cwd=tmp_path)
    assert unknown.returncode == 2
    assert "no fuzzer nothing; there are loaders, loss, resume, specs" in unknown.stderr
