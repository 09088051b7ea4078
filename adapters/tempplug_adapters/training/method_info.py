"""The declaration of a method (name, recipes, location of the code), for commands and suites that must not import it.

It must not import frameworks: ``--help`` and benchmark plans use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tempplug.errors import UnknownNameError, nearest
from tempplug_adapters.training.recipe import Recipe

if TYPE_CHECKING:
    from tempplug_adapters.training.method import Method


_COMMAND = "tempplug_adapters.training.command:main"
"""Imported when called, because a declaration must not import a higher layer."""


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Declares a method for ``tempplug train NAME`` and the benchmark suites; calling it runs the command.

    Attributes:
        name: name in commands.
        summary: what it trains and measures, one sentence.
        target: ``package.module:Class`` of the `Method`, imported on first use.
        recipes: settings of papers by name; the first is the default.
        datasets: help of ``--dataset``.
        default_dataset: default of ``--dataset``; None makes the flag required.
    """

    name: str
    summary: str
    target: str
    recipes: Mapping[str, Recipe]
    datasets: str
    default_dataset: str | None = None

    def recipe(self, name: str | None = None, **changes: Any) -> Recipe:
        """Returns a recipe, by default the first one, with changed settings; raises UnknownNameError and ConfigError."""
        name = next(iter(self.recipes)) if name is None else name
        if name not in self.recipes:
            known = ", ".join(self.recipes)
            raise UnknownNameError(f"{self.name} has no recipe '{name}'.{nearest(name, self.recipes)} Known: {known}.")
        return self.recipes[name].changed(**changes)

    def load(self) -> Method[Any, Any]:
        """Imports and returns the method."""
        method: Method[Any, Any] = _imported(self.target)(self)
        return method

    def __call__(self, arguments: list[str]) -> int:
        """Runs ``tempplug train NAME`` with these arguments and returns its exit status."""
        status: int = _imported(_COMMAND)(self, arguments)
        return status


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
