"""The kinds of suites (training and speed) and the reports of a results folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rich.console import Console

from tempplug_benchmarks import training
from tempplug_benchmarks.report.comparison import check_known, compare, consistent
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.store import Entry
from tempplug_benchmarks.speed import kind as speed
from tempplug_benchmarks.speed.report import SpeedReport, read_case, sections
from tempplug_benchmarks.speed.targets import SpeedSuite
from tempplug_benchmarks.suite import Suite, load_suite
from tempplug_benchmarks.training import TrainingReport

KINDS = {training.TITLE: training, speed.TITLE: speed}
"""By `Suite.kind`, modules with ``add_options`` and ``run``."""


class Report(Protocol):
    """The results of one kind of suite in a folder."""

    def print(self, console: Console) -> None:
        """Prints the report on a terminal."""
        ...

    def markdown(self) -> str:
        """Returns the report as Markdown."""
        ...

    def html_parts(self) -> list[str]:
        """Returns the report as fragments of an HTML page."""
        ...


def reports(folder: Path) -> list[Report]:
    """Returns at least one report: one for each kind with results below the folder. The first report lists all problems.

    Raises:
        DataError: the folder is missing or has no results.
    """
    suites: dict[str, Suite] = {}

    def check(entry: Entry) -> None:
        suite = suites[entry.suite] = suites.get(entry.suite) or load_suite(entry.suite)
        if isinstance(suite, SpeedSuite):
            read_case(entry, suite)
        else:
            check_known(entry, suite)

    loaded = load_results(folder, check)
    measuring = {name: suite for name, suite in suites.items() if isinstance(suite, SpeedSuite)}
    measured = [each for each in (*loaded.results, *loaded.failures) if each.suite in measuring]
    trained = replace(
        loaded,
        results=tuple(each for each in loaded.results if each.suite not in measuring),
        failures=tuple(each for each in loaded.failures if each.suite not in measuring),
    )
    found: list[Report] = []
    if trained.results or trained.failures or not measured:
        trained = consistent(trained)
        found.append(TrainingReport(compare(trained, suites), trained.problems))
    if measured:
        found.append(SpeedReport(sections(measured, measuring), () if found else loaded.problems))
    return found
