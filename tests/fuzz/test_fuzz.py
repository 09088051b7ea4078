"""A fixed few cases of every fuzzer in each test run. What they ever found is kept as tests beside what it was found in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import fuzzing
import pytest

# As many as take a few seconds; a fault is reproduced by its number.
CASES = {"loaders": 100, "loss": 200, "resume": 2, "specs": 700, "wrong_calls": 500}


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.NAMES)
def test_no_case_is_a_fault(name: str) -> None:
    found = [(number, fuzzing.verdict(name, number)) for number in range(CASES[name])]
    faults = [f"{number}: {verdict}" for number, verdict in found if verdict.kind in fuzzing.FAULTS]
    assert not faults, "\n".join(faults)
    # A fuzzer that refuses everything, or nothing, tries nothing.
    for kind, rare in (("right", name == "wrong_calls"), ("refused", name == "resume")):
        assert rare or sum(verdict.kind == kind for _, verdict in found) > CASES[name] / 20


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_driver_prints_what_it_tried_and_how_to_try_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = [os.environ["PYTHON_EXEC"], Path(__file__).with_name("run.py"), "specs", "--seconds", "0.5"]
    timed = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (timed.returncode, timed.stderr) == (0, "")
    assert timed.stdout.startswith("specs: ")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(fuzzing, "verdict", lambda name, number: fuzzing.Verdict("wrong" if number == 4 else "right", "x", "y"))
    assert fuzzing.main(["specs", "--cases", "3", "--seed", "3"]) == 1
    again = "wrong: x\n    y\n    python tests/fuzz/run.py specs --seed 4 --cases 1\n"
    assert capsys.readouterr().out == f"{again}specs: 3 cases: 2 right, 0 refused, 0 silent, 0 obscure, 1 wrong\n"
    with pytest.raises(SystemExit, match="2"):
        fuzzing.main(["nothing"])
    assert "no fuzzer nothing; there are loaders, loss, resume, specs" in capsys.readouterr().err
