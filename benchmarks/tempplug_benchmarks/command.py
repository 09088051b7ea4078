"""The command ``tempplug bench``: lists suites, runs them and reports their results.

Everything that differs between kinds of suites, options included, is defined by the modules in `Suite.kind`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from tempplug.errors import ConfigError
from tempplug.options import format_value
from tempplug.parser import Parser
from tempplug.plugins import SuiteInfo, registry
from tempplug_adapters.storage.files import Folder, write_text
from tempplug_adapters.training.termination import Terminated
from tempplug_benchmarks import sweep, training
from tempplug_benchmarks.kinds import KINDS, reports
from tempplug_benchmarks.profile import PROFILES, Profile
from tempplug_benchmarks.report.pages import page
from tempplug_benchmarks.run.table_plan import listing
from tempplug_benchmarks.suite import Suite, load_suite

_RUN_HELP = """\
Each finished run is one JSON file below DIR. The same command continues after an interruption. A stored result of another
recipe, data set or spec is not reused: the command stops and names the difference. Two commands may share DIR.

  tempplug bench run all --workers 2 --output runs                    a few minutes: some arms of two suites
  tempplug bench run all --profile small --workers 2 --output runs    every suite whose packages and data are there
  tempplug bench run node --tasks citeseer --strategies macl --output runs
  tempplug bench run speed --profile small --tasks nt-xent one-way --busy --output runs
  tempplug bench run --table temperature-free/3 macl/9 --output runs  the arms of these tables
  tempplug bench run --paper macl --profile paper --data-dir DIR --output runs

A run of all also writes DIR/index.html with all tables and plots.

ARM is STRATEGY[+OBJECTIVE][+TERM...][@SETTING=VALUE,...] with spec strings, a label of the task without a plus sign
(untrained), or all. Options that are not given, and the objective, come from the method's recipe. A TERM is one on negatives
(tempplug list negatives). Settings after @ apply to that arm alone:

  --strategies macl macl+dcl fixed:temperature=0.07+flatnce+hardness:strength=9 schedule+infonce@heads=3
  --strategies all temperature-free:eps=1e-3                          the task's arms and one more

The task's baseline always runs too, except with --table and --paper. TASK may have settings for all arms:
--tasks cifar10@num_train_epochs=400. Epochs, batch and learning rate are those of profile paper and are scaled in smaller ones.

With --table and --paper, arms, methods and the settings that a table varies are the paper's in every profile; recipe, length
and data are the paper's in profile paper alone. Tasks without the profile or its data are skipped with a message.

Exit status: 0; 1 if a run failed; 2 for wrong usage or input; 130, 143 and 129 after an interruption.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: command-line arguments after ``tempplug bench``; None uses those of the process.

    Returns:
        0; 1 if a run failed; 143 after SIGTERM and 129 after SIGHUP, with finished runs saved.

    Raises:
        TempplugError: the command failed.
        KeyboardInterrupt: the command was interrupted; the message says what was kept.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.action(options)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("finished runs are kept, the same command goes on.") from error
    except Terminated as ended:
        with suppress(OSError):  # of a terminal that is closed
            print(f"ended by {ended.name}: finished runs are kept, the same command goes on.", file=sys.stderr)
        return ended.status
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="tempplug bench", description="Run benchmark suites and report measured beside reported figures.")
    actions = parser.add_subparsers(required=True, metavar="{list,run,sweep,report}")

    listing = actions.add_parser("list", help="show suites, tasks, profiles and arms", description="Show what can be run.")
    listing.add_argument("suite", nargs="?", help="show the tasks and profiles of this suite")
    listing.add_argument("--task", metavar="TASK", help="show the arms, recipe and metrics of this task")
    listing.add_argument("--papers", action="store_true", help="show the command of every table and figure of five papers")
    listing.set_defaults(action=_list)

    run = actions.add_parser(
        "run",
        help="run a suite",
        description="Run the tasks of a suite: train and measure every arm with every seed, or measure speed.",
        epilog=_RUN_HELP,
    )
    run.add_argument("suite", nargs="?", help="name of a suite (tempplug bench list); all: every suite that trains")
    own = _add_run_options(run)
    run.set_defaults(action=lambda options: _run(options, own))

    sweeping = actions.add_parser(
        "sweep",
        help="plot a suite's metric against fixed temperatures, with tuning-free strategies as bands",
        description="Run the tasks of a suite with fixed temperatures and tuning-free strategies (--strategies; default: macl, "
        "dystress and temperature-free), and write DIR/sweep-SUITE-TASK.svg. Options are those of tempplug bench run.",
    )
    sweep.add_options(sweeping)
    own_of_sweep = _add_run_options(sweeping)
    sweeping.set_defaults(action=lambda options: _sweep(options, own_of_sweep))

    report = actions.add_parser(
        "report", help="report the results of a folder", description="Report measured beside reported figures."
    )
    report.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run, or a folder inside it")
    report.add_argument("--format", choices=("terminal", "markdown", "html"), default="terminal", help="(default: terminal)")
    report.add_argument("--output", type=Path, metavar="FILE", help="file to write instead of standard output")
    report.set_defaults(action=_report)
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
        print("\n".join(listing()))
        return 0
    if options.suite:
        suite = load_suite(options.suite)
        print(f"{suite.name}: {suite.summary}")
        for line in _listing(suite) if options.task is None else _details(suite, options.task):
            print(f"  {line}")
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


def _listing(suite: Suite) -> Iterator[str]:
    """Returns one line for each task and for each of its profiles."""
    for task in suite.tasks:
        yield f"{task.name}: {task.summary}"
        for name, profile in task.profiles.items():
            named = "; runs only if the task is named" if name in task.by_name else ""
            yield f"  {name}: {_data(profile)}; {len(profile.arms)} arms{named}"


def _details(suite: Suite, task: str) -> Iterator[str]:
    """Returns lines about the profiles of a task: data, recipe, arms and metrics."""
    found = suite.task(task)
    yield f"{found.name}: {found.summary}; method {found.method.name}"
    for name, profile in found.profiles.items():
        yield f"  {name}: {_data(profile)}"
        yield f"    recipe: {_values(profile.settings())}"
        if profile.training:
            yield f"    training: {_values(profile.training)}"
        yield f"    resources on a cluster: {found.resources_of(name)}"
        for arm in profile.arms:
            changes = f" ({_values(arm.changes)})" if arm.changes else ""
            yield f"    arm {arm.label}{changes}{' (baseline)' if arm.label == found.baseline else ''}"
        for metric in profile.metrics:
            yield f"    metric {metric.name}: {metric.summary}{' (primary)' if metric.name == profile.primary else ''}"


def _data(profile: Profile) -> str:
    return profile.dataset + (f"; needs {', '.join(profile.needs)}" if profile.needs else "")


def _values(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={format_value(value)}" for name, value in settings.items())


def _run(options: argparse.Namespace, own: Mapping[str, Sequence[argparse.Action]]) -> int:
    if options.suite in (None, training.ALL) or options.table or options.paper:
        _refuse_foreign(options, training.TITLE, own)
        if not (options.table or options.paper):
            if options.suite is None:
                raise ConfigError("name a suite, all, --table PAPER/NUMBER or --paper PAPER: tempplug bench list shows them.")
            return training.run_all(options)
        if options.suite is not None:
            raise ConfigError(f"suite '{options.suite}' must not go together with --table or --paper, which name their own.")
        return training.run_tables(options)
    suite = load_suite(options.suite)
    _refuse_foreign(options, suite.kind, own)
    with registry().explaining(registry().get(SuiteInfo, options.suite)):
        status: int = KINDS[suite.kind].run(suite, options)
        return status


def _sweep(options: argparse.Namespace, own: Mapping[str, Sequence[argparse.Action]]) -> int:
    _refuse_foreign(options, training.TITLE, own)
    if options.table or options.paper:
        raise ConfigError("a sweep must not go together with --table or --paper, which name arms of their own.")
    return sweep.run(options)


def _refuse_foreign(options: argparse.Namespace, kind: str, own: Mapping[str, Sequence[argparse.Action]]) -> None:
    """Raises `ConfigError` if an option was given that only another kind of suite accepts."""
    named = "tables of papers" if options.suite is None else f"suite '{options.suite}'"
    for title, actions in own.items():
        given = [each.option_strings[0] for each in actions if getattr(options, each.dest) != each.default]
        if title != kind and given:
            raise ConfigError(f"{', '.join(given)} is an option of {title}, not of {named}.")


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
