"""The page on columns has the roles that the modules declare, with their usual names."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from snippets import ROOT

PAGE = ROOT / "docs" / "data.md"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "tools" / "role_tables.py"))


def test_its_tables_are_the_declared_ones(tool: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tool["rewritten"](text) == text, "the tables are stale: run `python docs/tools/role_tables.py`"


def test_it_has_every_role_that_a_module_declares(tool: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = {(role.name, role.names) for found in tool["MARKER"].finditer(text) for role in tool["shown"](found[2])}
    missing = [f"{place} ({role.name})" for place, role in tool["declared"]() if (role.name, role.names) not in shown]
    assert missing == [], "write `<!-- roles MODULE:NAME -->` into docs/data.md and run `python docs/tools/role_tables.py`"


def test_a_name_that_is_new_makes_the_tables_stale(tool: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from tempplug_adapters.data_files import text_roles

    monkeypatch.setattr(text_roles, "TEXTS", text_roles.TEXTS[:-1])
    text = PAGE.read_text(encoding="utf-8")
    assert tool["rewritten"](text) != text


def test_a_role_in_a_function_is_found(tool: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("def roles():\n    return Role('x', (), ())\n")
    declared = tool["declared"]
    declared.__globals__["PACKAGE"] = tmp_path
    with pytest.raises(ValueError, match=r"part\.py, line 2: declare the role as a constant of the module"):
        list(declared())
