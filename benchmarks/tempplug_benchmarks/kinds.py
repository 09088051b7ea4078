"""The kinds of suites: those that train, and those that measure time. It must not know any particular suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError
from tempplug_benchmarks import training
from tempplug_benchmarks.kind import Kind, Report
from tempplug_benchmarks.speed import kind as speed


def kinds() -> Sequence[Kind]:
    """Returns all kinds."""
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
