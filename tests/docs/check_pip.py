"""Refuses a ``pip install`` of documentation that names an extra of tempplug, or a file, that does not exist."""

from __future__ import annotations

import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def faults(words: list[str]) -> list[str]:
    """What is wrong with the words behind ``pip``: unknown extras, constraint files that are not there.

    >>> faults(["install", "tempplug[nothing]"])
    ["tempplug has no extra 'nothing'"]
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if words[:1] != ["install"]:
        return [f"pip {' '.join(words)} is not an installation"]
    named = [re.fullmatch(r"(?:tempplug|\.)\[([\w,-]+)\]", word) for word in words]
    wrong = [
        f"tempplug has no extra {each!r}" for match in named if match for each in match[1].split(",") if each not in extras
    ]
    files = [file for flag, file in pairwise(words) if flag == "-c"]
    return wrong + [f"there is no file {file}" for file in files if not (ROOT / file).is_file()]


if __name__ == "__main__":
    sys.exit("\n".join(faults(sys.argv[1:])) or 0)
