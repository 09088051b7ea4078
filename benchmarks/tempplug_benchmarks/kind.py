"""What the command asks of a kind of suites: a module with these functions. It must not know any kind or suite."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

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
        """Returns a few lines about each of a suite's tasks."""
        ...

    def details(self, suite: Any, task: str) -> Iterator[str]:
        """Returns lines with all that there is to know about a task."""
        ...

    def run(self, suite: Any, options: argparse.Namespace) -> int:
        """Runs a suite and returns the exit code: 1 where something failed."""
        ...

    def report(self, folder: Path) -> Report | None:
        """Returns the results of this kind below a folder, None where it has none."""
        ...


def load_suite(name: str) -> Any:
    """Returns the registered suite of that name.

    Raises:
        TempplugError: there is none, or it cannot be loaded.
    """
    known = registry()
    return known.load(known.get(SuiteInfo, name))
