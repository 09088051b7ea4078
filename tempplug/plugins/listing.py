"""Packages that list themselves: ``tempplug.strategies()`` and ``tempplug.objectives()``. Imports no torch.

The public names are both packages and functions, and a function of that name would hide the package; so the package is
made callable.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from tempplug.plugins.info import Info
from tempplug.plugins.manager import registry


def make_listing(package: str, kind: type[Info]) -> None:
    """Makes an imported package callable: it returns the declarations of a kind, built in or from plugins.

    Args:
        package: its import name.
        kind: what it lists.
    """

    class Listing(types.ModuleType):
        def __call__(self) -> list[Any]:
            return registry().all(kind)

    sys.modules[package].__class__ = Listing
