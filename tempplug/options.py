"""What an option of a strategy or an objective may be, declared once in its ``__init__`` signature.

``temperature: Annotated[float, Number(above=0)] = 0.1`` serves the check at construction, ``tempplug show`` and the
reading of spec strings. This module must not know any strategy, and needs no torch.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints

from tempplug.errors import ConfigError


@dataclass(frozen=True)
class Number:
    """A finite number inside a range; ``bool`` is not a number."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    integer: bool = False
    optional: bool = False
    help: str = ""

    def describe(self) -> str:
        """Returns the range in words, as error messages and ``tempplug show`` print it."""
        bounds = [
            ("greater than", self.above),
            ("at least", self.at_least),
            ("less than", self.below),
            ("at most", self.at_most),
        ]
        words = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        return words or ("an integer" if self.integer else "finite")

    def check(self, where: str, value: object) -> float | int | None:
        """Returns the value as ``float`` (``int`` for an integer option), or raises `ConfigError` naming ``where``."""
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where} must be {'an integer' if self.integer else 'a number'}.")
        if self.integer and value != int(value):
            raise ConfigError(f"{where} must be an integer.")
        outside = (
            not math.isfinite(value)
            or (self.above is not None and not value > self.above)
            or (self.at_least is not None and not value >= self.at_least)
            or (self.below is not None and not value < self.below)
            or (self.at_most is not None and not value <= self.at_most)
        )
        if outside:
            raise ConfigError(f"{where} must be {self.describe()}.")
        return int(value) if self.integer else float(value)


@dataclass(frozen=True)
class Choice:
    """One word of a fixed list."""

    values: tuple[str, ...]
    help: str = ""

    def describe(self) -> str:
        """Returns the allowed words."""
        return "one of " + ", ".join(self.values)

    def check(self, where: str, value: object) -> str:
        """Returns the word, or raises `ConfigError` naming ``where``."""
        if not isinstance(value, str) or value not in self.values:
            raise ConfigError(f"{where} must be {self.describe()}.")
        return value


@dataclass(frozen=True)
class Flag:
    """True or false."""

    help: str = ""

    def describe(self) -> str:
        """Returns the two values."""
        return "true or false"

    def check(self, where: str, value: object) -> bool:
        """Returns the flag, or raises `ConfigError` naming ``where``."""
        if not isinstance(value, bool):
            raise ConfigError(f"{where} must be true or false.")
        return value


@dataclass(frozen=True)
class Numbers:
    """A list of numbers, written ``450/270/162`` in a spec string."""

    item: Number = Number()
    minimum_length: int = 1
    or_number: bool = False
    optional: bool = False
    help: str = ""

    def describe(self) -> str:
        """Returns the length and the range of the items in words."""
        words = f"{self.minimum_length} or more numbers, each {self.item.describe()}"
        return f"a number or {words}" if self.or_number else words

    def check(self, where: str, value: object) -> tuple[float | int, ...] | float | int | None:
        """Returns the numbers as a tuple, or raises `ConfigError` naming ``where``."""
        if value is None and self.optional:
            return None
        if self.or_number and isinstance(value, int | float):
            return self.item.check(where, value)
        if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
            raise ConfigError(f"{where} must be {self.describe()}.")
        if len(value) < self.minimum_length:
            raise ConfigError(f"{where} must be {self.describe()}.")
        items = sorted(value) if isinstance(value, set | frozenset) else value
        checked = [self.item.check(f"{where}, item {position},", item) for position, item in enumerate(items)]
        return tuple(item for item in checked if item is not None)


Kind = Number | Choice | Flag | Numbers


@dataclass(frozen=True)
class Option:
    """One option of a strategy or an objective: its name, default and kind (None where the author declared none)."""

    name: str
    default: Any
    required: bool
    kind: Kind | None


def options_of(target: type) -> tuple[Option, ...]:
    """Returns the options that the constructor of ``target`` takes, in order.

    Args:
        target: a class whose ``__init__`` annotates its options with ``Annotated[type, Number(...)]`` and its like.
    """
    constructor = next(vars(base)["__init__"] for base in target.__mro__ if "__init__" in vars(base))
    hints = get_type_hints(constructor, include_extras=True)
    found = []
    for parameter in list(inspect.signature(constructor).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        metadata = getattr(hints.get(parameter.name), "__metadata__", ())
        kind = next((item for item in metadata if isinstance(item, Kind)), None)
        required = parameter.default is parameter.empty
        found.append(Option(parameter.name, None if required else parameter.default, required, kind))
    return tuple(found)


def format_value(value: object) -> str:
    """Returns a value as a spec string writes it: ``true``, ``none``, ``450/270``, ``0.05``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return "/".join(format_value(item) for item in value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


class Configured:
    """Mixin of strategies and objectives: checks the options of the constructor and keeps them as attributes."""

    kind: ClassVar[str] = "object"
    name: ClassVar[str] = ""
    options: dict[str, Any]

    def configure(self, **values: object) -> None:
        """Checks every option against its declared range and sets it as an attribute of the same name.

        Raises:
            ConfigError: an option is of the wrong type or out of range; the message names it, its value and the range.
        """
        self.options = {}
        for option in options_of(type(self)):
            if option.name not in values:
                continue
            value = values[option.name]
            if option.kind is not None:
                value = option.kind.check(self.where(option.name, value), value)
            self.options[option.name] = value
            setattr(self, option.name, value)

    def where(self, option: str, value: object) -> str:
        """Returns ``option=value of kind 'name'``, the start of every message about an option."""
        return f"{option}={format_value(value)} of {self.kind} '{self.name or type(self).__name__}'"

    def spec(self) -> str:
        """Returns the resolved spec string, every option written out: ``create_strategy(s.spec())`` rebuilds it."""
        written = ",".join(f"{key}={format_value(value)}" for key, value in getattr(self, "options", {}).items())
        return f"{self.name}:{written}" if written else self.name
