"""What a plugin declares, and the hooks that return it.

A declaration holds a name and an import path, never a class, so that listing it imports nothing heavy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pluggy

from tempplug.errors import ConfigError

if TYPE_CHECKING:
    from tempplug.types import StepRecord

PROJECT = "tempplug"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
STATUSES = ("implemented", "measured", "reproduced")


@dataclass(frozen=True, kw_only=True)
class Info:
    """The fields of every declaration.

    Attributes:
        name: the public name, as a user writes it (``macl``; for commands, words such as ``train simcse``).
        target: ``package.module:Attribute``, imported on first use.
        summary: one line for listings.
        reference: paper, section or equation; empty where there is none.
        status: how far a strategy, objective or term was checked: ``implemented``: the formula, against the oracle;
            ``measured``: a committed benchmark trains with it, too; ``reproduced``: such a benchmark has numbers of its paper,
            within their spread. Empty where unknown.
        requires: import names of the frameworks that the target needs beyond torch.
        extra: the extra of ``distribution`` that installs them, for the pip command in an error.

    Raises:
        ConfigError: a field is of another type, name or target is empty, or the name could not be written in a spec string.
    """

    word: ClassVar[str] = "declaration"
    plural: ClassVar[str] = ""

    name: str
    target: str
    summary: str
    reference: str = ""
    status: str = ""
    requires: tuple[str, ...] = ()
    extra: str = ""
    distribution: str = "tempplug"

    def __post_init__(self) -> None:
        for field in ("name", "target", "summary", "reference", "extra", "distribution"):
            if not isinstance(getattr(self, field), str):
                raise ConfigError(f"{field}={getattr(self, field)!r} of {self.word} {self.name!r} must be a string.")
        if self.status not in ("", *STATUSES):
            raise ConfigError(f"status={self.status!r} of {self.word} '{self.name}' must be one of {', '.join(STATUSES)}.")
        if not self.name or self.name != " ".join(self.name.split()) or set(self.name) & set(":,="):
            raise ConfigError(f"name={self.name!r} of a {self.word} must be words without ':', ',' and '='.")
        if not all(self.target.split(":")) or self.target.count(":") > 1:
            raise ConfigError(f"target={self.target!r} of {self.word} '{self.name}' must be written package.module:Attribute.")
        # A bare string would be read letter by letter.
        if not isinstance(self.requires, tuple) or not all(isinstance(package, str) for package in self.requires):
            raise ConfigError(f"requires={self.requires!r} of {self.word} '{self.name}' must be a tuple of import names.")


@dataclass(frozen=True, kw_only=True)
class StrategyInfo(Info):
    """A temperature strategy: the target is a `tempplug.Strategy` class."""

    word: ClassVar[str] = "strategy"
    plural: ClassVar[str] = "strategies"


@dataclass(frozen=True, kw_only=True)
class ObjectiveInfo(Info):
    """A contrastive objective: the target is a `tempplug.Objective` class."""

    word: ClassVar[str] = "objective"
    plural: ClassVar[str] = "objectives"


@dataclass(frozen=True, kw_only=True)
class NegativeInfo(Info):
    """A term on negatives: the target is a `tempplug.NegativeTerm` class."""

    word: ClassVar[str] = "negative term"
    plural: ClassVar[str] = "negatives"


@dataclass(frozen=True, kw_only=True)
class AdapterInfo(Info):
    """An attachment to a framework: the target is its package or main class."""

    word: ClassVar[str] = "adapter"
    plural: ClassVar[str] = "adapters"


@dataclass(frozen=True, kw_only=True)
class SuiteInfo(Info):
    """A benchmark suite: the target is a ``Suite`` object."""

    word: ClassVar[str] = "suite"
    plural: ClassVar[str] = "suites"


@dataclass(frozen=True, kw_only=True)
class CommandInfo(Info):
    """A sub-command of ``tempplug``: the target is ``main(arguments: list[str]) -> int``."""

    word: ClassVar[str] = "command"
    plural: ClassVar[str] = "commands"


InfoType = TypeVar("InfoType", bound=Info)


def declared(kind: type[InfoType], module: str) -> list[InfoType]:
    """Returns the declarations of a kind in the TOML file beside a plugin's module, such as those of ``[strategies.NAME]``.

    Targets are written relative to the folder of the file, which is a package. ``requires`` is a list of import names or the
    name of a list under ``[requires]``; where it is absent, the list named as the ``extra`` is taken.

    Args:
        kind: of the declarations.
        module: the plugin's ``__file__``, its package a top-level one.
    """
    path = Path(module)
    read = tomllib.loads(path.with_suffix(".toml").read_text(encoding="utf-8"))
    infos = []
    for name, entry in read[kind.plural].items():
        requires = entry.pop("requires", entry.get("extra"))
        names = requires if isinstance(requires, list) else read.get("requires", {}).get(requires, ())
        target = f"{path.parent.name}.{entry.pop('target')}"
        infos.append(kind(name=name, target=target, requires=tuple(names), **entry))
    return infos


@hookspec
def tempplug_register_strategies() -> Iterable[StrategyInfo]:  # type: ignore[empty-body]
    """Called once, the first time a name is not built in or everything is listed; the declarations join the registry."""


@hookspec
def tempplug_register_objectives() -> Iterable[ObjectiveInfo]:  # type: ignore[empty-body]
    """Called like `tempplug_register_strategies`; the declarations join the registry of objectives."""


@hookspec
def tempplug_register_negatives() -> Iterable[NegativeInfo]:  # type: ignore[empty-body]
    """Called like `tempplug_register_strategies`; the declarations join the registry of terms on negatives."""


@hookspec
def tempplug_register_adapters() -> Iterable[AdapterInfo]:  # type: ignore[empty-body]
    """Called when adapters are listed or loaded."""


@hookspec
def tempplug_register_suites() -> Iterable[SuiteInfo]:  # type: ignore[empty-body]
    """Called when benchmark suites are listed or one is run."""


@hookspec
def tempplug_register_commands() -> Iterable[CommandInfo]:  # type: ignore[empty-body]
    """Called when the ``tempplug`` command parses its arguments; the declarations become sub-commands."""


@hookspec
def tempplug_log(record: StepRecord) -> None:
    """Called by the adapters whenever they log, with the record of the last loss; the return value is ignored.

    A plugin that raises here is named in a warning and gets no further records; training goes on.
    """
