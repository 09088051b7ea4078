"""No two modules of the benchmarks need each other, wherever they import: at the top, in a function, or for types alone."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import tempplug_benchmarks

ROOT = Path(tempplug_benchmarks.__file__).parent


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_form_no_circle() -> None:
    files = {name_of(file): file for file in ROOT.rglob("*.py")}
    needed: dict[str, set[str]] = {}
    for name, file in files.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                found |= inner or {node.module} & files.keys()
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & files.keys()
        needed[name] = found - {name}
    assert sum(map(len, needed.values())) > 100
    order = tuple(TopologicalSorter(needed).static_order())  # raises CycleError, which names the circle
    assert len(order) == len(files)
