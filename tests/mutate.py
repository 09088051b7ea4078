"""Changes the code of the core in one place at a time and runs its tests: ``python tests/mutate.py --help``.

Prints a line for every change, ``caught`` with the test that failed or ``survived``, and a count at the end. The changes follow
from the seed and the code alone, so that two revisions of the tests can be compared. Some changes are none (an optimisation
that is left out, a bound that is never reached): no set of tests catches all of them.
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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MUTATED = ("engine/*.py", "strategies/*.py", "objectives/*.py", "loss.py", "layouts.py", "roles.py")
QUICK = (
    "tests/unit/test_objectives.py tests/unit/test_strategies.py tests/unit/test_loss.py tests/parity/test_engine_statistics.py"
)
# Tests of commands, plugins and options fail with none of the changes.
OTHERS = "arguments cli* metrics options registry* search shell triton_plan"
ALL = f"tests/parity tests/unit tests/properties {' '.join(f'--ignore-glob=*/test_{each}.py' for each in OTHERS.split())}"
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
            if (
                isinstance(node, ast.AST)
                and name not in ("annotation", "returns")
                and not isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)
                and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            ):
                yield node
                yield from nodes(node)


def changed(node: Any) -> Any:
    """The node with a fault, or None where there is none to make."""
    other = copy.deepcopy(node)
    match node:
        case ast.Compare() if type(node.ops[0]) in OTHER:
            other.ops[0] = OTHER[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHER:
            other.op = OTHER[type(node.op)]()
        case ast.Constant(bool()):
            other.value = not node.value
        case ast.Constant(value=int() | float() as number):
            other.value = number + 1
        case ast.If() | ast.IfExp() | ast.While():
            other.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Call(args=[first, second, *_]) if ast.dump(first) != ast.dump(second):
            other.args[:2] = [second, first]
        case ast.Expr(ast.Constant()):
            return None
        case ast.Expr() | ast.Assign() | ast.Return() | ast.Raise():
            return ast.Pass()
        case _:
            return None
    return other


def faults(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line of every fault that a file can have, what it is, and the text of the file with it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in nodes(tree):
        fault = changed(node)
        if fault is not None:
            kept, line = (dict(vars(node)), node.__class__), node.lineno
            before, after = (ast.unparse(each).partition("\n")[0] for each in (node, fault))
            node.__dict__, node.__class__ = vars(fault), fault.__class__
            yield line, f"{before}  ->  {after}", ast.unparse(tree)
            node.__dict__, node.__class__ = kept


def failing(tree: Path, groups: list[str], limit: float) -> str:
    """The first test that fails, or an empty text; a run without end is a failure too."""
    paths = os.pathsep.join(str(tree / each) for each in ("", "adapters", "benchmarks"))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    for group in groups:
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *group.split()]
        try:
            done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"no end in {limit:.0f} s"
        if done.returncode:
            found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return found[1] if found else f"status {done.returncode}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the tests of the core against code with one fault at a time.")
    parser.add_argument("groups", nargs="*", default=[QUICK, ALL], help="what pytest is run with, until one of them fails")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tempplug-mutate-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "outputs", "__pycache__"))
        start = time.monotonic()
        if found := failing(tree, flags.groups, 3600):
            raise SystemExit(f"error: a test fails without any fault: {found}")
        seconds = time.monotonic() - start
        print(f"{seconds:.0f} s without a fault", flush=True)
        files = sorted(path for pattern in MUTATED for path in (tree / "tempplug").glob(pattern))
        every = [(path, *fault) for path in files for fault in faults(path)]
        chosen = random.Random(flags.seed).sample(every, flags.count)
        caught = 0
        for path, line, what, text in chosen:
            whole = path.read_text(encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            found = failing(tree, flags.groups, 60 + 3 * seconds)
            path.write_text(whole, encoding="utf-8")
            caught += bool(found)
            print(f"{'caught' if found else 'survived':8} {path.relative_to(tree)}:{line}: {what}  {found}", flush=True)
        print(f"{caught} of {len(chosen)} caught")


if __name__ == "__main__":
    main()
