"""The command ``tempplug bench``: lists suites, runs them and reports their results.

Everything that differs between kinds of suites, options included, is defined by the modules in `Suite.kind`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from tempplug.errors import ConfigError, ProcessError
from tempplug.parser import Parser
from tempplug.plugins import SuiteInfo, registry
from tempplug_adapters.storage.files import Folder, write_text
from tempplug_adapters.training.termination import ProcessLost, Terminated
from tempplug_benchmarks import training
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.report.comparison import check_known, compare, consistent
from tempplug_benchmarks.report.pages import page, render
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.ray_executor import in_child
from tempplug_benchmarks.run.store import Entry
from tempplug_benchmarks.run.table_plan import PAPERS, paper_map, size_of
from tempplug_benchmarks.run.task_file import pack
from tempplug_benchmarks.speed import kind as speed
from tempplug_benchmarks.speed.cases import SpeedSuite
from tempplug_benchmarks.speed.report import SpeedReport, read_case, sections
from tempplug_benchmarks.suite import Suite, load_suite
from tempplug_benchmarks.training import TrainingReport

KINDS = {training.TITLE: training, speed.TITLE: speed}
"""By `Suite.kind`, modules with ``add_options`` and ``run``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: command-line arguments after ``tempplug bench``; None uses those of the process.

    Returns:
        0; 1 if a run failed; 143 after SIGTERM, 129 after SIGHUP and 75 if Ray was lost, with finished runs saved.

    Raises:
        TempplugError: the command failed.
        KeyboardInterrupt: the command was interrupted; the message says what was kept.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(words)
    try:
        if getattr(options, "executor", None) == "ray" and multiprocessing.parent_process() is None:
            return in_child(main, words)
        code: int = options.action(options)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("finished runs are kept, the same command goes on.") from error
    except Terminated as ended:
        with suppress(OSError):  # of a terminal that is closed
            print(f"ended by {ended.name}: finished runs are kept, the same command goes on.", file=sys.stderr)
        return ended.status
    except ProcessError:
        return ProcessLost.status
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="tempplug bench", description="Run benchmark suites and report measured beside reported figures.")
    actions = parser.add_subparsers(required=True, metavar="{list,run,sweep,report,verify,pack}")

    listing = actions.add_parser("list", help="show suites, tasks, profiles and arms", description="Show what can be run.")
    listing.add_argument("suite", nargs="?", help="show the tasks and profiles of this suite")
    listing.add_argument("--task", metavar="TASK", help="show the arms, recipe and metrics of this task")
    listing.add_argument("--papers", action="store_true", help="show the command of every table and figure of five papers")
    listing.set_defaults(action=_list)

    run = actions.add_parser(
        "run",
        help="run a suite",
        description="Run the tasks of a suite: train and measure every arm with every seed, or measure speed.",
        epilog=files("tempplug_benchmarks").joinpath("run_help.txt").read_text(encoding="utf-8"),
    )
    run.add_argument("suite", nargs="?", help="name of a suite (tempplug bench list); all: every suite that trains")
    run.set_defaults(action=_run, own=_add_run_options(run))

    sweeping = actions.add_parser(
        "sweep",
        help="plot a suite's metric against fixed temperatures, and tuning-free strategies beside them",
        description="Run the tasks of a suite with fixed temperatures and tuning-free strategies (--strategies; default: macl, "
        "dystress and temperature-free), and write DIR/sweep-SUITE-TASK.svg. Options are those of tempplug bench run.",
    )
    training.add_sweep_options(sweeping)
    sweeping.set_defaults(action=_sweep, own=_add_run_options(sweeping))

    report = actions.add_parser(
        "report", help="report the results of a folder", description="Report measured beside reported figures."
    )
    report.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run, or a folder inside it")
    report.add_argument("--format", choices=("terminal", "markdown", "html"), default="terminal", help="(default: terminal)")
    report.add_argument("--output", type=Path, metavar="FILE", help="file to write instead of standard output")
    report.set_defaults(action=_report)

    verifying = actions.add_parser(
        "verify",
        help="repeat stored runs that are drawn at random and compare",
        description="Repeat stored trainings drawn at random. Exit status 1: a figure differs by more than the smallest "
        "difference that matters in its task.",
    )
    verifying.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run, or a folder inside it")
    verifying.add_argument("--runs", type=int, default=3, metavar="N", help="runs to repeat, at least 1 (default: 3)")
    verifying.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    verifying.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of real data (default: TEMPPLUG_DATA)")
    verifying.set_defaults(action=_verify)

    packing = actions.add_parser(
        "pack",
        help="move the files of finished runs into one file a task",
        description="Move the files of finished runs into one file a task, TASK.jsonl beside the folder TASK, for example to "
        "commit them. All commands read both: reports stay as they are, and no run is repeated.",
    )
    packing.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run, or a folder inside it")
    packing.set_defaults(action=_pack)
    return parser


def _add_run_options(run: argparse.ArgumentParser) -> dict[str, Sequence[argparse.Action]]:
    """Adds the options shared by all commands that run suites; returns those specific to one kind of suite."""
    sizes = "quick: generated data, seconds a run; small: real data, minutes on two cores; paper: the paper's recipe, for a GPU"
    run.add_argument("--profile", choices=PROFILES, default="quick", help=f"{sizes} (default: quick)")
    run.add_argument("--output", action=Folder, required=True, metavar="DIR", help="folder of results; created if missing")
    run.add_argument("--tasks", nargs="+", metavar="TASK", help="tasks to run; for speed also single cases (default: all)")
    changed = "replace stored results of another recipe, data set or spec (default: stop)"
    run.add_argument("--rerun-changed", action="store_true", help=changed)
    return {title: kind.add_options(run.add_argument_group(title)) for title, kind in KINDS.items()}


def _list(options: argparse.Namespace) -> int:
    if options.papers:
        if options.suite or options.task:
            raise ConfigError("--papers must be given without a suite and --task: it lists the tables of papers.")
        print(render("papers.txt", papers=map(paper_map, PAPERS), size_of=size_of))
        return 0
    if options.suite:
        suite = load_suite(options.suite)
        print(render("suite.txt", suite=suite, task=None if options.task is None else suite.task(options.task)), end="")
        return 0
    if options.task is not None:
        raise ConfigError(f"--task {options.task} needs the name of its suite: tempplug bench list SUITE --task TASK.")
    known = registry()
    rows = [("suite", "tasks", "profiles", "")]
    for info in known.all(SuiteInfo):
        tasks = known.load(info).tasks
        profiles = [name for name in PROFILES if any(name in task.profiles for task in tasks)]
        rows.append((info.name, str(len(tasks)), ", ".join(profiles), info.summary))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(*("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows), sep="\n")
    print("`tempplug bench list SUITE` shows its tasks and profiles, `... --task TASK` also arms, recipe and metrics.")
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.suite in (None, training.ALL) or options.table or options.paper or options.plan:
        _refuse_foreign(options, training.TITLE)
        if options.plan:
            if options.suite is not None:
                raise ConfigError(f"suite '{options.suite}' must not go together with --plan, which names its own.")
            return training.run_plan(options)
        if not (options.table or options.paper):
            if options.suite is None:
                raise ConfigError(
                    "name a suite, all, --plan FILE, --table PAPER/NUMBER or --paper PAPER: tempplug bench list shows them."
                )
            return training.run_all(options)
        if options.suite is not None:
            raise ConfigError(f"suite '{options.suite}' must not go together with --table or --paper, which name their own.")
        return training.run_tables(options)
    suite = load_suite(options.suite)
    _refuse_foreign(options, suite.kind)
    with registry().explaining(registry().get(SuiteInfo, options.suite)):
        status: int = KINDS[suite.kind].run(suite, options)
        return status


def _sweep(options: argparse.Namespace) -> int:
    _refuse_foreign(options, training.TITLE)
    if options.table or options.paper or options.plan:
        raise ConfigError("a sweep must not go together with --table, --paper or --plan, which name runs of their own.")
    return training.run_sweep(options)


def _refuse_foreign(options: argparse.Namespace, kind: str) -> None:
    """Raises `ConfigError` if an option was given that only another kind of suite accepts."""
    named = "tables of papers" if options.suite is None else f"suite '{options.suite}'"
    for title, actions in options.own.items():
        given = [each.option_strings[0] for each in actions if getattr(options, each.dest) != each.default]
        if title != kind and given:
            raise ConfigError(f"{', '.join(given)} is an option of {title}, not of {named}.")


def _verify(options: argparse.Namespace) -> int:
    if options.runs < 1:
        raise ConfigError(f"runs={options.runs} must be at least 1.")
    return training.verify(options)


def _pack(options: argparse.Namespace) -> int:
    for line in pack(options.folder):
        print(line)
    return 0


def _report(options: argparse.Namespace) -> int:
    found = reports(options.folder)
    if options.format == "terminal":
        if options.output is not None:
            raise ConfigError(f"--output {options.output} goes with --format markdown or html.")
        for report in found:
            report.print(Console())
        return 0
    if options.format == "markdown":
        content = "\n".join(report.markdown() for report in found)
    else:
        content = page([part for report in found for part in report.html_parts()])
    if options.output is None:
        sys.stdout.write(content)
    else:
        write_text(options.output, content)
    return 0


Report = TrainingReport | SpeedReport
"""The results of one kind of suite in a folder."""


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
    trained = loaded.only(lambda entry: entry.suite not in measuring)
    found: list[Report] = []
    if trained.results or trained.failures or not measured:
        trained = consistent(trained)
        found.append(TrainingReport(compare(trained, suites), trained.problems))
    if measured:
        found.append(SpeedReport(sections(measured, measuring), () if found else loaded.problems))
    return found
