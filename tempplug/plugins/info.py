"""Declarations that plugins return: names and import paths, never classes, so that listing them imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Info:
    """What every declaration says about the thing that it offers.

    Attributes:
        name: the public name, as a user writes it (``macl``; for commands, words such as ``train simcse``).
        target: ``package.module:Attribute``, imported on first use.
        summary: one line for listings.
        reference: paper, section or equation; empty where there is none.
        requires: import names of the frameworks that the target needs beyond torch.
        extra: the extra of the distribution that installs them, for the pip command in an error.
        distribution: the distribution that ``extra`` belongs to.
    """

    name: str
    target: str
    summary: str
    reference: str = ""
    requires: tuple[str, ...] = ()
    extra: str = ""
    distribution: str = "tempplug"


@dataclass(frozen=True, kw_only=True)
class StrategyInfo(Info):
    """A temperature strategy: the target is a `tempplug.Strategy` class."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveInfo(Info):
    """A contrastive objective: the target is a `tempplug.Objective` class."""


@dataclass(frozen=True, kw_only=True)
class AdapterInfo(Info):
    """An attachment to a framework: the target is its package or main class."""


@dataclass(frozen=True, kw_only=True)
class SuiteInfo(Info):
    """A benchmark suite: the target is a ``Suite`` object."""


@dataclass(frozen=True, kw_only=True)
class CommandInfo(Info):
    """A sub-command of ``tempplug``: the target is ``main(arguments: list[str]) -> int``."""
