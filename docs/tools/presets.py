"""Writes the table of ``docs/presets.md``. Run it after a change of a preset: ``python docs/tools/presets.py``.

A test compares the table with the page.
"""

from __future__ import annotations

from pathlib import Path

import tempplug

PAGE = Path(__file__).resolve().parents[1] / "presets.md"
HEAD = "| preset | loss | batch | the call also needs | source |\n|---|---|---|---|---|\n"


def table() -> str:
    """Returns the table, one row a preset."""
    rows = []
    for each in tempplug.presets():
        needs = ", ".join(f"`{name}`" for name in each.needs)
        source = each.source + (f". {each.note[0].upper()}{each.note[1:]}" if each.note else "")
        rows.append(f"| `{each.name}` | `{each.loss()}` | {each.batch} | {needs} | {source} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    before, _, after = PAGE.read_text(encoding="utf-8").partition(HEAD)
    PAGE.write_text(before + table() + after[after.index("\n\n") + 1 :], encoding="utf-8")
