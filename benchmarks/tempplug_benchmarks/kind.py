"""The kinds of suites, and what the command asks of each. It must not know any particular suite.

A kind is a module with these functions: suites that train (`training`) and suites that measure time (`speed.kind`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from tempplug.errors import ConfigError, DataError
from tempplug.plugins import SuiteInfo, registry


class Report(Protocol):
    """The results of one kind in a folder."""

    def print(self, console: Console) -> None:
        """Prints them on a terminal."""
        ...

    def markdown(self) -> str:
        """Returns them as Markdown."""
        ...

    def html_parts(self) -> list[str]:
        """Returns them as pieces of HTML for a page."""
        ...


class Kind(Protocol):
    """What the command asks of a kind of suites."""

    TITLE: str
    """Heading of its options in the help."""
    SUITE: type
    """Class of its suites; each has ``name`` and ``summary``."""

    def add_options(self, group: argparse._ArgumentGroup) -> list[argparse.Action]:
        """Adds the options that this kind alone takes, and returns them."""
        ...

    def listing(self, suite: Any) -> Iterator[str]:
        """Returns lines about a suite's tasks."""
        ...

    def run(self, suite: Any, options: argparse.Namespace) -> int:
        """Runs a suite and returns the exit code: 1 where something failed."""
        ...

    def report(self, folder: Path) -> Report | None:
        """Returns the results of this kind below a folder, None where it has none."""
        ...


def kinds() -> Sequence[Kind]:
    """Returns all kinds."""
    from tempplug_benchmarks import training
    from tempplug_benchmarks.speed import kind as speed

    return (training, speed)


def kind_of(suite: Any) -> Kind:
    """Returns the kind of a suite.

    Raises:
        ConfigError: it is no suite of any kind.
    """
    for kind in kinds():
        if isinstance(suite, kind.SUITE):
            return kind
    raise ConfigError(
        f"a suite must be one of {', '.join(kind.SUITE.__name__ for kind in kinds())}, not {type(suite).__name__}."
    )


def load_suite(name: str) -> Any:
    """Returns the registered suite of that name.

    Raises:
        TempplugError: there is none, or it cannot be loaded.
    """
    known = registry()
    return known.load(known.get(SuiteInfo, name))


def reports(folder: Path) -> list[Report]:
    """Returns the reports of every kind that has results below a folder, at least one.

    Raises:
        DataError: the folder is missing or has no results.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the --output of tempplug bench run.")
    found = [report for kind in kinds() if (report := kind.report(folder)) is not None]
    if not found:
        raise DataError(f"{folder} has no results: run tempplug bench run SUITE --output {folder} first.")
    return found
