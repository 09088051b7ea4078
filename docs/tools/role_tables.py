"""Writes the tables of usual column names in ``docs/data.md`` anew: ``python docs/tools/role_tables.py``.

A table follows ``<!-- roles MODULE:NAME -->``, where NAME of ``tempplug_adapters.MODULE`` is a `Role` or a tuple of them;
several are separated by blanks. A test writes the tables again, and looks for roles that the page lacks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import tempplug_adapters
from tempplug_adapters.data_files.roles import Role

PAGE = Path(__file__).resolve().parents[1] / "data.md"
PACKAGE = Path(tempplug_adapters.__file__).parent
MARKER = re.compile(r"(<!-- roles ([\w.: ]+) -->\n\n)(?:\|[^\n]*\n)*\n*")


def rewritten(text: str) -> str:
    """Returns the page with the tables as the declarations are now."""
    return MARKER.sub(lambda found: found[1] + "\n".join(_rows(shown(found[2]))) + "\n\n", text)


def shown(names: str) -> list[Role]:
    """Returns the roles of ``MODULE:NAME``, or of several with blanks between them."""
    roles: list[Role] = []
    for each in names.split():
        module, _, name = each.partition(":")
        value = getattr(import_module(f"tempplug_adapters.{module}"), name)
        roles.extend([value] if isinstance(value, Role) else value)
    return roles


def _rows(roles: list[Role]) -> list[str]:
    rows = ["| role | columns | holds | usual names |", "| :-- | :-- | :-- | :-- |"]
    for role in roles:
        number = "any number" if role.many else "one" if role.required else "one or none"
        names = ", ".join(f"`{name}`" for name in role.names) or "none"
        rows.append(f"| `{role.name}` | {number} | {', '.join(role.kinds)} | {names} |")
    return rows


def declared() -> Iterator[tuple[str, Role]]:
    """Yields the place and the value of each role that a module of the adapters declares.

    Raises:
        ValueError: a role is made where nobody can find it, in a function.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for statement in tree.body:
            made = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Role"]
            if made and not isinstance(statement, ast.Assign | ast.AnnAssign):
                raise ValueError(f"{path}, line {made[0].lineno}: declare the role as a constant of the module.")
            if made:
                name = ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
                yield from ((f"{module}:{name}", role) for role in shown(f"{module}:{name}"))


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
