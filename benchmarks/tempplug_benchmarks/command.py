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
Every finished run is one JSON file below DIR. Killing the command loses at most the runs in flight; the same command
goes on where it stopped. A result of another recipe, data or spec is never reused: the command stops and says what differs.

Two commands may work on one folder at the same time: each leaves to the other what that one is at.

  tempplug bench run all --workers 2 --output runs            a few arms of two suites, a few minutes
  tempplug bench run all --profile small --workers 2 --time-limit 3600 --output runs
  tempplug bench run all --profile paper --executor ray --output runs      on a Ray cluster, of which this machine is one

In profile quick, all is the quickstart: tasks and arms that show at once what a temperature does; name a suite for its others.
A suite whose packages are not installed is left out, and said so. A page with all tables and plots is written, too.

Suites that measure speed take one case at a time, all its implementations in turn in a process of its own, and draw their
results as SVG and PNG beside them:

  tempplug bench run speed --output runs                      a few sizes, about a minute
  tempplug bench run speed --profile small --output runs      what is promised, beside what is measured
  tempplug bench run speed --profile small --tasks nt-xent one-way --busy --output runs

An ARM of a suite that trains is STRATEGY[+OBJECTIVE] with spec strings, a label of the task without a plus sign
(untrained), or 'all' for every arm of the task (tempplug bench list SUITE --task TASK). Options that are not written, and the
objective where there is none, come from the method's recipe:

  --strategies macl                           as the paper of MACL trains it
  --strategies macl+dcl                       the same strategy with another objective
  --strategies macl:alpha=1 fixed:temperature=0.07+flatnce
  --strategies all temperature-free:eps=1e-3  the task's arms and one more
  --strategies schedule+infonce@heads=3       with settings of the recipe that it alone has

A TASK may have settings of the recipe for all arms, which results keep apart: --tasks cifar10@num_train_epochs=400.
Epochs, batch and learning rate are the paper profile's; smaller profiles change their own in the same proportion.

What a table of a paper compares is run in place of a suite (tempplug bench list --papers has all):

  tempplug bench run --table temperature-free/3 --output runs
  tempplug bench run --table macl/9 macl/B.3 --profile small --output runs
  tempplug bench run --paper macl --profile paper --data-dir DIR --output runs

Arms and methods are the table's in every profile, and so is what its rows or columns vary; metrics too, where the profile's
data have them. Recipe, length and data are the paper's in profile paper alone: small and quick have their own, which never are
the paper's experiment. Quick has generated data or digits; where small has none of a data set, it has CIFAR-10 or what the task
says, and trains on it once for several. What has no such profile or lacks its data is left out, and said so.

Except in tables, the task's baseline always runs too, because every arm is compared with it. Exit code: 0, 1 where a run
failed, 2 on an error.
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
    parser = argparse.ArgumentParser(
        prog="tempplug bench", description="Run benchmark suites and report measured beside reported figures."
    )
    actions = parser.add_subparsers(required=True, metavar="{list,run,sweep,report}")

    listing = actions.add_parser("list", help="show suites, tasks, profiles and arms", description="Show what can be run.")
    listing.add_argument("suite", nargs="?", help="show the tasks and profiles of this suite")
    listing.add_argument("--task", metavar="TASK", help="show all about this one: arms, recipe, metrics")
    listing.add_argument(
        "--papers", action="store_true", help="show the command of every table and figure of five papers, or why there is none"
    )
    listing.set_defaults(action=_list)

    run = actions.add_parser(
        "run",
        help="run a suite",
        description="Run the tasks of a suite: train and measure every arm with every seed, or measure speed.",
        epilog=_RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "suite",
        nargs="?",
        help="name of the suite (tempplug bench list), or all for every suite that trains; none with --table",
    )
    own = _add_run_options(run)
    run.set_defaults(action=lambda options: _run(options, own))

    sweeping = actions.add_parser(
        "sweep",
        help="draw a suite's figure over fixed temperatures, with tuning-free strategies as bands",
        description="Run the tasks of a suite over fixed temperatures and tuning-free strategies (--strategies, by default "
        "macl, dystress and temperature-free), and write DIR/sweep-SUITE-TASK.svg. All else is as for tempplug bench run.",
    )
    sweep.add_options(sweeping)
    own_of_sweep = _add_run_options(sweeping)

    def swept(options: argparse.Namespace) -> int:
        _refuse_foreign(options, training.TITLE, own_of_sweep)
        if options.table or options.paper:
            raise ConfigError("a sweep must not go together with --table or --paper, which name arms of their own.")
        return sweep.run(options)

    sweeping.set_defaults(action=swept)

    report = actions.add_parser(
        "report", help="report the results of a folder", description="Report measured beside reported figures."
    )
    report.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run, or a part of it")
    report.add_argument("--format", choices=("terminal", "markdown", "html"), default="terminal", help="(default: terminal)")
    report.add_argument("--out", type=Path, metavar="FILE", help="write there instead of standard output")
    report.set_defaults(action=_report)
    return parser


def _add_run_options(run: argparse.ArgumentParser) -> dict[str, Sequence[argparse.Action]]:
    """Adds the options shared by all commands that run suites; returns those specific to one kind of suite."""
    run.add_argument(
        "--profile",
        choices=PROFILES,
        default="quick",
        help="quick: generated data, seconds; small: real data or the sizes that matter, minutes on two cores; paper: the "
        "paper's recipe or every size, for a GPU (default: quick)",
    )
    run.add_argument("--output", action=Folder, required=True, metavar="DIR", help="folder of results, made where missing")
    run.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="run these tasks alone; of suites that measure speed also single cases (all)"
    )
    run.add_argument(
        "--rerun-changed", action="store_true", help="replace stored results of another recipe, data or spec (default: stop)"
    )
    return {title: kind.add_options(run.add_argument_group(title)) for title, kind in KINDS.items()}


def _list(options: argparse.Namespace) -> int:
    if options.papers:
        if options.suite or options.task:
            raise ConfigError("--papers must stand alone: it shows tables of papers, not a suite.")
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
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("`tempplug bench list SUITE` shows its tasks and profiles, `... --task TASK` also arms, recipe and metrics.")
    return 0


def _listing(suite: Suite) -> Iterator[str]:
    """Returns one line for each task and for each of its profiles."""
    for task in suite.tasks:
        yield f"{task.name}: {task.summary}"
        for name, profile in task.profiles.items():
            named = "; runs where the task is named alone" if name in task.by_name else ""
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
        yield f"    sets aside on a cluster: {found.resources_of(name)}"
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


def _refuse_foreign(options: argparse.Namespace, kind: str, own: Mapping[str, Sequence[argparse.Action]]) -> None:
    """Raises `ConfigError` if an option was given that only another kind of suite accepts."""
    for title, actions in own.items():
        given = [each.option_strings[0] for each in actions if getattr(options, each.dest) != each.default]
        if title != kind and given:
            raise ConfigError(f"{', '.join(given)} of {_named(options)}: only {title} take that.")


def _named(options: argparse.Namespace) -> str:
    return "tables of papers" if options.suite is None else f"suite '{options.suite}'"


def _report(options: argparse.Namespace) -> int:
    found = reports(options.folder)
    if options.format == "terminal":
        if options.out is not None:
            raise ConfigError(f"--out {options.out} goes with --format markdown or html.")
        for report in found:
            report.print(Console())
        return 0
    if options.format == "markdown":
        content = "\n".join(report.markdown() for report in found)
    else:
        content = page([part for report in found for part in report.html_parts()])
    if options.out is None:
        sys.stdout.write(content)
    else:
        write_text(options.out, content)
    return 0
