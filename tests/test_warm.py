"""What a process of `warm` shares with one of the interpreter: words, files, folder, paths, environment, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("warm"),
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="there is no server but on Linux"),
]

SAYS = """
import os, sys, toy
print(sys.argv, sys.path[0], __name__, __file__, os.getcwd(), sys.stdin.read(), toy.__file__, os.environ["TOY"])
print("transformers" in sys.modules, "tempplug" in sys.modules, file=sys.stderr)
"""
ENDS = [
    ("sys.exit(3)", 3),
    ("sys.exit('words')", 1),
    ("sys.exit()", 0),
    ("1 / 0", 1),
    ("os.kill(os.getpid(), 9)", -9),
    ("atexit.register(print, 'last', end='')", 0),
]


def test_a_process_is_that_of_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "toy.py").write_text("")
    environment = {**os.environ, "TOY": "é\udc80", "PYTHONPATH": str(tmp_path), "PYTHONIOENCODING": ":surrogateescape"}
    words = [str(tmp_path / "says.py"), "-x", "two words"]
    ours, plain = (
        subprocess.run([python, *words], input=b"typed", capture_output=True, env=environment, cwd=tmp_path, check=True)
        for python in (os.environ["PYTHON_EXEC"], sys.executable)
    )
    assert (ours.stdout, ours.stderr, plain.stderr) == (plain.stdout, b"True False\n", b"False False\n")


@pytest.mark.parametrize(("code", "status"), ENDS)
def test_it_ends_as_that_of_the_interpreter(code: str, status: int) -> None:
    words = ["-c", f"import atexit, os, sys; {code}"]
    ours, plain = (
        subprocess.run([python, *words], capture_output=True, text=True, check=False)
        for python in (os.environ["PYTHON_EXEC"], sys.executable)
    )
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout) == (status, "last" if "last" in code else "")
    assert ours.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_each_draws_numbers_of_its_own() -> None:
    words = [
        os.environ["PYTHON_EXEC"],
        "-c",
        "import random, numpy, torch; print(random.random(), numpy.random.rand(), *torch.rand(1))",
    ]
    first, second = (subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() for _ in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_it(number: int) -> None:
    words = [os.environ["PYTHON_EXEC"], "-u", "-c", "import time; print('begun'); time.sleep(300)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(number)
        assert program.communicate(timeout=60) == ("", None), "neither has it open any more"
        assert program.returncode == -number
