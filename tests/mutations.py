"""Runs the tests of the core against code with one fault at a time: ``python tests/mutations.py --help``.

The faults follow from the seed and the code alone, so that two revisions of the tests can be compared. Some faults change no
result (an optimisation that is left out, a bound that is never reached): no set of tests catches all of them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The tests that run first for a file of each folder, beside the unit tests of its own name; then all tests of the core.
FIRST = {
    "engine": "parity/test_engine_statistics unit/test_tiles unit/test_gemm unit/test_threads",
    "strategies": "unit/test_strategies unit/test_map_forms parity/test_elementwise_tables parity/test_engine_statistics",
    "objectives": "unit/test_objectives unit/test_sogclr unit/test_loss parity/test_sigmoid",
    "negatives": "unit/test_negatives unit/test_loss",
}
# Tests of commands, plugins and options fail with none of the faults.
OTHERS = "arguments cli* metrics options registry* search shell triton_plan fsdp"
ALL = ["tests/parity", "tests/properties", "tests/unit", *(f"--ignore-glob=*/test_{each}.py" for each in OTHERS.split())]
OTHER: dict[type[ast.AST], type[Any]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult, ast.Mod: ast.Mult},
}


def nodes(parent: ast.AST) -> Iterator[Any]:
    """The nodes that run with a call, without annotations, texts and what only type checkers read."""
    for name, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            left_out = name in ("annotation", "returns") or isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)
            if isinstance(node, ast.AST) and not left_out and "TYPE_CHECKING" not in ast.unparse(node).partition("\n")[0]:
                yield node
                yield from nodes(node)


def changed(node: Any) -> Iterator[Any]:
    other = copy.deepcopy(node)
    match node:
        case ast.Compare() if type(node.ops[0]) in OTHER:
            other.ops[0] = OTHER[type(node.ops[0])]()
            yield other
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHER:
            other.op = OTHER[type(node.op)]()
            yield other
            if isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
                yield getattr(node, "left", ast.Pass())
        case ast.Constant(bool() | int() | float() as value):
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            other.test = ast.UnaryOp(ast.Not(), node.test)
            yield other
        case ast.Expr(ast.Constant()):
            pass
        case ast.Expr() | ast.Assign() | ast.Return() | ast.Raise():
            yield ast.Pass()


def faults(path: Path) -> Iterator[tuple[Path, int, str, str]]:
    """Every fault that a file can have: its line, what it is, and the text of the file with it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in list(nodes(tree)):
        for fault in changed(node):
            kept, line = (dict(vars(node)), node.__class__), node.lineno
            before, after = (ast.unparse(each).partition("\n")[0] for each in (node, fault))
            node.__dict__, node.__class__ = dict(vars(fault)), fault.__class__
            yield path, line, f"{before}  ->  {after}", ast.unparse(tree)
            node.__dict__, node.__class__ = kept


def failing(tree: Path, folder: str, stem: str = "*") -> str:
    """The first test that fails, or an empty text; a run without end is a failure too."""
    first = [f"tests/{each}.py" for each in f"{FIRST[folder]} unit/test_{stem}".split() if (tree / f"tests/{each}.py").exists()]
    for group in (first, ALL):
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *group]
        environment = os.environ | {"PYTHONPATH": f"{tree}:{tree}/adapters:{tree}/benchmarks", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode:
            found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return found[1] if found else f"status {done.returncode}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tempplug-mutations-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "outputs", "__pycache__"))
        every = [fault for each in FIRST for path in sorted((tree / "tempplug" / each).glob("*.py")) for fault in faults(path)]
        caught = 0
        for path, line, what, text in random.Random(flags.seed).sample(every, flags.count):
            whole = path.read_text(encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            found = failing(tree, path.parent.name, path.stem)
            path.write_text(whole, encoding="utf-8")
            caught += bool(found)
            print(f"{'caught' if found else 'survived':8} {path.relative_to(tree)}:{line}: {what}  {found}", flush=True)
        print(f"{caught} of {flags.count} caught; {len(every)} faults can be made")


if __name__ == "__main__":
    main()
