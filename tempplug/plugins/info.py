"""Declarations that plugins return: names and import paths, never classes, so that listing them imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempplug.errors import ConfigError

STATUSES = ("implemented", "measured", "reproduced")


@dataclass(frozen=True, kw_only=True)
class Info:
    """What every declaration says about the thing that it offers.

    Attributes:
        name: the public name, as a user writes it (``macl``; for commands, words such as ``train simcse``).
        target: ``package.module:Attribute``, imported on first use.
        summary: one line for listings.
        reference: paper, section or equation; empty where there is none.
        status: of strategies, objectives and terms, how far they were checked: ``implemented``: the formula, against the
            oracle; ``measured``: a committed benchmark trains with it, too; ``reproduced``: such a benchmark has numbers of its
            paper, within their spread. Empty where nothing is said.
        requires: import names of the frameworks that the target needs beyond torch.
        extra: the extra of the distribution that installs them, for the pip command in an error.
        distribution: the distribution that ``extra`` belongs to.

    Raises:
        ConfigError: a field is of another type, name or target is empty, or the name could not be written in a spec string.
    """

    word: ClassVar[str] = "declaration"

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
        if not isinstance(self.requires, tuple) or not all(isinstance(each, str) for each in self.requires):
            raise ConfigError(f"requires={self.requires!r} of {self.word} '{self.name}' must be a tuple of import names.")


@dataclass(frozen=True, kw_only=True)
class StrategyInfo(Info):
    """A temperature strategy: the target is a `tempplug.Strategy` class."""

    word: ClassVar[str] = "strategy"


@dataclass(frozen=True, kw_only=True)
class ObjectiveInfo(Info):
    """A contrastive objective: the target is a `tempplug.Objective` class."""

    word: ClassVar[str] = "objective"


@dataclass(frozen=True, kw_only=True)
class NegativeInfo(Info):
    """A term on negatives: the target is a `tempplug.NegativeTerm` class."""

    word: ClassVar[str] = "negative term"


@dataclass(frozen=True, kw_only=True)
class AdapterInfo(Info):
    """An attachment to a framework: the target is its package or main class."""

    word: ClassVar[str] = "adapter"


@dataclass(frozen=True, kw_only=True)
class SuiteInfo(Info):
    """A benchmark suite: the target is a ``Suite`` object."""

    word: ClassVar[str] = "suite"


@dataclass(frozen=True, kw_only=True)
class CommandInfo(Info):
    """A sub-command of ``tempplug``: the target is ``main(arguments: list[str]) -> int``."""

    word: ClassVar[str] = "command"
