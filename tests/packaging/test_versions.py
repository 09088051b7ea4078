"""`.ci/versions` over several Pythons, with scripts in the place of the interpreters: what is skipped or fails, and why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

NONE = "ERROR: Could not find a version that satisfies the requirement numpy==1.26.4 (from versions: none)"
OTHERS = NONE.replace("none", "1.3.0, 2.4.6")
PROGRAM = """\
#!/usr/bin/env bash
case "$*" in
    "-m venv "*)
        mkdir -p "$3/bin"
        for name in python pip; do ln -s "$(realpath "$0")" "$3/bin/$name"; done ;;
    "install "*) echo "$PIP" >&2; [ -z "$PIP" ] ;;
    .ci/readme.py) [ "$(command -v python)" = "$(dirname "$0")/python" ] ;;
    "-m pytest "*) exit "$TESTS" ;;
esac
"""


def versions(
    root: Path, tmp_path: Path, *words: str, pip: str = "", tests: int = 0, pythons: str = "3.11 3.12"
) -> tuple[int, list[str], str]:
    """Runs it where Python 3.11 is installed and 3.12 is not; returns its status, the rows of its table, and its errors."""
    (tmp_path / ".ci").mkdir()
    for name in ("versions", "oldest.txt", "newest.txt"):
        shutil.copy2(root / ".ci" / name, tmp_path / ".ci")
    (tmp_path / "bin").mkdir()
    for name, text in {"python3.11": PROGRAM, "python3.12": "#!/bin/sh\nexit 127\n"}.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    given = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONS": pythons, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [tmp_path / ".ci" / "versions", *words],
        env={**os.environ, **given, "PIP": pip, "TESTS": str(tests)},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert list(tmp_path.glob("tmp.*")) == [], "environments are removed"
    return done.returncode, re.findall(r"^\| 3.*", done.stdout, re.MULTILINE), done.stderr


@pytest.mark.parametrize(
    ("given", "status", "row"),
    [
        ({}, 0, "passed"),
        ({"tests": 1}, 1, "FAILED"),
        ({"pip": OTHERS}, 0, "skipped: no wheel of numpy==1.26.4"),
        ({"pip": NONE}, 1, "FAILED to install"),
        ({"pip": "ERROR: No space left on device"}, 1, "FAILED to install"),
    ],
    ids=["passed", "failed tests", "no wheel", "no index", "no space"],
)
def test_what_is_missing_is_skipped_with_the_reason_and_the_rest_fails(
    root: Path, tmp_path: Path, given: dict[str, str | int], status: int, row: str
) -> None:
    returned, rows, errors = versions(root, tmp_path, "oldest", **given)  # type: ignore[arg-type]
    assert rows == [f"| 3.11 | {row} |", "| 3.12 | skipped: python3.12 is not installed |"]
    assert returned == status
    assert (str(given.get("pip", "")) in errors) or "skipped" in row


def test_environments_are_kept_and_used_again(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for each in (tmp_path / "first", tmp_path / "second"):
        each.mkdir()
    assert versions(root, tmp_path / "first", "newest", str(kept), pythons="3.11")[:2] == (0, ["| 3.11 | passed |"])
    made = kept / "3.11" / "bin" / "python"
    assert made.exists()
    # nothing is installed the second time
    assert versions(root, tmp_path / "second", "newest", str(kept), pip="broken", pythons="3.11")[0] == 0


@pytest.mark.parametrize("words", [(), ("latest",)])
def test_other_words_are_answered_with_the_usage(root: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert versions(root, tmp_path, *words) == (2, [], "usage: .ci/versions oldest|newest [FOLDER]\n")


def test_classifiers_are_the_first_of_the_pythons(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    chosen = re.search(r"PYTHONS:-([\d. ]+)", (root / ".ci" / "versions").read_text(encoding="utf-8"))
    assert chosen is not None
    assert named
    assert named == chosen[1].split()[: len(named)]
    assert project["requires-python"] == f">={named[0]}"


def test_what_is_left_out_exists(root: Path) -> None:
    """pytest says nothing of a name that it does not find."""
    text = (root / ".ci" / "versions").read_text(encoding="utf-8")
    for variable, file in re.findall(r"(\w+)=(tests/\S+\.py)", text):
        text = text.replace(f"${variable}", file)
    tests = re.findall(r'--deselect "?(\S+?)::(test_\w+)', text)
    assert len(tests) > 5
    assert [name for file, name in tests if f"def {name}(" not in (root / file).read_text(encoding="utf-8")] == []
