"""`make release`: its steps in order, with a script in the place of Python, pip and twine that notes the words it is given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

STEPS = (
    "python -m build --outdir dist",
    "twine check --strict dist/a.tar.gz dist/a.whl",
    *(
        step
        for file in ("a.tar.gz", "a.whl")
        for step in ("python -m venv", f"pip install -q -c constraints.txt ROOT/dist/{file}", "python .ci/readme.py python")
    ),
)
PROGRAM = """\
#!/usr/bin/env bash
words="$(basename "$0") $*"
echo "$words" >> "$NOTES"
[[ -z "$FAIL" || "$words" != *"$FAIL"* ]] || exit 3
case "$words" in
    "python -m build"*) mkdir dist && touch dist/a.whl dist/a.tar.gz ;;
    "python -m venv"*)
        mkdir -p "${!#}/bin"
        for name in python pip; do ln -sf "$(realpath "$0")" "${!#}/bin/$name"; done ;;
esac
"""


def release(root: Path, tree: Path, fail: str = "") -> tuple[int, list[str]]:
    """Runs `make release` in a tree of nothing else, and returns its status and the words of the programs that it started."""
    programs = tree / ".venv" / "bin"
    programs.mkdir(parents=True)
    (tree / ".ci").mkdir()
    shutil.copy2(root / ".ci" / "release", tree / ".ci")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(root / name, tree)
    for name in ("python", "twine"):
        (programs / name).write_text(PROGRAM, encoding="utf-8")
        (programs / name).chmod(0o755)
    (tree / ".venv" / "dev.stamp").touch()  # newer than pyproject.toml: nothing is installed
    (tree / "dist").mkdir()
    (tree / "dist" / "of-before.whl").touch()
    notes = tree / "notes"
    environment = {**os.environ, "NOTES": str(notes), "FAIL": fail, "TMPDIR": str(tree)}
    done = subprocess.run(
        ["make", "release"], cwd=tree, env=environment, capture_output=True, check=False, text=True, timeout=60
    )
    return done.returncode, notes.read_text(encoding="utf-8").replace(str(tree), "ROOT").splitlines()


def test_both_distributions_are_built_checked_installed_and_tried(root: Path, tmp_path: Path) -> None:
    status, steps = release(root, tmp_path)
    assert status == 0
    assert len(steps) == len(STEPS)
    assert all(step.startswith(wanted) for step, wanted in zip(steps, STEPS, strict=True)), steps
    assert list(tmp_path.glob("tmp.*")) == [], "environments are removed"


@pytest.mark.parametrize("failing", [number for number, step in enumerate(STEPS) if step not in STEPS[:number]])
def test_the_first_failure_ends_it(root: Path, tmp_path: Path, failing: int) -> None:
    status, steps = release(root, tmp_path, STEPS[failing].replace("ROOT", str(tmp_path)))
    assert status != 0
    assert len(steps) == failing + 1


def test_nothing_uploads(root: Path) -> None:
    for name in ("Makefile", ".ci/release"):
        assert not re.search(r"twine upload|publish|git push", (root / name).read_text(encoding="utf-8")), name
