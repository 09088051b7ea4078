"""A name says what its value is: the package hardly binds names that fit any value."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tempplug

FILLERS = frozenset(
    {
        "apart",
        "at",
        "bare",
        "blame",
        "each",
        "found",
        "fresh",
        "given",
        "hidden",
        "kept",
        "more",
        "narrow",
        "own",
        "part",
        "within",
    }
)
MOST = 0.01


def bound_names(source: str) -> Iterator[str]:
    """Yields the names that a module binds: variables, arguments, attributes, functions, classes, imports and exceptions."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name


def test_few_names_fit_any_value() -> None:
    files = sorted(Path(tempplug.__file__).parent.rglob("*.py"))
    names = {file: Counter(bound_names(file.read_text(encoding="utf-8"))) for file in files}
    total = sum(counts.total() for counts in names.values())
    fillers = {file: {name: counts[name] for name in sorted(FILLERS & counts.keys())} for file, counts in names.items()}
    count = sum(sum(counts.values()) for counts in fillers.values())
    where = "\n".join(f"{file}: {counts}" for file, counts in fillers.items() if counts)
    assert total > 5000
    assert count <= MOST * total, f"{count} of {total} bindings are named after nothing:\n{where}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("given: int = 1", ["given"]),
        ("self.kept, own[0] = 1, 2", ["kept"]),
        ("def part(each, *more, at=found, **own): ...", ["at", "each", "more", "own", "part"]),
        ("class fresh: ...", ["fresh"]),
        ("[each for each in found]", ["each"]),
        ("lambda each: each", ["each"]),
        ("if (narrow := found): ...", ["narrow"]),
        ("with given as bare: ...", ["bare"]),
        ("import given as hidden, found", ["hidden"]),
        ("try: ...\nexcept given as blame: ...", ["blame"]),
        ("match given:\n    case [found, *more]: ...\n    case {'own': kept, **part}: ...", ["found", "kept", "more", "part"]),
        ("given.own(each=found)", []),
    ],
)
def test_every_binding_is_counted(source: str, names: list[str]) -> None:
    assert sorted(bound_names(source)) == names
