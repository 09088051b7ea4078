"""What an option may be, declared once: in the ``__init__`` of a strategy or an objective, or as a field of a recipe.

``temperature: Annotated[float, Number(above=0)] = 0.1`` serves the check at construction, ``tempplug show``, the reading of
spec strings, and the flags of training commands. This module must not know any strategy or recipe, and needs no torch.
"""

from __future__ import annotations

import inspect
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Real
from typing import Any, ClassVar, TypeVar, get_type_hints

from tempplug.errors import ConfigError, quoted, unknown

Built = TypeVar("Built")


@dataclass(frozen=True)
class Kind(ABC):
    """What an option may be.

    Attributes:
        optional: whether it may be None.
        help: its meaning, for ``tempplug show`` and flags.
    """

    optional: bool = field(default=False, kw_only=True)
    help: str = field(default="", kw_only=True)

    @abstractmethod
    def describe(self) -> str:
        """Returns the allowed values in words, as error messages and ``tempplug show`` print them."""

    @abstractmethod
    def example(self) -> Any:
        """Returns an allowed value, for the spec string that ``tempplug show`` prints."""

    def check(self, where: str, value: object) -> Any:
        """Returns the value in the type of the option, or raises `ConfigError` naming ``where``."""
        return None if value is None and self.optional else self._checked(where, value)

    @abstractmethod
    def _checked(self, where: str, value: Any) -> Any:
        """Returns what `check` does of a value that is not None, or of None where it is not allowed."""

    def _require(self, allowed: bool, where: str) -> None:
        if not allowed:
            raise ConfigError(f"{where} must be {self.describe()}.")


@dataclass(frozen=True)
class Number(Kind):
    """A finite number inside a range; ``bool`` is not a number, NumPy's scalars are.

    Attributes:
        search: the part of the range that is worth searching, both ends included; None: not searched. See
            `tempplug.search_space`.
        only_with: another option and the word of it that this one belongs to; with other words it must keep its default.
    """

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    integer: bool = False
    search: tuple[float, float] | None = None
    only_with: tuple[str, str] | None = None

    def _bounds(self) -> list[tuple[str, Callable[[float, float], bool], float]]:
        """Returns the bounds that there are, each with its words and its comparison."""
        bounds = [
            ("greater than", operator.gt, self.above),
            ("at least", operator.ge, self.at_least),
            ("less than", operator.lt, self.below),
            ("at most", operator.le, self.at_most),
        ]
        return [(word, holds, bound) for word, holds, bound in bounds if bound is not None]

    def describe(self) -> str:
        """Returns the range."""
        words = " and ".join(f"{word} {bound:g}" for word, _, bound in self._bounds())
        return ", ".join(filter(None, ["an integer", words])) if self.integer else words or "finite"

    def example(self) -> float:
        """Returns a number inside the range."""
        bounds = [bound for *_, bound in self._bounds()]
        beside = (*(bound + 1 for bound in bounds), *(bound - 1 for bound in bounds))
        middle = sum(bounds) / max(1, len(bounds))
        return next((number for number in (100 if self.integer else 1.0, *bounds, *beside) if self._holds(number)), middle)

    def _holds(self, number: float) -> bool:
        whole = not self.integer or number == math.floor(number)
        return whole and all(holds(number, bound) for _, holds, bound in self._bounds())

    def _checked(self, where: str, value: Any) -> float:
        # NumPy's scalars are no int or float, but they are registered as Real.
        if isinstance(value, bool) or not isinstance(value, int | float | Real):
            raise ConfigError(f"{where} must be {'an integer' if self.integer else 'a number'}.")
        try:
            number = float(value) + 0.0  # of -0 as well, which would be read back as 0
        except OverflowError:  # an int beyond the largest float
            number = math.inf
        self._require(math.isfinite(number) and self._holds(number), where)
        if not self.integer:
            return number
        return value if isinstance(value, int) else int(number)  # an int beyond 2^53 keeps its digits


MOMENT = Number(at_least=0, at_most=1e12)
"""Epochs done, or those of a whole training."""
# Between these, logits, their slopes (of order 1/τ²) and sums of them are finite in float32, whatever the other options are.
COLDEST, HOTTEST = 1e-9, 1e9


@dataclass(frozen=True)
class Temperature(Number):
    """A temperature, or 1/temperature, from `COLDEST` to `HOTTEST`; searched from 0.01 to 1, where nearly all of papers lie."""

    above: float | None = 0
    search: tuple[float, float] | None = (0.01, 1.0)

    def _checked(self, where: str, value: Any) -> float:
        number = super()._checked(where, value)
        if not COLDEST <= number <= HOTTEST:
            raise ConfigError(
                f"{where} must lie between {COLDEST:g} and {HOTTEST:g}: beyond, losses or gradients leave float32."
            )
        return number


@dataclass(frozen=True)
class Choice(Kind):
    """One word of a fixed list; ``search`` says whether all of them are worth searching."""

    values: tuple[str, ...]
    search: bool = True

    def describe(self) -> str:
        """Returns the allowed words."""
        return "one of " + ", ".join(self.values)

    def example(self) -> str:
        """Returns the first of the words."""
        return self.values[0]

    def _checked(self, where: str, value: Any) -> str:
        self._require(isinstance(value, str) and value in self.values, where)
        return str(value)


@dataclass(frozen=True)
class Text(Kind):
    """A word that the code which reads it checks: a file, a class, a network."""

    def describe(self) -> str:
        """Returns what it is."""
        return "a word that is not empty"

    def example(self) -> str:
        """Returns a word."""
        return "word"

    def _checked(self, where: str, value: Any) -> str:
        self._require(isinstance(value, str) and value != "", where)
        return str(value)


@dataclass(frozen=True)
class Words(Kind):
    """A list of words, in the order that they are given; of a fixed list where ``values`` has any."""

    values: tuple[str, ...] = ()
    minimum_length: int = 0

    def describe(self) -> str:
        """Returns the length and the allowed words."""
        of = f", each one of {', '.join(self.values)}" if self.values else ""
        return f"a list of {self.minimum_length} or more words{of}"

    def example(self) -> tuple[str, ...]:
        """Returns a list of allowed length and items."""
        return ((*self.values, "word")[0],) * max(1, self.minimum_length)

    def _checked(self, where: str, value: Any) -> tuple[str, ...]:
        self._require(not isinstance(value, str) and isinstance(value, Iterable), where)
        words = tuple(value)
        allowed = all(isinstance(word, str) and word and (not self.values or word in self.values) for word in words)
        self._require(allowed and len(words) >= self.minimum_length, where)
        return words


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def describe(self) -> str:
        """Returns the two values."""
        return "true or false"

    def example(self) -> bool:
        """Returns True."""
        return True

    def _checked(self, where: str, value: Any) -> bool:
        self._require(isinstance(value, bool), where)
        return bool(value)


@dataclass(frozen=True)
class Numbers(Kind):
    """A list of numbers, written ``450/270/162`` in a spec string (a single one: ``450/``)."""

    item: Number = Number()
    minimum_length: int = 1
    maximum_length: int | None = None
    or_number: bool = False

    def describe(self) -> str:
        """Returns the length and the range of the items."""
        least, most = self.minimum_length, self.maximum_length
        if self.or_number:
            return f"{self.item.describe()}, or a list of {least} or more such numbers"
        length = f"{least} or more" if most is None else f"{least} to {most}"
        return f"a list of {length} numbers such as {format_value(self.example())}, each {self.item.describe()}"

    def example(self) -> tuple[float, ...]:
        """Returns a list of allowed length and items."""
        return (self.item.example(),) * max(2, self.minimum_length)

    def _checked(self, where: str, value: Any) -> tuple[float, ...] | float:
        if self.or_number and isinstance(value, Real):
            return self.item._checked(where, value)
        # A table by class (a mapping) would silently give its keys.
        self._require(isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping), where)
        items = sorted(value) if isinstance(value, set | frozenset) else list(value)
        self._require(self.minimum_length <= len(items) <= (self.maximum_length or len(items)), where)
        return tuple(self.item._checked(f"item {format_value(item)} of {where}", item) for item in items)


@dataclass(frozen=True)
class Option:
    """One option: its name, default and kind (None where the author declared none)."""

    name: str
    default: Any
    required: bool
    kind: Kind | None


def options_of(target: type) -> tuple[Option, ...]:
    """Returns the options that the constructor of ``target`` takes, in order.

    Args:
        target: a dataclass whose fields are annotated with ``Annotated[type, Number(...)]`` and the like, or a class whose
            ``__init__`` is.

    Raises:
        ConfigError: an annotation names something that does not exist when the program runs.
    """
    return _options_of(target)


@cache
def _options_of(target: type) -> tuple[Option, ...]:
    owner = next(base for base in target.__mro__ if "__init__" in vars(base))
    constructor = vars(owner)["__init__"]
    try:
        # A dataclass inherits fields from other modules, whose annotations only the class itself can resolve.
        hints = get_type_hints(owner if "__dataclass_fields__" in vars(owner) else constructor, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"the annotations of {target.__qualname__}.__init__ cannot be read: {error}; "
            "import what they name outside of `if TYPE_CHECKING`."
        ) from error
    options = []
    for parameter in list(inspect.signature(constructor).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        metadata = getattr(hints.get(parameter.name), "__metadata__", ())
        kind = next((item for item in metadata if isinstance(item, Kind)), None)
        required = parameter.default is parameter.empty
        options.append(Option(parameter.name, None if required else parameter.default, required, kind))
    return tuple(options)


def build(target: type[Built], what: str, name: str, options: Mapping[str, Any]) -> Built:
    """Returns an instance with the given options; raises for options that it does not have or lacks."""
    known = options_of(target)
    names = [declaration.name for declaration in known]
    for option in options:
        if option not in names:
            raise unknown("option", option, names, of=f" of {what} '{name}'")
    missing = [declaration.name for declaration in known if declaration.required and declaration.name not in options]
    if missing:
        raise ConfigError(f"{what} '{name}' needs {' and '.join(f'{missing_name}=' for missing_name in missing)}.")
    return target(**options)


def check_fields(settings: object, of: str = "") -> None:
    """Checks every field of a dataclass, frozen or not, and gives it the value that its kind returns; ``of`` is for messages.

    Raises:
        ConfigError: a field is of the wrong type or out of range; the message names it, its value and the range.
    """
    for option in options_of(type(settings)):
        if option.kind is not None:
            value = getattr(settings, option.name)
            where = f"{option.name}={format_value(value)}{f' of {of}' if of else ''}"
            object.__setattr__(settings, option.name, option.kind.check(where, value))


def format_value(value: object) -> str:
    """Returns a value as a spec string writes it: ``true``, ``none``, ``450/270``, ``450/`` (a list of one), ``0.05``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return "/".join(format_value(item) for item in value) + ("/" if len(value) == 1 else "")
    if isinstance(value, float):
        # Ten digits unless they lose something: 2.0 is written 2, and every value is read back as it was.
        short = f"{value:.10g}"
        return short if float(short) == value else repr(value)
    return str(value)


def format_spec(name: str, options: Mapping[str, object]) -> str:
    """Returns a name and its options as a spec string, which `tempplug.arguments.parse_spec` reads.

    >>> format_spec("dystress", {"profile": "shifted", "shift": -0.4}), format_spec("fixed", {})
    ('dystress:profile=shifted,shift=-0.4', 'fixed')
    """
    written = ",".join(f"{key}={format_value(value)}" for key, value in options.items())
    return f"{name}:{written}" if written else name


class Configured:
    """Mixin of strategies and objectives: checks the options of the constructor and keeps them as attributes."""

    kind: ClassVar[str] = "object"
    name: ClassVar[str] = ""
    options: dict[str, Any]

    def configure(self, **values: object) -> None:
        """Checks every option against its declared range and sets it as an attribute of the same name.

        A subclass with a constructor of its own may pass options of its base; the spec string has only those of the class
        itself.

        Raises:
            ConfigError: an option is of the wrong type or out of range; the message names it, its value and the range.
        """
        own_options = options_of(type(self))
        bases = [base for base in reversed(type(self).__mro__) if issubclass(base, Configured)]
        declared = {option.name: option.kind for base in bases for option in options_of(base)}
        checked = {}
        for name, value in values.items():
            kind = declared.get(name)
            checked[name] = value if kind is None else kind.check(self.where(name, value), value)
            setattr(self, name, checked[name])
        self.options = {option.name: checked[option.name] for option in own_options if option.name in checked}

    def __post_init__(self) -> None:
        """Checks the fields of a subclass that is a dataclass."""
        self.configure(**{option.name: getattr(self, option.name) for option in fields(self) if option.init})  # type: ignore[arg-type]

    def where(self, option: str, value: object) -> str:
        """Returns ``option=value of kind 'name'``, the start of every message about an option."""
        shown = format_value(value)
        if isinstance(value, str) and not (shown.isprintable() and len(shown) <= 100):
            shown = quoted(shown)
        return f"{option}={shown} of {self.kind} '{self.name or type(self).__name__}'"

    def spec(self) -> str:
        """Returns the resolved spec string, every option written out: ``create_strategy(s.spec())`` rebuilds it."""
        return format_spec(self.name, getattr(self, "options", {}))
