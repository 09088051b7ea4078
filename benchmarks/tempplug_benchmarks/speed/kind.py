"""The kind of suites that measure speed: how they are listed, run and reported by the command. It must not know any case."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tempplug.errors import ConfigError
from tempplug_adapters.training.flags import add_device
from tempplug_benchmarks.kind import load_suite
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.speed import report as text
from tempplug_benchmarks.speed.case import Setting, SpeedSuite
from tempplug_benchmarks.speed.store import SpeedResult, load_speed_results, speed_files
from tempplug_benchmarks.speed.table import Section, sections, strangers

TITLE = "suites that measure speed"
SUITE: type = SpeedSuite
# Seconds for the rounds of one case.
BUDGETS = {"quick": 0.2, "small": 3.0, "paper": 30.0}
# Pairs up to which cases are also timed after a network's step: caches hold nothing of larger ones anyway.
COLD_ROWS = 2048


def add_options(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """Adds the options of suites that measure speed and returns them."""
    budgets = ", ".join(f"{profile} {seconds:g}" for profile, seconds in BUDGETS.items())
    return [
        add_device(group, "cpu", "; a GPU is timed in bfloat16, by CUDA events"),
        group.add_argument(
            "--threads",
            type=int,
            metavar="N",
            help="of torch; one thread is timed in CPU time, which neighbours cannot distort, several in wall time "
            "(default: 1, with --busy 2)",
        ),
        group.add_argument("--busy", action="store_true", help="two processes that never rest run beside; wall time"),
        group.add_argument(
            "--budget",
            type=float,
            metavar="SECONDS",
            help=f"for the rounds of one case, at least three (default: {budgets})",
        ),
    ]


def listing(suite: SpeedSuite) -> Iterator[str]:
    """Returns a line about each task."""
    for task in suite.tasks:
        yield f"{task.name}: {task.summary} ({', '.join(f'{name} {len(cases)}' for name, cases in task.profiles.items())})"


def details(suite: SpeedSuite, task: str) -> Iterator[str]:
    """Returns lines with the cases of a task."""
    found = suite.task(task)
    yield f"{found.name}: {found.summary}"
    for profile, cases in found.profiles.items():
        names = [case.name + (f" ({case.device})" if case.device else "") for case in cases]
        yield f"  {profile}: {', '.join(names)}"


def run(suite: SpeedSuite, options: argparse.Namespace) -> int:
    """Measures what is left, writes report and plot, prints the tables of what was asked, and returns 1 where a case failed."""
    from tempplug_benchmarks.speed.runner import execute, plan

    setting = _setting(options)
    runs = plan(suite.name, options.profile, suite.choose(options.profile, setting.device, options.tasks), setting)
    failures = execute(runs, options.output, Progress(Console(stderr=True)), options.rerun_changed)
    results, problems = load_speed_results(options.output)
    asked = {run.path(options.output) for run in runs}
    here = [each for each in results if each.run.path(options.output).parent in {path.parent for path in asked}]
    shown = [each for each in here if each.run.path(options.output) in asked]
    text.print_report(Console(), sections(suite, shown), problems)
    folder = next(iter(asked)).parent
    written = text.write_report(folder, sections(suite, here), problems)
    Console(stderr=True).print(f"wrote {written}", markup=False, highlight=False, soft_wrap=True)
    return 1 if failures else 0


@dataclass(frozen=True)
class SpeedReport:
    """Sections of a folder.

    Attributes:
        found: of every suite, profile, setting and task.
        problems: messages about files that could not be read.
    """

    found: tuple[Section, ...]
    problems: tuple[str, ...]

    def print(self, console: Console) -> None:
        """Prints the tables."""
        text.print_report(console, self.found, self.problems)

    def markdown(self) -> str:
        """Returns the report as Markdown."""
        return text.markdown(self.found, self.problems)

    def html_parts(self) -> list[str]:
        """Returns the report as pieces of HTML."""
        return text.html_parts(self.found, self.problems)


def report(folder: Path) -> SpeedReport | None:
    """Returns the speed results of a folder, None where nothing was measured."""
    if not speed_files(folder):
        return None
    results, problems = load_speed_results(folder)
    by_suite: dict[str, list[SpeedResult]] = {}
    for result in results:
        by_suite.setdefault(result.run.suite, []).append(result)
    found: list[Section] = []
    for name, mine in by_suite.items():
        suite = load_suite(name)
        found += sections(suite, mine)
        problems += strangers(suite, mine)
    return SpeedReport(tuple(found), problems)


def _setting(options: argparse.Namespace) -> Setting:
    """Returns the setting that the options mean.

    Raises:
        ConfigError: a number is out of range, there is no such device, or the options do not go together.
    """
    from tempplug_adapters.training.command_line import choose_device  # loads torch

    if options.device != "cpu" and (options.busy or options.threads is not None):
        raise ConfigError("--busy and --threads go with --device cpu.")
    chosen = choose_device(options.device)
    if chosen.index:
        raise ConfigError(f"--device {chosen}: the first GPU is measured; CUDA_VISIBLE_DEVICES chooses which one that is.")
    return Setting(
        device=chosen.type,
        threads=options.threads if options.threads is not None else 2 if options.busy else 1,
        busy=options.busy,
        precision="bfloat16" if chosen.type == "cuda" else "float32",
        budget=options.budget if options.budget is not None else BUDGETS[options.profile],
        cold=COLD_ROWS,
    )
