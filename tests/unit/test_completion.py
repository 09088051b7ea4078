"""Completion in a shell, by argcomplete's protocol: the line in the environment, what goes on in a file, and nothing is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete")

OPTIONS = "--temperature-strategy --temperature-args --temperature-learning-rate"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tempplug pl", "plot plugins"),
        ("tempplug train sim", "simclr simcse simsiam"),
        ("tempplug list o", "objectives"),
        ("tempplug show mac", "macl"),
        ("tempplug train simclr --temp", OPTIONS),
        ("tempplug train simclr --dataset digits --temp", OPTIONS),
        ("tempplug train simclr --optimizer ad", "adam adamw"),
        ("tempplug train simclr --temperature-strategy dy", "dystress"),
        ("tempplug bench r", "run report"),
        ("tempplug train nothing --", ""),
    ],
)
def test_a_line_is_completed(tmp_path: Path, line: str, offered: str) -> None:
    file = tmp_path / "offered"
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tempplug.cli"],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert sorted(file.read_text().split()) == sorted(offered.split())
    assert list(tmp_path.iterdir()) == [file]
