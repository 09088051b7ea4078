"""The plans of all studies as a table."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path


def plan_rows(studies: Path) -> list[Sequence[str]]:
    """Returns a row for each plan ``NAME/plans/*.toml`` of this folder, the oldest first, after a header."""
    found = []
    for file in sorted(studies.glob("*/plans/*.toml")):
        plan, study = tomllib.loads(file.read_text(encoding="utf-8")), file.parents[1].name
        question = f"[{file.stem}]({study}/plans/{file.name}): {plan['question']}"
        found.append((f"[{study}]({study}/README.md)", question, str(plan["date"])))
    return [("study", "plan and its question", "fixed on"), *sorted(found, key=itemgetter(2))]
