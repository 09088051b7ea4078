"""The gallery's pictures are what the library draws now, and each strategy has one."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from snippets import ROOT

from tempplug.plugins import Registry, StrategyInfo

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# of the 200 units that a panel is high: what another processor's rounding may move, and nobody sees
MOVED = 1.5


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    """What the script holds, without its writing of files."""
    return runpy.run_path(str(ROOT / "docs" / "tools" / "curves.py"))


@pytest.fixture(scope="module")
def pictures(drawn: dict[str, Any]) -> dict[str, Any]:
    """The panels of every strategy, asked of the library now."""
    found: dict[str, Any] = drawn["pictures"]()
    return found


def test_every_strategy_has_a_picture_and_a_heading(drawn: dict[str, Any], pictures: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    names = [info.name for info in Registry().all(StrategyInfo)]
    assert set(pictures) == set(names)
    for name in names:
        assert f"\n## {name}\n" in page
        assert f"(images/strategies/{name}.svg)" in page
    assert {file.stem for file in Path(drawn["FOLDER"]).iterdir()} == set(names)


def test_the_pictures_show_what_the_library_does_now(drawn: dict[str, Any], pictures: dict[str, Any]) -> None:
    for name, panels in pictures.items():
        there = (drawn["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8")
        now = drawn["svg"](panels)
        assert NUMBER.sub("0", there) == NUMBER.sub("0", now), f"python docs/tools/curves.py draws {name} anew"
        numbers = [[float(each) for each in NUMBER.findall(text)] for text in (there, now)]
        assert numbers[0] == pytest.approx(numbers[1], abs=MOVED), name
