"""What the packaging tests share: the checkout, the files of the product, and Python in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Python = Callable[..., str]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def product_files() -> list[str]:
    """Paths, relative to the top, of all files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def source_tree(tmp_path_factory: pytest.TempPathFactory, product_files: list[str]) -> Path:
    """A copy of the product without anything that a working checkout collects, to build from."""
    tree = tmp_path_factory.mktemp("source")
    for name in product_files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    return tree


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Runs Python outside of the checkout, with the given words and environment, and returns what it prints."""

    def run(*words: str | Path, status: int = 0, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            check=False,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
