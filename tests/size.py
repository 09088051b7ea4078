"""Size of the tree by package: ``python tests/size.py [REVISION]`` prints lines of code and docstrings, modules and tests.

A line of code is one that is no blank, comment, docstring or import. A module with one importer is one that a single other
module of the product names in its imports.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator

PRODUCT = ("tempplug", "adapters", "benchmarks")
STUDIES = "benchmarks/studies/"
"""No part of the product; a row of its own."""
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def sources(revision: str) -> Iterator[tuple[str, str]]:
    """The path and the text of every Python file of a revision."""
    for path in git("ls-tree", "-r", "--name-only", revision).splitlines():
        if path.endswith(".py") and path.startswith((*(f"{each}/" for each in PRODUCT), "docs/", "tests/")):
            yield path, git("show", f"{revision}:{path}")


def lines_of(*nodes: ast.stmt) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def measure(text: str) -> tuple[Counter[str], set[str]]:
    """How many lines of each kind a file has, and the modules that it imports."""
    docstrings: set[int] = set()
    imports: set[int] = set()
    names: set[str] = set()
    tests = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstrings |= lines_of(*filter(is_text, node.body[:1]))
            tests += node.name.startswith("test_")
        elif isinstance(node, ast.Module | ast.ClassDef):
            docstrings |= lines_of(*filter(is_text, node.body))
        elif isinstance(node, ast.Import):
            imports |= lines_of(node)
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= lines_of(node)
            names |= {node.module or "", *(f"{node.module}.{each.name}" for each in node.names)}
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    counts = Counter(
        code=len(code - docstrings - imports), docstring=len(docstrings), all=text.count("\n"), modules=1, tests=tests
    )
    return counts, names


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    rows: dict[str, Counter[str]] = {}
    importers: dict[str, set[str]] = {}
    modules = {}
    for path, text in sources(revision):
        counts, names = measure(text)
        if path.endswith("__init__.py"):
            counts["modules"] = 0
        package = "studies" if path.startswith(STUDIES) else path.partition("/")[0]
        rows.setdefault(package, Counter()).update(counts)
        if package in PRODUCT and counts["modules"]:
            module = path.removeprefix("adapters/").removeprefix("benchmarks/").removesuffix(".py").replace("/", ".")
            modules[module] = package
            for name in names:
                importers.setdefault(name, set()).add(module)
    for module, package in modules.items():
        rows[package]["with one importer"] += len(importers.get(module, set()) - {module}) == 1
    columns = ("code", "docstring", "all", "modules", "with one importer", "tests")
    print(f"{'':12}" + "".join(f"{name:>19}" for name in columns))
    rows["product"] = sum((rows[each] for each in PRODUCT), Counter())
    for package, counts in sorted(rows.items()):
        print(f"{package:12}" + "".join(f"{counts[name]:19,}" for name in columns))


if __name__ == "__main__":
    main()
